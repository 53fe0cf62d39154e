#include "host_runtime/core/features/chosen_rows/chosen_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

RowFile::RowFile(const ChosenRowsPlan& plan, const ModelShape& model, const BatchLengths& workload, HeadRange heads,
                 std::span<const StepSequence> sequences)
    : heads_(heads.count), row_(model.kv_bytes_per_token_and_head()), before_{0} {
  for (const StepSequence& s : sequences) {
    const std::uint64_t rows = plan.rows(workload.length_of(s.sequence.value));
    const std::uint64_t piece = plan.evicts() ? 1 : plan.written_tokens;
    before_.push_back(before_.back() + (rows + piece - 1) / piece * piece);
  }
}

Bytes RowFile::size() const { return row_ * (before_.back() * heads_); }

FileRange RowFile::range(std::size_t sequence, std::uint32_t head, std::uint32_t first, std::uint32_t count) const {
  const std::uint64_t room = before_[sequence + 1] - before_[sequence];
  if (head >= heads_ || first + std::uint64_t{count} > room) throw InternalError("rows outside their file");
  return {row_ * (before_[sequence] * heads_ + head * room + first), row_ * count};
}

std::span<const std::uint32_t> ChosenRows::chosen(SequenceId sequence, LayerId layer, std::uint32_t head) const {
  const auto found = chosen_.find({sequence, layer});
  if (found == chosen_.end())
    throw InternalError(
        fmt::format("nobody has chosen tokens of sequence {} in layer {}", sequence.value, layer.value));
  return found->second.size() == 1 ? found->second.front() : found->second.at(head);
}

void ChosenRows::keep(SequenceId sequence, LayerId layer, std::uint32_t head, std::span<const std::uint32_t> kept) {
  Lists& lists = rows_[{sequence, layer}];
  lists.resize(model_.kv_heads);
  std::vector<std::uint32_t>& rows = lists[head];
  std::vector<std::uint32_t> old = rows, entered, left;
  std::ranges::sort(old);
  std::ranges::set_difference(kept, old, std::back_inserter(entered));
  std::ranges::set_difference(old, kept, std::back_inserter(left));
  if (left.size() > entered.size()) throw InternalError("more tokens are evicted than enter");
  for (std::size_t i = 0; i < entered.size(); ++i)
    if (i < left.size())
      *std::ranges::find(rows, left[i]) = entered[i];
    else
      rows.push_back(entered[i]);
}

const std::vector<std::uint32_t>& ChosenRows::in_file(SequenceId sequence, LayerId layer, std::uint32_t head) const {
  return rows_.at({sequence, layer}).at(head);
}

std::uint32_t ChosenRows::written_row(const StepSequence& s, LayerId layer, std::uint32_t head) const {
  const auto data = rows_.find({s.sequence, layer});
  if (data == rows_.end()) {
    // Which token leaves is not known without data: the rows take turns.
    const std::uint32_t before = plan_.rows(s.first_token);
    return plan_.rows(s.context()) > before ? before : s.first_token % before;
  }
  const std::vector<std::uint32_t>& rows = data->second.at(head);
  const auto newest = std::ranges::find(rows, s.first_token);
  if (newest == rows.end()) throw InternalError("the current token has been evicted");
  return static_cast<std::uint32_t>(newest - rows.begin());
}

std::vector<ChosenRows::Run> ChosenRows::file_runs(const Operation& op) const {
  const LayerId layer = *op.tag.layer;
  const HeadRange heads = op.tensors.writes.front().name.heads;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < op.tag.sequences->size(); ++i) {
    const StepSequence& s = (*op.tag.sequences)[i];
    const bool decode = op.tag.phase == Phase::decode;
    const std::uint32_t before = decode ? plan_.written(s.first_token) : 0;
    for (std::uint32_t head = heads.first.value; head < heads.first.value + heads.count; ++head) {
      const auto add = [&](std::uint32_t first, std::uint32_t count) {
        if (count > 0) runs.push_back({i, head, first, count});
      };
      if (op.kind == OpKind::write_file) {
        if (decode && plan_.evicts())
          add(written_row(s, layer, head), 1);
        else
          add(before, plan_.written(s.context()) - before);
        continue;
      }
      if (!plan_.sparse(layer)) {
        add(0, before);
        continue;
      }
      const std::span<const std::uint32_t> tokens = chosen(s.sequence, layer, head);
      for (std::size_t first = 0; first < tokens.size() && tokens[first] < before;) {
        std::size_t end = first + 1;
        while (end < tokens.size() && tokens[end] == tokens[end - 1] + 1 && tokens[end] < before) ++end;
        add(tokens[first], static_cast<std::uint32_t>(end - first));
        first = end;
      }
    }
  }
  return runs;
}

std::uint64_t ChosenRows::fetched_rows(const Operation& op, HeadRange heads, bool newest) const {
  const LayerId layer = *op.tag.layer;
  std::uint64_t rows = 0;
  for (const StepSequence& s : *op.tag.sequences) {
    const std::uint32_t from = newest ? plan_.written(s.first_token) : 0;
    if (!plan_.sparse(layer)) {
      rows += std::uint64_t{heads.count} * (plan_.rows(s.first_token) - from);
      continue;
    }
    for (std::uint32_t head = heads.first.value; head < heads.first.value + heads.count; ++head) {
      const std::span<const std::uint32_t> tokens = chosen(s.sequence, layer, head);
      rows += static_cast<std::uint64_t>(tokens.end() - std::ranges::lower_bound(tokens, from));
    }
  }
  return rows;
}

std::optional<Work> ChosenRows::resolve(const Operation& op) const {
  if (!op.tag.layer || !op.tag.sequences || op.tensors.writes.empty()) return std::nullopt;
  const TensorName& to = op.tensors.writes.front().name;
  // Rows are read and written; nothing starts if there are none.
  const auto copied = [&](std::uint64_t rows) {
    return ComputeWork{
        .op = OperatorClass::elementwise, .activations = row() * (2 * rows), .launches = rows > 0 ? 1U : 0U};
  };
  switch (op.kind) {
    case OpKind::read_file:
    case OpKind::write_file: {
      const auto* const planned = std::get_if<FileWork>(&op.work);
      if (to.what == TensorClass::weights || planned == nullptr) return std::nullopt;
      const RowFile file(plan_, model_, workload_, to.heads, *op.tag.sequences);
      FileWork work = *planned;
      for (const Run& run : file_runs(op))
        work.ranges.push_back(file.range(run.sequence, run.head - to.heads.first.value, run.first, run.count));
      return work;
    }
    case OpKind::gather_kv:
      if (to.what != TensorClass::fetched_kv) return std::nullopt;
      return copied(fetched_rows(op, to.heads, false));
    case OpKind::append_kv:
      if (to.what != TensorClass::fetched_kv) return std::nullopt;
      return copied(fetched_rows(op, to.heads, true));
    case OpKind::transfer: {
      if (to.what != TensorClass::fetched_kv) return std::nullopt;
      LinkWork work = std::get<LinkWork>(op.work);
      work.bytes = row() * fetched_rows(op, to.heads, false);
      return work;
    }
    default:
      return std::nullopt;
  }
}

void ModelledRows::choose(const StepSequence& s, LayerId layer) {
  const ChosenRowsPlan& plan = rows_.plan();
  const std::uint32_t wanted = plan.most_fetched(layer, s.first_token), unit = plan.unit;
  const std::uint32_t units = (s.context() - 1) / unit + 1, count = std::min(units, wanted / unit + 1);
  importance_->next(s.sequence, layer, units, count, important_);
  // The newest first: of the oldest unit a part may be beyond the budget.
  std::vector<std::uint32_t> tokens;
  for (auto it = important_.rbegin(); it != important_.rend(); ++it)
    for (std::uint32_t i = unit; i-- > 0 && tokens.size() < wanted;)
      if (const std::uint32_t token = *it * unit + i; token < s.first_token) tokens.push_back(token);
  std::ranges::reverse(tokens);
  rows_.choose(s.sequence, layer, {std::move(tokens)});
}

std::optional<Work> ModelledRows::resolve(const Operation& op) {
  if (op.kind == OpKind::select_tokens)
    for (const StepSequence& s : *op.tag.sequences) choose(s, *op.tag.layer);
  return rows_.resolve(op);
}

}  // namespace csdsim::host

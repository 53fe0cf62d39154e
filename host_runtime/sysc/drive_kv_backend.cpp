#include "host_runtime/sysc/drive_kv_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/sysc/kv_sections.h"

namespace csdsim::host {

namespace {

nvme::AttendMethod attend_method(const Operation& op) {
  const auto& work = std::get<DriveWork>(op.work);
  if (work.method == DriveMethod::dense)
    return work.partial ? nvme::AttendMethod::dense_partial : nvme::AttendMethod::dense;
  return work.partial ? nvme::AttendMethod::sparf_partial : nvme::AttendMethod::sparf;
}

nvme::KvAttend attend_command(const Operation& op, const DriveKvBackend::Shape& shape, std::size_t n,
                              std::uint32_t total_heads) {
  return {.layer = *op.tag.layer,
          .n = static_cast<std::uint16_t>(n),
          .method = attend_method(op),
          .group = static_cast<std::uint8_t>(shape.group),
          .head_dim = static_cast<std::uint16_t>(shape.head_dim),
          .total_heads = total_heads,
          .row_words = shape.kv.quantised() ? shape.row_words() : std::uint16_t{0}};
}

/// Work that depends on data may turn out to be nothing.
bool has_no_sequences(const Work& work) {
  return std::visit(
      [](const auto& of) {
        if constexpr (requires { of.sequences; })
          return of.sequences.empty();
        else
          return false;
      },
      work);
}

}  // namespace

DriveKvBackend::DriveKvBackend(DriveCommands& commands, const Shape& shape, OperationData* data)
    : commands_(commands),
      shape_(shape),
      data_(data),
      division_(shape.shard, shape.kv_heads, commands.platform().drives()) {}

KvHead DriveKvBackend::in_drive(const Running& running, KvHead head) const {
  return KvHead{head.value - division_.heads(DriveIndex{running->drive()}).first.value};
}

std::uint64_t DriveKvBackend::mdts(const Running& running) {
  return commands_.platform().driver(running->drive()).mdts().value;
}

nvme::AttendDescriptor DriveKvBackend::descriptor(const Running& running, SequenceId sequence, HeadRange heads) const {
  return {.sequence = sequence.value,
          .first_head = static_cast<std::uint16_t>(in_drive(running, heads.first).value),
          .head_count = static_cast<std::uint16_t>(heads.count)};
}

std::optional<SimTime> DriveKvBackend::start(const Operation& op, SimTime now) {
  const auto refuse = [&] {
    throw InternalError(fmt::format("{} is not an operation of the KV namespace of {}", operation_name(op.kind, op.tag),
                                    resource_name(op.resource)));
  };
  if (op.resource.kind != ResourceKind::drive_kv) refuse();
  if (has_no_sequences(op.work)) return SimTime{};
  const Running running = commands_.begin_batch(op, now);
  switch (op.kind) {
    case OpKind::append_kv:
      start_append(op, running);
      break;
    case OpKind::attend:
      start_attend(op, running);
      break;
    case OpKind::score_kv:
      start_score(op, running);
      break;
    case OpKind::fetch_kv:
      start_fetch(op, running);
      break;
    case OpKind::create_kv:
    case OpKind::fork_kv:
    case OpKind::free_kv:
      start_sequences(op, running);
      break;
    default:
      refuse();
  }
  commands_.end_batch(running);
  return std::nullopt;
}

void DriveKvBackend::start_append(const Operation& op, const Running& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint64_t most = mdts(running);
  const std::uint64_t token_bytes = std::uint64_t{shape_.row_words()} * 4;  // K and V of one head
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    // Append whole heads if one fits in a command: full windows then come in one command and need no read-back.
    const std::uint64_t tokens_fit = std::min<std::uint64_t>(most / token_bytes, 0xFFFF);
    const auto token_step =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(work.sequences[index].tokens, tokens_fit));
    const auto step = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(most / (token_bytes * token_step), 1, head_step(work.heads)));
    for (std::uint32_t head = 0; head < work.heads.count; head += step)
      append_part(op, running, index, {KvHead{work.heads.first.value + head}, std::min(step, work.heads.count - head)},
                  token_step);
  }
}

void DriveKvBackend::append_part(const Operation& op, const Running& running, std::size_t index, HeadRange heads,
                                 std::uint32_t token_step) {
  const auto& work = std::get<DriveWork>(op.work);
  const SequenceWork& s = work.sequences[index];
  // The drive requires the tokens of a head in order, which a single queue preserves.
  const nvme::QueueId queue = commands_.next_queue(running->drive());
  for (std::uint32_t token = 0; token < s.tokens; token += token_step) {
    const std::uint32_t count = std::min(token_step, s.tokens - token);
    const nvme::KvAppend command{.sequence = s.sequence,
                                 .layer = *op.tag.layer,
                                 .first_token = TokenIndex{s.first_token.value + token},
                                 .token_count = static_cast<std::uint16_t>(count),
                                 .first_head = in_drive(running, heads.first),
                                 .head_count = static_cast<std::uint16_t>(heads.count)};
    const DriveCommands::Buffer buffer =
        commands_.allocate(work.memory, nvme::append_size(command, shape_.row_words()));
    if (data_ != nullptr) {
      const std::size_t elements = std::size_t{heads.count} * count * shape_.head_dim;
      std::vector<Half> k(elements), v(elements);
      data_->load_append(op, index, token, count, heads, k, v);
      write_rows(k, buffer.bytes);
      write_rows(v, buffer.bytes + nvme::append_size(command, shape_.row_words()).value / 2);
    }
    commands_.submit(running, queue, nvme::encode(kKvNamespace, command, shape_.row_words()), buffer,
                     fmt::format("appending to sequence {} layer {}", s.sequence.value, op.tag.layer->value),
                     [this, buffer] { commands_.release(buffer); });
  }
}

void DriveKvBackend::write_rows(std::span<const Half> rows, std::byte* to) const {
  if (!shape_.kv.quantised()) {
    if (!rows.empty()) std::memcpy(to, rows.data(), rows.size_bytes());
    return;
  }
  const std::size_t d = shape_.head_dim, row = std::size_t{shape_.row_words()} * sizeof(Half);
  for (; !rows.empty(); rows = rows.subspan(d), to += row) shape_.kv.restore(rows.first(d), {to, row});
}

std::vector<std::vector<DriveKvBackend::Part>> DriveKvBackend::cut(
    const Operation& op, std::size_t sequences, HeadRange heads, std::uint32_t head_step,
    const std::function<bool(const std::vector<Part>&, std::uint32_t)>& fits) const {
  const auto one_fits = [&](std::size_t index) { return fits({{index, {heads.first, head_step}}}, head_step); };
  for (std::size_t index = 0; index < sequences; ++index) {
    while (head_step > 1 && !one_fits(index)) head_step = (head_step + 1) / 2;
    if (!one_fits(index))
      throw UserError(fmt::format("{}: one head of a sequence exceeds the drive's largest transfer (mdts)",
                                  operation_name(op.kind, op.tag)));
  }
  const std::size_t most_parts =
      shape_.granularity == nvme::Granularity::layer_mini_batch ? 0xFFFF : 1;  // 16-bit count, or one descriptor
  std::vector<std::vector<Part>> commands;
  std::vector<Part> parts;
  std::uint32_t heads_in_parts = 0;
  for (std::size_t index = 0; index < sequences; ++index)
    for (std::uint32_t head = 0; head < heads.count; head += head_step) {
      const HeadRange some{KvHead{heads.first.value + head}, std::min(head_step, heads.count - head)};
      parts.push_back({index, some});
      if (parts.size() > 1 && (parts.size() > most_parts || !fits(parts, heads_in_parts + some.count))) {
        parts.pop_back();
        commands.push_back(std::exchange(parts, {{index, some}}));
        heads_in_parts = 0;
      }
      heads_in_parts += some.count;
    }
  if (!parts.empty()) commands.push_back(std::move(parts));
  return commands;
}

void DriveKvBackend::start_attend(const Operation& op, const Running& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint64_t most = mdts(running);
  const auto fits = [&](const std::vector<Part>& parts, std::uint32_t heads) {
    return nvme::attend_layout(attend_command(op, shape_, parts.size(), heads)).size.value <= most;
  };
  for (const auto& parts : cut(op, work.sequences.size(), work.heads, head_step(work.heads), fits))
    submit_attend(op, running, parts);
}

void DriveKvBackend::submit_attend(const Operation& op, const Running& running, const std::vector<Part>& parts) {
  const auto& work = std::get<DriveWork>(op.work);
  std::uint32_t total_heads = 0;
  for (const Part& part : parts) total_heads += part.heads.count;
  const nvme::KvAttend command = attend_command(op, shape_, parts.size(), total_heads);
  const nvme::AttendLayout layout = nvme::attend_layout(command);
  const auto attempt =
      std::make_shared<Attempt>(Attempt{op, running, command, commands_.allocate(work.memory, layout.size), {}, parts});
  std::byte* const base = attempt->buffer.bytes;

  const std::size_t d = shape_.head_dim;
  const bool sparf = work.method == DriveMethod::sparf;
  std::size_t head_offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const SequenceWork& s = work.sequences[part.index];
    nvme::AttendDescriptor descriptor = this->descriptor(running, s.sequence, part.heads);
    descriptor.token = s.context() - 1;
    if (s.tokens > 0) descriptor.flags |= nvme::attend_flag::append;
    if (shape_.drop_lost) descriptor.flags |= nvme::attend_flag::drop_lost;
    if (sparf) {
      descriptor.r = static_cast<std::uint16_t>(work.components);
      descriptor.k = s.top_k;
      descriptor.l = s.local;
    }
    std::memcpy(base + i * sizeof(descriptor), &descriptor, sizeof(descriptor));
    attempt->descriptors.push_back(descriptor);
    if (data_ != nullptr) {
      const std::size_t count = part.heads.count * d, first = head_offset * shape_.row_words() * sizeof(Half);
      std::vector<Half> k(s.tokens > 0 ? count : 0), v(k.size());
      std::byte* const q = base + layout.q.value + head_offset * d * shape_.group * sizeof(Half);
      data_->load_attend(op, part.index, part.heads, halves(q, count * shape_.group), k, v);
      write_rows(k, base + layout.k.value + first);
      write_rows(v, base + layout.v.value + first);
    }
    head_offset += part.heads.count;
  }

  send(attempt);
}

void DriveKvBackend::send(const AttemptPtr& attempt) {
  DriveCommands::Lost lost;
  if (recompute_) lost = [this, attempt](std::uint32_t pages) { recover(attempt, pages); };
  const auto done = [this, attempt] {
    if (data_ != nullptr)
      store_outputs(attempt->op, attempt->buffer.bytes, nvme::attend_layout(attempt->command), attempt->parts);
    commands_.release(attempt->buffer);
  };
  commands_.submit(attempt->running, commands_.next_queue(attempt->running->drive()),
                   nvme::encode(kKvNamespace, attempt->command), attempt->buffer,
                   operation_name(attempt->op.kind, attempt->op.tag), done, lost);
}

void DriveKvBackend::store_outputs(const Operation& op, std::byte* buffer, const nvme::AttendLayout& layout,
                                   const std::vector<Part>& parts) {
  const bool partial = std::get<DriveWork>(op.work).partial;
  std::byte* out = buffer + layout.out.value;
  std::byte* softmax = buffer + layout.softmax.value;
  for (const Part& part : parts) {
    const std::size_t queries = std::size_t{part.heads.count} * shape_.group;
    const std::span<const Half> rows = halves(out, queries * shape_.head_dim);
    if (partial) {
      data_->store_partial(op, part.index, part.heads, rows, floats(softmax, queries * 2));
    } else {
      data_->store_output(op, part.index, part.heads, rows);
    }
    out += rows.size_bytes();
    softmax += queries * 2 * sizeof(float);
  }
}

}  // namespace csdsim::host

#include "host_runtime/sysc/sparse_reads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "host_runtime/core/features/head_rows/head_rows.h"

namespace csdsim::host {

namespace {

using Sequence = HeadRows::Sequence;

class Selected {
 public:
  Selected(const HeadRows& rows, LayerId layer, engine::SelectionSource& selection, Bytes block)
      : rows_(rows), layer_(layer), selection_(selection) {
    const std::uint64_t row = std::uint64_t{rows.head_dim} * rows.element_bytes;
    group_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, block.value / row));
  }

  std::span<const std::uint32_t> of(const Sequence& sequence, std::uint32_t head) {
    const HeadKey key{sequence.sequence, layer_, KvHead{rows_.heads.first.value + head}};
    const std::uint32_t in_groups = sequence.stored / group_ * group_;
    const engine::KvHeadView view{.tokens = sequence.context,
                                  .head_dim = rows_.head_dim,
                                  .tokens_per_page = group_,
                                  .embedding_group = 1,
                                  .window = sequence.stored,
                                  .flushed_tokens = in_groups,
                                  .transposed_tokens = in_groups};
    const engine::SparfParams params{.r = rows_.components, .k = sequence.top_k, .l = sequence.local};
    indices_.clear();
    if (rows_.kind == HeadRows::Kind::components) {
      selection_.components(key, view, params, groups_);
      return groups_.groups;
    }
    selection_.tokens(key, view, params, groups_);
    for (std::size_t i = 0; i < groups_.groups.size(); ++i)
      for (std::uint32_t row = 0; row < groups_.rows[i]; ++row) indices_.push_back(groups_.groups[i] * group_ + row);
    for (std::uint32_t token = std::max(in_groups, sequence.context - sequence.local); token < sequence.stored; ++token)
      indices_.push_back(token);
    return indices_;
  }

 private:
  const HeadRows& rows_;
  LayerId layer_;
  engine::SelectionSource& selection_;
  std::uint32_t group_;
  engine::PageGroups groups_;
  std::vector<std::uint32_t> indices_;
};

}  // namespace

std::optional<Work> select_rows(const Operation& op, engine::SelectionSource& selection, Bytes block) {
  const auto* const planned = std::get_if<FileWork>(&op.work);
  if (op.kind != OpKind::read_file || planned == nullptr || !planned->rows) return std::nullopt;
  const HeadRows& rows = planned->rows.value();
  Selected selected(rows, *op.tag.layer, selection, block);
  FileWork work{.file = planned->file, .ranges = {}, .payload = planned->payload, .memory = planned->memory};
  work.ranges = chosen_ranges(rows, [&](const Sequence& of, std::uint32_t head) { return selected.of(of, head); });
  return work;
}

}  // namespace csdsim::host

#include "host_runtime/sysc/sparse_reads.h"

#include <algorithm>
#include <vector>

namespace csdsim::host {

namespace {

class Selected {
 public:
  Selected(engine::SelectionSource& selection, Bytes block) : selection_(selection), block_(block) {}

  std::span<const std::uint32_t> operator()(const HeadRows& rows, LayerId layer, const HeadRows::Sequence& sequence,
                                            std::uint32_t head) {
    const std::uint64_t row = std::uint64_t{rows.head_dim} * rows.element_bytes;
    const auto group = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, block_.value / row));
    const HeadKey key{sequence.sequence, layer, KvHead{rows.heads.first.value + head}};
    const std::uint32_t in_groups = sequence.stored / group * group;
    const engine::KvHeadView view{.tokens = sequence.context,
                                  .head_dim = rows.head_dim,
                                  .tokens_per_page = group,
                                  .embedding_group = 1,
                                  .window = sequence.stored,
                                  .flushed_tokens = in_groups,
                                  .transposed_tokens = in_groups};
    const engine::SparfParams params{.r = rows.components, .k = sequence.top_k, .l = sequence.local};
    if (rows.kind == HeadRows::Kind::components) {
      selection_.components(key, view, params, groups_);
      return groups_.groups;
    }
    indices_.clear();
    selection_.tokens(key, view, params, groups_);
    for (std::size_t i = 0; i < groups_.groups.size(); ++i)
      for (std::uint32_t r = 0; r < groups_.rows[i]; ++r) indices_.push_back(groups_.groups[i] * group + r);
    for (std::uint32_t token = std::max(in_groups, sequence.context - sequence.local); token < sequence.stored; ++token)
      indices_.push_back(token);
    return indices_;
  }

 private:
  engine::SelectionSource& selection_;
  Bytes block_;
  engine::PageGroups groups_;
  std::vector<std::uint32_t> indices_;
};

}  // namespace

RowSource selected_rows(engine::SelectionSource& selection, Bytes block) { return Selected(selection, block); }

}  // namespace csdsim::host

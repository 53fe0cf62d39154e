#include "experiment/memory/kv_cache.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "experiment/generation/generation_workload.h"

namespace csdsim::experiment {

std::uint64_t longest_sequence(const scenario::Scenario& s) {
  const GenerationWorkload& work = generation_of(s);
  if (work.requests) return work.lengths().longest_sequence();
  return std::uint64_t{work.prompts ? 0 : work.input_tokens} + work.output_tokens;
}

host::KvDivision kv_division(const scenario::Scenario& s) {
  const host::SystemNeeds needs = s.system->needs({.model = s.model.shape(), .workload = generation_of(s).lengths()});
  if (needs.shares) return {*needs.shares, s.model.kv_heads, s.platform.device.count};
  return {needs.shard, s.model.kv_heads, s.platform.device.count};
}

ftl::KvShape kv_shape(const scenario::Scenario& s) {
  const host::KvDivision division = kv_division(s);
  return {.layers = s.model.layers,
          .kv_heads = division.most_heads(),
          .head_dim = s.model.head_dim,
          .max_tokens = division.most_tokens(static_cast<std::uint32_t>(longest_sequence(s))),
          .component_major =
              s.system->needs({.model = s.model.shape(), .workload = generation_of(s).lengths()}).component_major,
          .format = s.system->traits().kv_format};
}

ftl::KvLayout kv_layout(const scenario::Scenario& s, const ftl::KvMappingPolicy& policy) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const ftl::KvMapping* mapping = ftl::kv_mapping(device.ftl.mapping);
  if (mapping == nullptr) throw InternalError("a drive without a KV cache has no layout for one");
  const ftl::KvLayout layout = policy.layout(kv_shape(s), device.flash.geometry.page_size, mapping->layout_options());
  layout.validate();
  return layout;
}

std::uint64_t kv_cache_pages(const scenario::Scenario& s, const ftl::KvLayout& layout) {
  const ftl::KvShape shape = kv_shape(s);
  const bool rewrites = layout.component_major &&
                        ftl::kv_mapping(s.platform.device.ftl.mapping)->tail == ftl::TailPolicy::partial_program;
  const auto pages_of = [&](std::uint64_t tokens) {
    std::uint64_t pages = layout.pages(tokens).total();
    if (rewrites) {
      const auto next = static_cast<std::uint32_t>(layout.full_windows(tokens));
      pages += layout.embedding_pages(layout.window(next));
    }
    return pages;
  };
  const std::uint64_t tiles = (shape.kv_heads + layout.page_heads - 1) / layout.page_heads;
  const GenerationWorkload& work = generation_of(s);
  if (!work.requests) return pages_of(shape.max_tokens) * tiles * shape.layers * work.batch;
  // Pages of sequences that end are free again only after garbage collection, so all sequences of a batch count.
  const host::KvDivision division = kv_division(s);
  std::vector<std::uint64_t> pages;
  for (const host::Request& request : work.trace.requests)
    pages.push_back(pages_of(division.most_tokens(request.prompt + request.output)));
  std::ranges::sort(pages, std::ranges::greater{});
  pages.resize(std::min<std::size_t>(pages.size(), work.batch));
  return std::accumulate(pages.begin(), pages.end(), std::uint64_t{0}) * tiles * shape.layers;
}

}  // namespace csdsim::experiment

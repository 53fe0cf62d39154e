#include "experiment/generation/kv_cache.h"

#include "base/error.h"
#include "experiment/generation/generation_workload.h"

namespace csdsim::experiment {

std::uint64_t longest_sequence(const scenario::Scenario& s) {
  const GenerationWorkload& work = generation_of(s);
  return std::uint64_t{work.prompts ? 0 : work.input_tokens} + work.output_tokens;
}

host::KvDivision kv_division(const scenario::Scenario& s) {
  const host::SystemNeeds needs = s.system->needs(s.model.shape(), generation_of(s).lengths());
  return {needs.shard, s.model.kv_heads, s.platform.device.count};
}

ftl::KvShape kv_shape(const scenario::Scenario& s) {
  const host::KvDivision division = kv_division(s);
  return {.layers = s.model.layers,
          .kv_heads = division.most_heads(),
          .head_dim = s.model.head_dim,
          .max_tokens = division.most_tokens(static_cast<std::uint32_t>(longest_sequence(s))),
          .component_major = s.system->needs(s.model.shape(), generation_of(s).lengths()).component_major};
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
  std::uint64_t pages = layout.pages(shape.max_tokens).total();
  if (layout.component_major &&
      ftl::kv_mapping(s.platform.device.ftl.mapping)->tail == ftl::TailPolicy::partial_program) {
    const auto next = static_cast<std::uint32_t>(layout.full_windows(shape.max_tokens));
    pages += layout.embedding_pages(layout.window(next));
  }
  const std::uint64_t tiles = (shape.kv_heads + layout.page_heads - 1) / layout.page_heads;
  return pages * tiles * shape.layers * generation_of(s).batch;
}

}  // namespace csdsim::experiment

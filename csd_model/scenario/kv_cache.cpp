#include "csd_model/scenario/kv_cache.h"

#include "ftl/core/kv_layout.h"

namespace csdsim::scenario {

std::uint32_t embedding_group(const InstinferMapping& mapping, const ModelConfig& model, Bytes page,
                              std::uint64_t longest_sequence) {
  return ftl::KvLayout::make(page, model.head_dim, mapping.embedding_group.value_or(0),
                             static_cast<std::uint32_t>(longest_sequence))
      .embedding_group;
}

std::uint64_t longest_sequence(const Scenario& s) {
  const auto* work = std::get_if<GenerationWorkload>(&s.workload);
  if (!work) return 0;
  return std::uint64_t{work->prompts ? 0 : work->input_tokens} + work->output_tokens;
}

std::uint64_t kv_cache_pages(const Scenario& s) {
  const auto& work = std::get<GenerationWorkload>(s.workload);
  const auto& mapping = std::get<InstinferMapping>(s.platform.device.ftl.mapping);
  const Bytes page = s.platform.device.flash.geometry.page_size;
  const std::uint64_t tokens = longest_sequence(s);
  std::uint64_t pages = 2 * (tokens / (page.value / s.model.row_bytes().value));
  if (std::holds_alternative<InstinferSparf>(s.system)) {
    const std::uint32_t m = embedding_group(mapping, s.model, page, tokens);
    pages += tokens / (page.value / (std::uint64_t{m} * s.model.bytes_per_element)) * (s.model.head_dim / m);
  }
  const std::uint64_t heads = (s.model.kv_heads + s.platform.device.count - 1) / s.platform.device.count;
  return pages * heads * s.model.layers * work.batch;
}

}  // namespace csdsim::scenario

#include "experiment/generation/kv_format.h"

#include <algorithm>

namespace csdsim::experiment {

namespace {

ftl::KvShape shape_of(const GenerationSetup& setup, bool component_major) {
  const host::ModelShape& model = setup.plan.model;
  const auto& prompts = setup.plan.workload.prompt_tokens;
  return {.layers = model.layers,
          .kv_heads = (model.kv_heads + setup.platform.drives - 1) / setup.platform.drives,
          .head_dim = model.head_dim,
          .max_tokens = *std::max_element(prompts.begin(), prompts.end()) + setup.plan.workload.output_tokens,
          .component_major = component_major};
}

host::KvGrouping grouping_of(const ftl::KvLayout& layout, const ftl::KvFtlConfig& kv) {
  if (!layout.component_major) return {.page_tokens = layout.group_tokens};
  const std::uint32_t rewrites = kv.tail == ftl::TailPolicy::partial_program ? kv.tail_rewrites : 0;
  return {.page_tokens = layout.group_tokens,
          .window_tokens = layout.window_tokens,
          .windowed = [layout, rewrites](std::uint64_t tokens) { return layout.windowed(tokens, rewrites); }};
}

}  // namespace

KvFormat::KvFormat(const GenerationSetup& setup) {
  const host::SystemNeeds needs = setup.system->needs(setup.plan.model, setup.plan.workload);
  in_drives = needs.kv == host::Home::drive_kv;
  component_major = in_drives && setup.component_major.value_or(needs.component_major);
  shape = shape_of(setup, component_major);
  if (!in_drives) {
    grouping = {.page_tokens = 1};  // memory takes token by token
    return;
  }
  policy = csd_model::make_mapping(setup.platform.drive);
  layout = policy->layout(shape, setup.platform.drive.geometry.page_size, setup.platform.drive.kv.layout);
  grouping = grouping_of(layout, setup.platform.drive.kv);
}

}  // namespace csdsim::experiment

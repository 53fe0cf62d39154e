#include "experiment/generation/planned_result.h"

#include "csd_model/fpga_design.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/generation/roofline.h"
#include "host_runtime/core/planner/kept_kv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

void add_sizes(ordered_json& metrics, const scenario::Scenario& s, const host::BatchLengths& lengths) {
  const host::ModelShape model = s.model.shape();
  metrics["weight_bytes"] = model.weight_bytes().value;
  metrics["kv_cache_bytes"] = (host::kept_kv_bytes(model, s.system->traits().kv_format) *
                               (model.kv_heads * model.layers * lengths.longest_contexts()))
                                  .value;
}

ordered_json fpga_resources(const csd_model::DeviceConfig& device) {
  const engine::Fpga& fpga = csd_model::fpga_of(device);
  const engine::FpgaDesign design = csd_model::fpga_design(device);
  const engine::FpgaUse use = engine::fpga_use(design);
  const engine::FpgaResources used = engine::total(use), shares = used.share_of(fpga.available);
  ordered_json resources{{"fpga", fpga.name}, {"fits", engine::fpga_lacks(design, fpga).empty()}};
  ordered_json units;
  for (const auto& [name, amount] : engine::kFpgaResourceNames) {
    resources[std::string(name)] = {
        {"used", used.*amount}, {"available", fpga.available.*amount}, {"share", shares.*amount}};
    for (std::size_t i = 0; i < engine::kFpgaUnits; ++i)
      if (use[i].luts > 0) units[std::string(engine::kFpgaUnitNames[i])][std::string(name)] = use[i].*amount;
  }
  resources["units"] = std::move(units);
  return resources;
}

ordered_json GenerationWorkload::planned(const scenario::Scenario& s) const {
  ordered_json document;
  add_sizes(document["metrics"], s, lengths());
  // The lengths of prompts from a file are known when the file is tokenized. A roofline needs equal lengths.
  if (prompts) document["metrics"].erase("kv_cache_bytes");
  if (!prompts && !requests) document["stats"]["roofline"] = decode_roofline(s);
  if (s.platform.device.has_engine()) document["resources"] = fpga_resources(s.platform.device);
  return document;
}

}  // namespace csdsim::experiment

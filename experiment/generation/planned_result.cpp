#include "experiment/generation/planned_result.h"

#include "attention_engine/core/fpga_resources.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/generation/roofline.h"
#include "host_runtime/core/planner/kept_kv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

void add_sizes(ordered_json& metrics, const scenario::Scenario& s, const host::BatchLengths& lengths) {
  const host::ModelShape model = s.model.shape();
  metrics["weight_bytes"] = model.weight_bytes().value;
  metrics["kv_cache_bytes"] =
      (host::kept_kv_bytes(model, s.system->kv_format()) * (model.kv_heads * model.layers * lengths.longest_contexts()))
          .value;
}

ordered_json fpga_use(const csd_model::DeviceConfig& device) {
  const bool behind_switch = device.engine.behind_switch();
  const engine::Fpga& fpga = behind_switch ? engine::kKu15p : engine::kZynq7045;
  const auto shares = [&](const engine::FpgaResources& used) {
    const engine::FpgaResources share = used.share_of(fpga.available);
    return ordered_json{
        {"luts", share.luts}, {"flip_flops", share.flip_flops}, {"block_rams", share.block_rams}, {"dsps", share.dsps}};
  };
  const engine::FpgaUse use =
      behind_switch ? engine::fpga_use_behind_switch(device.engine.kernels, device.engine.scoring)
                    : engine::fpga_use(device.engine.kernels, device.flash.geometry.channels, device.engine.scoring);
  ordered_json units;
  for (std::size_t i = 0; i < engine::kFpgaUnits; ++i)
    if (use[i].luts > 0) units[std::string(engine::kFpgaUnitNames[i])] = shares(use[i]);
  return {{"device", fpga.name},
          {"source",
           "InstInfer Table I, scaled to the kernels and channels of the drive; a scoring unit and the shell of "
           "a SmartSSD: docs/token_scores.md"},
          {"utilization", shares(engine::total(use))},
          {"utilization_by_unit", std::move(units)},
          {"fits", engine::total(use).within(fpga.available)}};
}

ordered_json GenerationWorkload::planned(const scenario::Scenario& s) const {
  ordered_json document;
  add_sizes(document["metrics"], s, lengths());
  // The lengths of prompts from a file are known when the file is tokenized. A roofline needs equal lengths.
  if (prompts) document["metrics"].erase("kv_cache_bytes");
  if (!prompts && !requests) document["stats"]["roofline"] = decode_roofline(s);
  if (s.platform.device.has_engine()) document["stats"]["fpga"] = fpga_use(s.platform.device);
  return document;
}

}  // namespace csdsim::experiment

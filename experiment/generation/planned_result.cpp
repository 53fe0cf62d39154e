#include "experiment/generation/planned_result.h"

#include "csd_model/fpga_design.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/roofline/roofline.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

constexpr const char *kWeights = "weight_bytes", *kCache = "kv_cache_bytes";

}  // namespace

std::vector<MetricInfo> size_metrics() {
  return {
      {kWeights, "B", "Size of all weights of the model."},
      {kCache, "B",
       "Most that K and V of all sequences take at a time, in the format of the system, without second copies; of "
       "requests that arrive an upper bound."},
      {"resources.fits", "1",
       "Whether the attention engine of a drive fits its FPGA (engine.fpga); with unlimited page buffers it fits "
       "none."},
      {"resources.luts.used", "1",
       "Look-up tables of a drive's FPGA that its units take (docs/fpga_resources.md); likewise "
       "`resources.flip_flops`, `resources.block_rams` (of 36 Kbit) and `resources.dsps`, and for one unit "
       "`resources.units.argtopk.luts`."},
      {"resources.fitted.product_luts", "1",
       "LUTs of a product of an attention kernel, fitted on InstInfer's Table I; likewise `filter_luts`, "
       "`filter_flip_flops`, `stream_luts` and `stream_flip_flops` (docs/fpga_resources.md)."},
      {"resources.luts.available", "1", "What the FPGA has; likewise the others."},
      {"resources.luts.share", "1", "Used over available; likewise the others.",
       "resources.luts.used / resources.luts.available"},
  };
}

void add_sizes(ordered_json& metrics, const scenario::Scenario& s, const host::BatchLengths& lengths) {
  const host::ModelShape model = s.model.shape();
  metrics[kWeights] = model.weight_bytes().value;
  metrics[kCache] = (host::kept_kv_bytes(model, s.system->traits().kv_format) *
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
  using Fit = engine::FpgaFit;
  resources["fitted"] = {{"product_luts", Fit::kProductLuts},
                         {"filter_luts", Fit::kFilterLuts},
                         {"filter_flip_flops", Fit::kFilterFlipFlops},
                         {"stream_luts", Fit::kStreamLuts},
                         {"stream_flip_flops", Fit::kStreamFlipFlops}};
  return resources;
}

ordered_json GenerationWorkload::planned(const scenario::Scenario& s) const {
  ordered_json document;
  add_sizes(document["metrics"], s, lengths());
  // The lengths of prompts from a file are known when the file is tokenized. A roofline needs equal lengths.
  if (prompts) document["metrics"].erase(kCache);
  if (!prompts && !requests) document["stats"]["roofline"] = decode_roofline(s);
  if (s.platform.device.has_engine()) document["resources"] = fpga_resources(s.platform.device);
  return document;
}

}  // namespace csdsim::experiment

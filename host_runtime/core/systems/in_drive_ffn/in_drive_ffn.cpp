#include "host_runtime/core/systems/in_drive_ffn/in_drive_ffn.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "base/rounding.h"
#include "host_runtime/core/features/neurons/in_drive_feed_forward.h"
#include "host_runtime/core/features/neurons/neurons.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/instinfer/planner.h"

namespace csdsim::host {

namespace {

/// Layers whose K and V the GPU holds in the prefill. More would not help: the reads of the next layer's weights wait
/// behind the programming of K and V.
constexpr std::uint32_t kKvBuffers = 2;
constexpr std::uint64_t kHeader = 256;  ///< bytes of a command with one neuron apart from inputs and sums, at most

}  // namespace

FlashParameters InDriveFfn::parameters() const {
  FlashParameters parameters = flash;
  parameters.technique = records == RecordLayout::bundled ? FlashTechnique::bundling : FlashTechnique::predictor;
  parameters.in_drives = true;
  parameters.division = divide;
  return parameters;
}

void InDriveFfn::describe(ParamVisitor& v) {
  v.param("kv", kv, "Where K and V are.", assumed("weights alone; drive combines it with InstInfer"));
  v.param("divide", divide, "What several drives divide.",
          assumed("a layer waits for its drives, so that all of them should work on it"));
  v.param("records", records, "The order of the rows of a layer in flash.",
          paper("LLM in a flash 3.2: rows and columns of a neuron together"));
  v.param("layout", flash.layout, "How records lie on logical blocks.",
          assumed("records of usual models are whole blocks"));
  describe_predictor(v, flash);
  describe_reads(v, flash);
  describe_locality(v, flash);
}

void InDriveFfn::check(config::Problems& problems, const SystemContext& context) const {
  const bool attends = kv == Place::drive_kv();  // the check of K and V in drives also needs a mapping and an engine
  problems.require(attends || context.engine,
                   {"platform.device.ftl.mapping.kind", "platform.device.preset", "system.kind"},
                   "platform.device.ftl.mapping.kind: a drive that keeps no KV cache has no engine, which in-drive-ffn "
                   "computes with; use kind: instinfer");
  const ModelShape& model = context.model;
  if (model.layers == 0) return;
  const bool divisible = divide == NeuronDivision::layers || context.drives <= model.ffn;
  problems.require(divisible, {"platform.device.count", "system.divide", "model.ffn_size"},
                   fmt::format("platform.device.count: {} drives for the {} neurons of a layer: with divide: neurons a "
                               "drive holds at least one; use divide: layers",
                               context.drives, model.ffn));
  const std::uint32_t batch = std::max(1U, context.batch), parts = std::clamp(context.mini_batches, 1U, batch);
  const Bytes states{8 * std::uint64_t{model.width} * ceil_div(batch, parts)};
  problems.require(states <= context.engine_buffer,
                   {"platform.device.engine.buffer", "workload.batch", "workload.mini_batches"},
                   fmt::format("platform.device.engine.buffer: inputs and sums of a mini-batch take {}, the buffer has "
                               "{}; give it more, or take more mini-batches",
                               format_quantity(states), format_quantity(context.engine_buffer)));
  const Bytes command{6 * std::uint64_t{model.width} * ceil_div(batch, parts) + kHeader};
  problems.require(
      command <= context.mdts, {"platform.device.nvme.mdts", "workload.batch", "workload.mini_batches"},
      fmt::format("platform.device.nvme.mdts: inputs and sums of a mini-batch take {}, a command carries {}; "
                  "allow more, or take more mini-batches",
                  format_quantity(command), format_quantity(context.mdts)));
  if (divisible) check_flash(problems, context, parameters());
}

SystemNeeds InDriveFfn::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = kv == Place::drive_kv() ? Place::drive_kv() : Place::gpu()};
  if (model.layers == 0) return needs;
  needs.residents = flash_residents(flash_weights({.model = model, .workload = workload}), run);
  if (kv == Place::gpu())
    needs.residents.push_back({Place::gpu(), "K and V", model.kv_bytes_per_token() * workload.longest_contexts()});
  return needs;
}

RunFeatures InDriveFfn::features(const PlannerInputs& inputs) const {
  RunFeatures features;
  features.add(std::make_unique<Neurons>(flash_weights(inputs)));
  return features;
}

FlashWeights InDriveFfn::flash_weights(const PlannerInputs& inputs) const {
  return FlashWeights(parameters().options(inputs.carried), inputs);
}

std::unique_ptr<Planner> InDriveFfn::plan(const PlannerInputs& inputs) const {
  std::unique_ptr<LayerPlanner> planner;
  if (kv == Place::drive_kv())
    planner = std::make_unique<InstInfer>(inputs, kKvBuffers, ShardBy::head);
  else
    planner = std::make_unique<TieredKvPlanner>(inputs,
                                                TieredKv{.shards = tier_heads(inputs.model.kv_heads, {1, 1}, {0, 1})});
  planner->set_feed_forward(std::make_unique<InDriveFeedForward>(flash_weights(inputs), inputs));
  return planner;
}

}  // namespace csdsim::host

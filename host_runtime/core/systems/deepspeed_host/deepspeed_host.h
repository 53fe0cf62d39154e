// DeepSpeed (ZeRO-Inference): weights in host memory, K and V there, on the GPU, or where the kernel swaps them.
#pragma once

#include "base/units.h"
#include "host_runtime/core/plan/software.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// The place where DeepSpeed keeps K and V.
enum class DeepSpeedKv : std::uint8_t { swapped, pinned, gpu };

/// ZeRO-Inference keeps weights in host memory and copies them to the GPU layer by layer. K and V of each layer follow
/// for its attention, unless they stay in GPU memory. Pageable memory that does not fit is swapped
/// (platform.host.swap).
class DeepSpeedHost final : public CopyableSystem<DeepSpeedHost> {
 public:
  static constexpr std::string_view kKind = "deepspeed-host";
  static constexpr std::string_view kDoc =
      "DeepSpeed ZeRO-Inference: weights in host memory; K and V there, swapped to a drive where they do not fit, or "
      "on "
      "the GPU.";

  DeepSpeedKv kv = DeepSpeedKv::swapped;
  std::uint32_t kv_buffers = 2;
  WeightPlacement weights{.on_host = {1, 1}};
  bool rewrites_cache = true;
  Software software;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  /// One: copies of weights, K and V overlap with computation anyway.
  SystemTraits traits() const override { return {.mini_batches = 1, .ends_sequences = true, .serves_arrivals = true}; }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;

 private:
  bool swaps() const { return kv == DeepSpeedKv::swapped; }
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::DeepSpeedKv> {
  static constexpr EnumValue<host::DeepSpeedKv> values[] = {
      {host::DeepSpeedKv::swapped, "swapped", "Pageable host memory; the kernel swaps what does not fit."},
      {host::DeepSpeedKv::pinned, "pinned", "Pinned host memory, which has to hold all of them."},
      {host::DeepSpeedKv::gpu, "gpu", "GPU memory, which has to hold all of them; nothing of them is copied."}};
};

}  // namespace csdsim

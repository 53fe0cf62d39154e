// K and V in host memory: what DeepSpeed and FlexGen do while host memory suffices.
#pragma once

#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// Which processor attends in decode.
enum class AttentionAt : std::uint8_t { gpu, host };

/// Weights and activations stay in GPU memory, K and V in host memory. The GPU attends to copies of K and V, which
/// arrive layer by layer over its link, or the host attends where they are.
class HostKv final : public CopyableSystem<HostKv> {
 public:
  static constexpr std::string_view kKind = "host-kv";
  static constexpr std::string_view kDoc =
      "K and V in host memory: copied to the GPU for every step, or attended to by the host.";

  AttentionAt attention = AttentionAt::gpu;
  std::uint32_t kv_buffers = 2;

  void describe(ParamVisitor& v) override;
  void check(config::Problems&, const SystemContext&) const override {}
  /// Copies run ahead without a second part; host and GPU take turns.
  std::uint32_t usual_mini_batches() const override { return attention == AttentionAt::gpu ? 1 : 2; }
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  std::string_view method() const override { return "dense"; }
  MethodSettings method_settings() const override { return {}; }
  std::vector<std::pair<std::string, std::string>> parameters_of(const MethodSettings&) const override { return {}; }
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::AttentionAt> {
  static constexpr EnumValue<host::AttentionAt> values[] = {
      {host::AttentionAt::gpu, "gpu", "The GPU attends; K and V of every layer are copied to it in every step."},
      {host::AttentionAt::host, "host", "The cores of the host attend; queries and outputs travel."}};
};

}  // namespace csdsim

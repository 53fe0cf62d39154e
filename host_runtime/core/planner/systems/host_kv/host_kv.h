// K and V in host memory: what DeepSpeed and FlexGen do while host memory suffices.
#pragma once

#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// Which processor attends in decode.
enum class AttentionAt : std::uint8_t { gpu, host };

/// Weights and activations stay in GPU memory, K and V in host memory. The GPU attends to copies of K and V, which
/// arrive layer by layer over its link, or the host attends where they are.
class HostKv final : public DenseSystem<HostKv> {
 public:
  static constexpr std::string_view kKind = "host-kv";
  static constexpr std::string_view kDoc =
      "K and V in host memory: copied to the GPU for every step, or attended to by the host.";

  AttentionAt attention = AttentionAt::gpu;
  std::uint32_t kv_buffers = 2;

  void describe(ParamVisitor& v) override;
  void check(config::Problems&, const SystemContext&) const override {}
  /// Attention on the GPU: one, because copies of K and V overlap with computation anyway. On the host: two, so that
  /// host and GPU work at the same time.
  std::uint32_t usual_mini_batches() const override { return attention == AttentionAt::gpu ? 1 : 2; }
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::AttentionAt> {
  static constexpr EnumValue<host::AttentionAt> values[] = {
      {host::AttentionAt::gpu, "gpu", "The GPU attends; K and V of every layer are copied to it in every step."},
      {host::AttentionAt::host, "host",
       "The cores of the host attend; only queries, new k and v, and outputs are transferred."}};
};

}  // namespace csdsim

// K and V in host memory: what DeepSpeed and FlexGen do while host memory suffices.
#pragma once

#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// The processor that attends in decode.
enum class AttentionAt : std::uint8_t { gpu, host };

/// Activations stay in GPU memory, and so do weights unless they are kept in host memory; K and V are in host memory.
/// The GPU attends to copies of K and V, which arrive layer by layer over its link, or the host attends where they are.
class HostKv final : public CopyableSystem<HostKv> {
 public:
  static constexpr std::string_view kKind = "host-kv";
  static constexpr std::string_view kDoc =
      "K and V in host memory: copied to the GPU for every step, or attended to by the host.";

  AttentionAt attention = AttentionAt::gpu;
  std::uint32_t kv_buffers = 2;
  KvFormat kv;
  WeightPlacement weights;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  /// Attention on the GPU: one, because copies of K and V overlap with computation anyway. On the host: two, so that
  /// host and GPU work at the same time.
  SystemTraits traits() const override {
    return {.mini_batches = attention == AttentionAt::gpu ? 1U : 2U,
            .ends_sequences = true,
            .serves_arrivals = true,
            .kv_format = kv.rows()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
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

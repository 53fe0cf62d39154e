// A user's offload system in a shared library: InstInfer with dense attention, but without any overlap. Comparing it
// with instinfer-dense shows the gain of overlap.
//
// csdsim loads it where a scenario says `plugins: [serial.so]`; then `system: {kind: serial}` is a system like any
// other, in list, describe, check, run, sweep, and in `simulation.compare`.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "scenario/plugin.h"

namespace serial {

using namespace csdsim;

/// Which operations wait for the one before them.
enum class Wait : std::uint8_t { operation, step };

/// The operations of another planner, each of which also waits for the one before it.
class SerialPlanner final : public host::Planner {
 public:
  SerialPlanner(std::unique_ptr<host::Planner> planner, Wait wait) : planner_(std::move(planner)), wait_(wait) {}

  std::vector<host::PlacedTensor> resident() const override { return planner_->resident(); }

  bool next_step(host::OperationSink& sink) override {
    if (!planner_->next_step(inner_)) return false;
    bool first = true;
    // Both sinks count from 0 in the same order, so that the identifiers of dependencies stay valid.
    for (host::Operation& op : inner_.take()) {
      if (last_ && (first || wait_ == Wait::operation)) op.deps.push_back(*last_);
      first = false;
      last_ = sink.add(op.kind, op.resource, op.tag, std::move(op.work), std::move(op.deps), std::move(op.tensors));
    }
    return true;
  }

 private:
  std::unique_ptr<host::Planner> planner_;
  Wait wait_;
  host::OperationSink inner_;
  std::optional<host::OperationId> last_;
};

class Serial final : public host::CopyableSystem<Serial> {
 public:
  static constexpr std::string_view kKind = "serial";
  static constexpr std::string_view kDoc = "InstInfer with dense attention, one operation after another.";

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const host::SystemContext& context) const override {
    problems.require(context.drives <= 1, {"platform.device.count", "system.kind"},
                     "platform.device.count: serial drives one drive at a time: use 1");
  }
  host::SystemNeeds needs(const host::PlannerInputs& run) const override {
    return {.kv = host::Place::drive_kv(),
            .component_major = false,
            .residents = {{host::Place::gpu(), "weights", run.model.weight_bytes()}}};
  }
  std::unique_ptr<host::Planner> plan(const host::PlannerInputs& inputs) const override {
    return std::make_unique<SerialPlanner>(host::InstinferDense().plan(inputs), wait_);
  }

 private:
  Wait wait_ = Wait::operation;
};

}  // namespace serial

namespace csdsim {

template <>
struct EnumValues<serial::Wait> {
  static constexpr EnumValue<serial::Wait> values[] = {
      {serial::Wait::operation, "operation", "Every operation waits for the one before it."},
      {serial::Wait::step, "step", "The first operation of a step waits for the last one of the step before."}};
};

}  // namespace csdsim

void serial::Serial::describe(ParamVisitor& v) {
  v.param("wait", wait_, "Which operations wait for the one before them: every operation, or the first of each step.",
          assumed("no overlap at all"));
}

CSDSIM_PLUGIN(registries.systems.add<serial::Serial>())

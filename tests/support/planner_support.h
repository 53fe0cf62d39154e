// Shared by tests of plans: a small model, a backend with chosen durations, and a run to the end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/rng.h"
#include "host_runtime/core/plan/executor.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "host_runtime/core/plan/token_importance.h"
#include "host_runtime/core/systems/systems.h"
#include "tests/support/small_model.h"

namespace csdsim::host::test {

inline PlannerInputs small_inputs(std::uint32_t layers, std::vector<std::uint32_t> prompts, std::uint32_t output_tokens,
                                  std::uint32_t mini_batches) {
  PlannerInputs in{.model = small_model(layers),
                   .workload = {std::move(prompts), output_tokens},
                   .span = {true, 0, output_tokens - 1},
                   .drives = 1};
  in.mini_batches = mini_batches;
  return in;
}

/// The plan of a built-in system with its default parameters.
inline std::unique_ptr<Planner> plan_of(std::string_view system, const PlannerInputs& inputs) {
  return builtin_systems().make(system)->plan(inputs);
}

/// One slot for processors and links, `commands` for drives.
inline SlotTable drive_slots(std::uint32_t commands) {
  SlotTable slots = default_slots();
  slots[static_cast<std::size_t>(ResourceKind::drive_kv)] = commands;
  return slots;
}

inline std::vector<Operation> all_operations(Planner& planner) {
  OperationSink sink;
  while (planner.next_step(sink)) {
  }
  return sink.take();
}

/// Durations from a function of the operation.
class FunctionBackend final : public OperationBackend {
 public:
  explicit FunctionBackend(std::function<SimTime(const Operation&)> duration) : duration_(std::move(duration)) {}
  std::optional<SimTime> start(const Operation& op, SimTime) override { return duration_(op); }

 private:
  std::function<SimTime(const Operation&)> duration_;
};

/// Durations that depend on the operation, and the ledger that a run has.
class LedgerBackend : public OperationBackend {
 public:
  explicit LedgerBackend(std::uint64_t seed = 1) : seed_(seed) {}
  void place(std::span<const PlacedTensor> tensors) override {
    for (const PlacedTensor& tensor : tensors) ledger_.place(tensor);
  }
  std::optional<SimTime> start(const Operation& op, SimTime) override {
    ledger_.begin(op);
    if (op.kind == OpKind::free_kv && op.resource.kind != ResourceKind::drive_kv) return SimTime{};
    return SimTime{static_cast<std::int64_t>(1 + (op.id.value * 2654435761ULL + seed_ * 40503) % 97)};
  }
  void end(const Operation& op) override { ledger_.end(op); }
  Bytes kept() const {
    Bytes sum;
    for (const auto& [place, footprint] : ledger_.footprints())
      sum += footprint.of_class[static_cast<std::size_t>(TensorClass::kv_cache)];
    return sum;
  }

 private:
  std::uint64_t seed_;
  TensorLedger ledger_;
};

/// Any tokens, another choice in every step.
class AnyTokens final : public TokenImportance {
 public:
  void next(SequenceId, LayerId, std::uint32_t context, std::uint32_t count,
            std::vector<std::uint32_t>& positions) override {
    std::set<std::uint32_t> chosen{context - 1};
    while (chosen.size() < count) chosen.insert(static_cast<std::uint32_t>(rng_.below(context)));
    positions.assign(chosen.begin(), chosen.end());
  }

 private:
  Rng rng_{8, "any tokens"};
};

/// Runs to the end; returns every operation's record in the order of completion.
inline std::vector<OperationRecord> run(Executor& executor, SimTime start = {}) {
  std::vector<OperationRecord> records;
  executor.set_observer([&](const OperationRecord& r) { records.push_back(r); });
  executor.start(start);
  while (!executor.finished()) executor.advance(executor.next_event());
  return records;
}

}  // namespace csdsim::host::test

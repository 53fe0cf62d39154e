// Runs the executor of a plan in simulated time.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <systemc>

#include "host_runtime/core/plan/executor.h"
#include "simulation/kernel_call.h"

namespace csdsim::host {

/// Advances the executor at Executor::next_event() and when a drive reports a completion.
class ExecutorModule : public sc_core::sc_module {
 public:
  explicit ExecutorModule(const sc_core::sc_module_name& name);

  /// Starts a plan at the current time. `done` is called by the event loop when the plan has ended. Only one plan runs
  /// at a time; all references must outlive it.
  void run(host::Planner& planner, host::OperationBackend& backend, host::Executor::Observer observer,
           std::function<void()> done, const host::ExecutorConfig& config = {});

  /// Reports that a drive has ended an operation at the current time.
  void complete(host::OperationId id, SimTime at, const host::DriveSplit& split);

  /// The exception of a backend that stopped the simulation; null if there was none.
  std::exception_ptr failure() const { return failure_; }

  /// The report of the last plan.
  const host::ExecutionReport& report() const { return executor_->report(); }

 private:
  void step();
  void advance();

  std::unique_ptr<host::Executor> executor_;
  std::function<void()> done_;
  std::exception_ptr failure_;
  Alarm wake_{AlarmRank::plan, [this] { step(); }};
  KernelCall stop_{[] { sc_core::sc_stop(); }};
};

}  // namespace csdsim::host

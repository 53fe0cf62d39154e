// The executor of a plan as a SystemC process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <systemc>

#include "host_runtime/core/planner/executor.h"

namespace csdsim::host {

/// Turns Executor::next_event() into an event and advances the executor when it is due or a drive reports.
class ExecutorModule : public sc_core::sc_module {
 public:
  explicit ExecutorModule(const sc_core::sc_module_name& name);
  SC_HAS_PROCESS(ExecutorModule);

  /// Starts a plan at the current time, from a process. `done` is called, in an SC_METHOD, when it has ended. One plan
  /// at a time; all references must outlive it.
  void run(host::Planner& planner, host::OperationBackend& backend, host::Executor::Observer observer,
           std::function<void()> done, const host::ExecutorConfig& config = {});

  /// A drive reports the end of an operation, now.
  void complete(host::OperationId id, SimTime at, const host::DriveSplit& split);

  /// What a backend threw while the plan ran; the simulation was stopped then. Null if nothing.
  std::exception_ptr failure() const { return failure_; }

  /// Of the plan that ran last.
  const host::ExecutionReport& report() const { return executor_->report(); }

 private:
  void step();
  void advance();

  std::unique_ptr<host::Executor> executor_;
  std::function<void()> done_;
  std::exception_ptr failure_;
  sc_core::sc_event wake_;
};

}  // namespace csdsim::host

#include "host_runtime/sysc/executor_module.h"

#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::host {

ExecutorModule::ExecutorModule(const sc_core::sc_module_name& name) : sc_module(name) {}

void ExecutorModule::run(host::Planner& planner, host::OperationBackend& backend, host::Executor::Observer observer,
                         std::function<void()> done, const host::ExecutorConfig& config) {
  if (done_) throw InternalError("a plan is running already");
  done_ = std::move(done);
  executor_ = std::make_unique<host::Executor>(planner, backend, config);
  executor_->set_observer(std::move(observer));
  executor_->start(sim_time_now());
  wake_.set(sim_time_now());
}

void ExecutorModule::complete(host::OperationId id, SimTime at, const host::DriveSplit& split) {
  executor_->complete(id, at, split);
  wake_.set(sim_time_now());
}

/// An exception ends the simulation; failure() keeps it.
void ExecutorModule::step() {
  try {
    advance();
  } catch (...) {
    failure_ = std::current_exception();
    stop_.request();
  }
}

void ExecutorModule::advance() {
  if (!done_) return;
  const SimTime now = sim_time_now();
  executor_->advance(now);
  if (executor_->finished()) return std::exchange(done_, nullptr)();
  const SimTime next = executor_->next_event();
  if (next < SimTime::max()) wake_.set(next);
}

}  // namespace csdsim::host

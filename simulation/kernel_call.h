// A way from the event loop back to the kernel.
#pragma once

#include <functional>
#include <utility>

#include "simulation/event_loop.h"

namespace csdsim {

/// For models whose loop runs ahead: calls `action` at the time of the request, when the kernel has reached it. The
/// action may notify events and stop the simulation; processes that it makes runnable run at that time.
class KernelCall {
 public:
  explicit KernelCall(std::function<void()> action) : action_(std::move(action)) {}

  void request() {
    hold_.engage();
    due_.set(sim_time_now());
  }

 private:
  std::function<void()> action_;
  LoopHold hold_;
  Alarm due_{AlarmRank::kernel, [this] {
               action_();
               hold_.release();
             }};
};

}  // namespace csdsim

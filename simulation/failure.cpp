#include "simulation/failure.h"

#include <systemc>

#include "simulation/event_loop.h"

namespace csdsim {

void run_kernel() {
  const auto loop = EventLoop::of_current_context();
  try {
    sc_core::sc_start();
  } catch (...) {
    loop->rethrow_failure();
    throw;
  }
}

}  // namespace csdsim

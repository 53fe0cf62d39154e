// Runs a simulation and passes on the exceptions of its processes unchanged.
#pragma once

namespace csdsim {

/// Calls sc_start() until no event is left. The kernel replaces an exception of a process by a report of its own
/// (E549); if the exception came through the event loop of the context, or EventLoop::guarded(), this function throws
/// the original.
void run_kernel();

}  // namespace csdsim

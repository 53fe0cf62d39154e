// What a process of the simulation throws, brought out as it was.
#pragma once

namespace csdsim {

/// sc_start() until nothing is left to happen. The kernel turns what a process throws into a report of its own (E549);
/// where that came through the event loop of the context, or EventLoop::guarded(), this throws it as it was.
void run_kernel();

}  // namespace csdsim

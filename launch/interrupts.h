// What Ctrl-C and SIGTERM do to a command that has work under way.
#pragma once

#include <string>

namespace csdsim::launch {

/// From now on SIGINT and SIGTERM are noted and do not end this process; a second one does.
void note_interrupts();
/// The signal that was noted; 0: none.
int interrupt();
/// Ends this process as the noted signal would have.
[[noreturn]] void end_by_interrupt();

/// From now on SIGINT and SIGTERM write `said` to stderr and end this process. Copies of it say nothing.
void tell_interrupts(const std::string& said);
/// In a copy of this process: signals do what they do by default.
void forget_interrupts();

}  // namespace csdsim::launch

// Handles Ctrl-C and SIGTERM while a command has work under way.
#pragma once

#include <string>

namespace csdsim::launch {

/// From now on SIGINT and SIGTERM are noted and do not end this process; a second one does.
void note_interrupts();
/// The signal that was noted; 0: none.
int interrupt();
/// Ends this process as the noted signal would have.
[[noreturn]] void end_by_interrupt();

/// From now on SIGINT and SIGTERM write `said` to stderr and end this process. A forked copy writes nothing.
void tell_interrupts(const std::string& said);
/// For a forked copy of this process: SIGINT and SIGTERM end it again.
void forget_interrupts();

}  // namespace csdsim::launch

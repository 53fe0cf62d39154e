#include "launch/interrupts.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace csdsim::launch {
namespace {

volatile sig_atomic_t noted = 0;
pid_t telling_process = 0;
std::string told;  // written before its handler is set

void set_handlers(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

void on_noted(int signal) { noted = signal; }

void on_told(int signal) {
  if (getpid() == telling_process && ::write(STDERR_FILENO, told.data(), told.size()) < 0) ::_exit(1);
  raise(signal);  // once this function has returned
}

}  // namespace

// Without SA_RESTART: a wait for a point returns when the signal comes.
void note_interrupts() { set_handlers(on_noted, static_cast<int>(SA_RESETHAND)); }

int interrupt() { return noted; }

void end_by_interrupt() {
  set_handlers(SIG_DFL, 0);
  raise(noted);
  std::abort();
}

void tell_interrupts(const std::string& said) {
  telling_process = getpid();
  told = said;
  set_handlers(on_told, static_cast<int>(SA_RESETHAND));
}

void forget_interrupts() { set_handlers(SIG_DFL, 0); }

}  // namespace csdsim::launch

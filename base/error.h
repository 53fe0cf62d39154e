// Errors. A UserError is the user's mistake (bad scenario, file or argument) and exits 2; anything else is ours.
#pragma once

#include <stdexcept>
#include <string>

namespace csdsim {

/// The user's mistake. The message says what, where (file:line:col or path), the value found and what would be right.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A broken invariant of ours. Never caused by input.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace csdsim

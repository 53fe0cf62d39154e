// The progress of a test of a policy, in memory that another process reads: a policy may crash, or never return.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ftl/conformance/case.h"

namespace csdsim::ftl::conformance {

/// Lies in memory that both processes share.
class Journal {
 public:
  void begin_case();
  /// A drive is switched on for the operations of the case.
  void begin_drive(const Setup& setup);
  void begin_operation(std::size_t operation, Operation::Kind kind);
  void end_case() { in_case_ = false; }
  /// A line of the history of the case; lines that no longer fit are lost.
  void note(std::string_view line);
  /// A function of the policy is called ("place"), or has returned (nullptr). Names are texts of the program.
  void call(const char* function) { call_ = function; }

  /// Operations begun, over all cases: shows that the test goes on.
  std::uint64_t operations() const { return operations_; }
  bool in_case() const { return in_case_; }
  /// The case under way: "case 3, operation 5 (append), in place()", the drive, and what has happened so far. For the
  /// process that has forked the test, after its end.
  std::string text() const;

 private:
  std::atomic<bool> in_case_ = false;
  std::atomic<std::uint64_t> cases_ = 0, operations_ = 0;
  std::atomic<const char*> call_ = nullptr;
  std::size_t operation_ = 0;  ///< in the case
  Operation::Kind kind_ = Operation::Kind::create;
  std::size_t length_ = 0;
  std::array<char, 1 << 16> lines_ = {};
};

}  // namespace csdsim::ftl::conformance

// A history of a block namespace whose power fails, and what must hold in it (docs/durability.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ftl/block/block_types.h"
#include "ftl/core/victim_index.h"

namespace csdsim::ftl::durability {

/// One step. Each number selects one of the things that exist when the step is taken (modulo how many there are). So a
/// list of steps stays valid when some of them are removed.
struct Step {
  enum class Kind : std::uint8_t {
    write,       ///< address, units, part of a unit (0: whole units)
    fua_write,   ///< likewise
    trim,        ///< address, units
    read,        ///< address, units
    flush,       ///< -
    complete,    ///< which of the operations that flash may complete next
    background,  ///< a piece of background collection or wear levelling: plane
    cut          ///< the fate of each operation that may be under way, a digit of base 3 each: not begun, torn, done
  };

  Kind kind = Kind::write;
  std::array<std::uint32_t, 3> n{};
  bool operator==(const Step&) const = default;
};
inline constexpr std::array<std::string_view, 8> kStepNames{"write", "write with FUA", "trim",       "read",
                                                            "flush", "complete",       "background", "cut"};

/// The drive that the steps run on.
struct Setup {
  FlashGeometry geometry{1, 1, 2, 8, 6, Bytes{16}};
  BlockFtlConfig config;
  VictimPolicy gc;
  bool capacitors = false;
  std::uint32_t spare_blocks = 0;        ///< spare blocks per plane
  std::uint32_t failures_per_mille = 0;  ///< failures per thousand programs, and per thousand erases
  std::uint64_t seed = 1;                ///< seed of the failures
  /// The first steps write every unit so many times, at random addresses, and wait for it.
  double filled = 0;
};
std::string to_string(const Setup& setup);

struct Case {
  Setup setup;
  std::vector<Step> steps;
};

/// How much was tried.
struct CutCoverage {
  std::uint64_t cuts = 0;
  std::uint64_t commands = 0;
  std::uint64_t completions = 0;
  std::uint64_t torn = 0;              ///< word lines
  std::uint64_t half_erased = 0;       ///< blocks
  std::uint64_t undone_erases = 0;     ///< planned, and not begun when the power failed
  std::uint64_t found = 0;             ///< pages
  std::uint64_t stale = 0;             ///< older or equal copies
  std::uint64_t trimmed = 0;           ///< copies that a trim hid
  std::uint64_t saved = 0;             ///< pages from the dump
  std::uint64_t map_pages = 0;         ///< translation pages that recoveries have written
  std::uint64_t cuts_in_recovery = 0;  ///< before all operations of a recovery had completed
  std::uint64_t older_versions = 0;    ///< units that came back older than the last one written
  std::uint64_t collected = 0;         ///< blocks
  std::uint64_t bad_blocks = 0;
  std::uint64_t read_only = 0;  ///< drives
  CutCoverage& operator+=(const CutCoverage& o);
};

struct Violation {
  std::string what;
  std::size_t step = 0;  ///< index in the case; its length: in the final phase without faults
};

struct CaseResult {
  std::optional<Violation> violation;
  std::vector<std::string> history;  ///< one line for each step that did something
  CutCoverage coverage;
  std::size_t ready = 0;  ///< operations that flash could complete next, after the last step
};

/// Runs the steps on a fresh drive. After each cut the drive recovers, and every unit has to hold a version that is not
/// older than its last durable one: whole, and its own. In the end everything has to go on without faults, unless
/// `only_steps`. Lines of the history are made only if `with_history`.
CaseResult run_case(const Case& c, bool with_history, bool only_steps = false);

}  // namespace csdsim::ftl::durability

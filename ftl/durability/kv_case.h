// A history of a KV namespace whose power fails, and what must hold in it (docs/durability.md).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ftl/durability/case.h"
#include "ftl/kv/kv_ftl_config.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl::durability {

/// One step. Each number selects one of the things that exist when the step is taken, modulo how many there are.
struct KvStep {
  enum class Kind : std::uint8_t {
    create,    ///< sequence, shape
    append,    ///< sequence, which number of tokens, layer and first head; creates the sequence if there is none
    free,      ///< sequence
    fork,      ///< parent, child
    pin,       ///< sequence: somebody reads it
    unpin,     ///< which of the pins
    complete,  ///< which of the operations that flash may complete next
    cut        ///< the fate of each operation that may be under way, a digit of base 3 each; weak capacitors also take
               ///< from it how many pages they do not save
  };

  Kind kind = Kind::append;
  std::array<std::uint32_t, 3> n{};
  bool operator==(const KvStep&) const = default;
};
inline constexpr std::array<std::string_view, 8> kKvStepNames{"create", "append", "free",     "fork",
                                                              "pin",    "unpin",  "complete", "cut"};

/// The drive that the steps run on.
struct KvSetup {
  FlashGeometry geometry{1, 1, 2, 8, 4, Bytes{64}};
  KvFtlConfig config;
  std::string policy;
  std::function<std::unique_ptr<KvMappingPolicy>(const FlashGeometry&)> make_policy;
  RowQuantisation format = {};           ///< format of about every second sequence, if it has few bits
  std::uint32_t sequences = 5;           ///< at most
  bool one_head = false;                 ///< every sequence has a layer and a head; otherwise a few
  bool weak_capacitors = false;          ///< do not save all pages
  std::uint32_t spare_blocks = 0;        ///< spare blocks per plane
  std::uint32_t failures_per_mille = 0;  ///< failures per thousand programs, and per thousand erases
  std::uint64_t seed = 1;                ///< seed of the rows and of the failures
};
std::string to_string(const KvSetup& setup);

struct KvCase {
  KvSetup setup;
  std::vector<KvStep> steps;
};

/// How much was tried.
struct KvCoverage {
  std::uint64_t cuts = 0;
  std::uint64_t commands = 0;
  std::uint64_t completions = 0;
  std::uint64_t torn = 0;              ///< pages
  std::uint64_t half_erased = 0;       ///< blocks
  std::uint64_t undone_erases = 0;     ///< planned, and not begun when the power failed
  std::uint64_t found = 0;             ///< pages
  std::uint64_t stale = 0;             ///< pages of no sequence, or older copies
  std::uint64_t saved = 0;             ///< pages from the dump
  std::uint64_t rebuilt = 0;           ///< embedding pages that were transposed again
  std::uint64_t evacuated = 0;         ///< pages that were moved into DRAM
  std::uint64_t parked = 0;            ///< pages in DRAM after a recovery
  std::uint64_t partial_windows = 0;   ///< found again
  std::uint64_t windows = 0;           ///< component-major, that were compared
  std::uint64_t few_bits = 0;          ///< compared windows of sequences whose rows have few bits
  std::uint64_t cuts_in_recovery = 0;  ///< before all operations of a recovery had completed
  std::uint64_t lost_sequences = 0;    ///< that weak capacitors have lost
  std::uint64_t forks = 0;
  std::uint64_t refused = 0;    ///< commands for which there was no room
  std::uint64_t collected = 0;  ///< blocks
  std::uint64_t bad_blocks = 0;
  KvCoverage& operator+=(const KvCoverage& o);
};

struct KvCaseResult {
  std::optional<Violation> violation;
  std::vector<std::string> history;  ///< one line for each step that did something
  KvCoverage coverage;
  std::size_t ready = 0;    ///< operations that flash could complete next, after the last step
  std::uint64_t state = 0;  ///< equal for steps that differ in the order of completions between commands only
};

/// Runs the steps on a fresh drive. After each cut the drive recovers, and every sequence that was acknowledged has to
/// be there: its rows, its component-major pages and its mean of V, equal in every bit. Sequences that weak capacitors
/// lose have to be reported. In the end everything completes, all is compared and freed, and nothing may be left,
/// unless `only_steps`.
KvCaseResult run_case(const KvCase& c, bool with_history, bool only_steps = false);

}  // namespace csdsim::ftl::durability

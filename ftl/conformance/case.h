// A case of the conformance suite for mapping policies, and the properties that hold. See docs/mapping_policies.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "ftl/kv/kv_ftl.h"

namespace csdsim::ftl::conformance {

/// One step in the life of a drive. The numbers choose among the things that exist when the step is taken (modulo their
/// number), so that a list of operations stays valid if some of them are removed.
struct Operation {
  enum class Kind : std::uint8_t {
    append,          ///< tokens to some heads of a layer: sequence, layer, head, tokens
    advance,         ///< tokens to all heads of all layers, which end with equally many: sequence, -, -, tokens
    create,          ///< a sequence: number, layers and heads, head dimension, longest expected length
    complete_job,    ///< a flush, or a move of garbage collection: which
    complete_erase,  ///< which
    attend,          ///< plans the pages of some tokens: sequence, layer, head, token
    pin,             ///< sequence
    unpin,           ///< which pin
    fork,            ///< parent, number of the child
    free,            ///< sequence
    power_loss       ///< how far the operations under way have come
  };

  Kind kind = Kind::append;
  std::array<std::uint32_t, 4> n{};
  bool operator==(const Operation&) const = default;
};

/// The drive that the operations run on.
struct Setup {
  FlashGeometry geometry;
  KvFtlConfig config;
  Bytes dram;
  std::uint32_t spare_blocks = 0;        ///< spare blocks per plane
  std::uint32_t failures_per_mille = 0;  ///< failures per thousand programs, and per thousand erases
  std::uint64_t seed = 1;                ///< seed of the data and of the failures
};
std::string to_string(const Setup& setup);

struct Case {
  Setup setup;
  std::vector<Operation> operations;
};

/// What must hold, for every policy.
enum class Property : std::uint8_t {
  interface,
  layout,
  bijection,
  data,
  planning,
  tables,
  dram,
  flash,
  space,
  progress,
  power_loss,
  determinism
};
inline constexpr std::size_t kProperties = 12;
inline constexpr std::array<std::string_view, kProperties> kPropertyNames{
    "interface", "layout", "bijection", "data",     "planning",   "tables",
    "dram",      "flash",  "space",     "progress", "power_loss", "determinism"};
/// One sentence that describes a property.
inline constexpr std::array<std::string_view, kProperties> kPropertyMeaning{
    "every answer of the policy is within the interface, and nothing throws",
    "token groups fit into their pages, windows are whole groups, the size of a page is known by its kind",
    "a valid page belongs to one place of one context, and every place that is written has a valid page",
    "K, V, embedding pages and the mean of V hold the bytes that were appended, in flash and in tails",
    "an attend reads the pages of the wanted rows, each once, and is charged lookups where it reads pages",
    "the tables grow with the pages, by 16 bytes a page at most",
    "controller DRAM is accounted to the byte, never exceeds its capacity and ends at 0",
    "pages are programmed once after an erase, and read after they were programmed",
    "freed pages come back: with the last sequence gone every block is free, or open and without valid pages; pages of "
    "an append point share blocks",
    "waiting ends: an append that must wait is decided once everything under way has completed",
    "a power loss at any moment loses no page: both maps come back from the flash",
    "the same operations give the same addresses"};

/// A property that does not hold.
struct Violation {
  Property property = Property::interface;
  std::string what;           ///< names the page and the address where there are any
  std::size_t operation = 0;  ///< index in the case; its length: in the final checks
};

class Journal;

using PolicyMaker = std::function<std::unique_ptr<KvMappingPolicy>(const FlashGeometry&)>;

/// How much a case has tried: a policy that refuses everything breaks no property.
struct Coverage {
  std::uint64_t operations = 0;
  std::uint64_t sequences = 0;
  std::uint64_t forks = 0;
  std::uint64_t pages = 0;  ///< programmed for appends
  std::uint64_t token_pages =
      0;  ///< how many of these are full groups of tokens, which groups_to_write() has asked for
  std::uint64_t windows = 0;
  std::uint64_t moved_pages = 0;  ///< by garbage collection
  std::uint64_t program_failures = 0;
  std::uint64_t power_losses = 0;
  std::uint64_t checks = 0;  ///< conditions checked
  Coverage& operator+=(const Coverage& o);
};

struct CaseOptions {
  /// Properties that are checked; the others are ignored.
  std::array<bool, kProperties> judged = [] {
    std::array<bool, kProperties> all{};
    all.fill(true);
    return all;
  }();
  /// Fault injection: called before every operation and before the final checks.
  std::function<void(KvFtl&, BlockManager&, std::size_t operation)> interfere;
  Journal* journal = nullptr;  ///< is told what is done, if there is one
};

struct CaseResult {
  std::optional<Violation> violation;  ///< the first one
  std::vector<std::string>
      history;  ///< what the operations did, one line each, without operations that found nothing to do
  Coverage coverage;
};

/// Runs the operations on a fresh drive that carries data, compares it with plain arrays all the time, frees
/// everything, and runs the operations once more to compare the addresses. Never throws because of a policy.
CaseResult run_case(const PolicyMaker& policy, const Case& c, const CaseOptions& options = {});

}  // namespace csdsim::ftl::conformance

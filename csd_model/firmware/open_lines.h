// Word lines that are being filled: they are in controller DRAM, and nothing says when they will be programmed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/callback.h"
#include "base/slot_pool.h"
#include "base/units.h"

namespace csdsim::csd_model {

/// Parts of writes, of the same size, that are in the write buffer. They came one after the other, and leave it when
/// their word line is programmed.
struct BufferedParts {
  Bytes size;               ///< size of each part
  std::uint64_t group = 0;  ///< group of the write buffer
  std::uint32_t count = 0;
};

/// The lines of a PlanRunner by their numbers, and who waits for each.
class OpenLines {
 public:
  using Done = Callback<void()>;
  /// A callback, or parts where it is empty.
  struct Waiter {
    Waiter(Done callback) : done(std::move(callback)) {}
    Waiter(const BufferedParts& buffered) : parts(buffered) {}
    Done done;
    BufferedParts parts;
  };

  bool contains(std::uint64_t line) const { return lines_.contains(line); }
  /// Units are written to the word line. True if it was not open.
  bool begin(std::uint64_t line) { return lines_.try_emplace(line).second; }
  /// Likewise; `waiter` waits for them, as wait() says.
  bool begin(std::uint64_t line, Waiter waiter);
  /// Removes a word line that is full, and appends those who wait for it to `waiting`. False if the line was not open.
  bool close(std::uint64_t line, std::vector<Waiter>& waiting);

  /// Calls back when this word line, which is open, has been closed and what close() returned is called.
  void wait(std::uint64_t line, Done done) { lines_.at(line).push_back(std::move(done)); }
  /// The same for several word lines (those of `lines` that are open) and a plan's own operations. Returns what the end
  /// of these has to call.
  Done wait(std::span<const std::uint64_t> lines, Done done);

  /// Lets go of all word lines that somebody waits for, until they are programmed. Returns who waits, to be called.
  std::vector<Waiter> let_go();
  void programmed(std::uint64_t line) { let_go_.erase(line); }

  /// In ascending order.
  std::vector<std::uint64_t> open() const;
  std::vector<std::uint64_t> lines_let_go() const;

  /// The power has failed: no word line is open, and nobody waits.
  void forget() { *this = {}; }

 private:
  struct Waiting {
    std::size_t left = 0;
    Done done;
  };
  Done part_of(std::uint32_t waiting);

  std::unordered_map<std::uint64_t, std::vector<Waiter>> lines_;  ///< and who waits for each
  std::unordered_set<std::uint64_t> let_go_;
  SlotPool<Waiting> waiting_;
};

}  // namespace csdsim::csd_model

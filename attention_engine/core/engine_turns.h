// Flash and engine in turns, for engines that do not work while pages are read.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention_engine/core/head_job.h"
#include "contracts/read_plan.h"

namespace csdsim::engine {

/// While a page read is outstanding (flash's turn), work for a kernel or the argtopk unit waits. Once none is, the work
/// that has waited starts (the engine's turn), and page reads wait until all work is done, also the work that follows
/// from it directly; then they go to flash together. Reads that are asked for in flash's turn join it.
///
/// Free of deadlock: a turn ends, because flash answers each read and a unit ends each work, and what waits starts
/// then. With `overlap` nothing ever waits.
class EngineTurns {
 public:
  /// A job has something for its unit: the kernel, or the argtopk unit, which takes in `argtopk_elements`.
  struct Work {
    JobId job;
    std::uint64_t argtopk_elements = 0;  ///< 0: the next piece of its phase, for a kernel
  };
  struct Read {
    PageRead read;
    std::vector<PageOp> ops;
    std::uint64_t lookups = 0;
  };

  explicit EngineTurns(bool overlap) : overlap_(overlap) {}

  /// Nothing ever waits.
  bool overlap() const { return overlap_; }

  /// True if work may start now; otherwise it waits, and end_read() returns it.
  bool start_work(const Work& work) {
    if (overlap_) return true;
    if (reading_ > 0) {
      waiting_work_.push_back(work);
      return false;
    }
    ++working_;
    return true;
  }
  /// Work has ended, and all that follows from it has been announced. Returns the reads that start now.
  std::vector<Read> end_work() {
    if (overlap_ || --working_ > 0) return {};
    reading_ = waiting_reads_.size();
    return std::exchange(waiting_reads_, {});
  }

  /// True if this read may start now; otherwise it waits, and end_work() returns it.
  bool start_read(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups) {
    if (overlap_) return true;
    if (working_ > 0) {
      waiting_reads_.push_back({read, {ops.begin(), ops.end()}, lookups});
      return false;
    }
    ++reading_;
    return true;
  }
  /// The pages of a read have arrived. Returns the work that may start now: announce it again.
  std::vector<Work> end_read() {
    if (overlap_ || --reading_ > 0) return {};
    return std::exchange(waiting_work_, {});
  }

 private:
  bool overlap_;
  std::uint64_t reading_ = 0;  ///< reads that are outstanding
  std::uint64_t working_ = 0;  ///< work that is waiting for its unit or on it
  std::vector<Read> waiting_reads_;
  std::vector<Work> waiting_work_;
};

}  // namespace csdsim::engine

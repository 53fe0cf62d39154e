// The kernels take in the pages of a phase; limits of page reads in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "attention_engine/core/engine_config.h"
#include "attention_engine/core/head_job.h"
#include "base/address.h"
#include "base/ring_queue.h"
#include "contracts/read_plan.h"

namespace csdsim::engine {

/// Work on a phase, in pieces: a kernel takes one piece after the other, in the order of their numbers or of their
/// arrival, each once its pages have arrived. The cycles of the phase are spread evenly over the pieces.
class PhaseIntake {
 public:
  void start(std::size_t pieces, std::uint64_t cycles, bool by_arrival) {
    arrived_.assign(pieces, 0);
    by_arrival_ = by_arrival;
    missing_ = pieces;
    next_ = 0;
    working_ = false;
    share_ = cycles / pieces;
    rest_ = cycles % pieces;
    carried_ = 0;
  }
  /// True if the pages of this piece have not arrived yet.
  bool awaits(std::size_t piece) const { return piece < arrived_.size() && arrived_[piece] == 0; }
  void arrive(std::size_t piece) {
    arrived_[piece] = 1;
    --missing_;
    if (by_arrival_) waiting_.push_back(piece);
  }
  bool complete() const { return missing_ == 0; }

  bool ready() const {
    return !working_ && next_ < arrived_.size() && (by_arrival_ ? !waiting_.empty() : arrived_[next_] != 0);
  }
  /// Cycles of the piece that a kernel begins with now. Precondition: ready().
  std::uint64_t begin() {
    working_ = true;
    piece_ = next_;
    if (by_arrival_) {
      piece_ = waiting_.front();
      waiting_.pop_front();
    }
    // The i-th piece takes floor(cycles (i + 1) / pieces) - floor(cycles i / pieces).
    carried_ += rest_;
    if (carried_ < arrived_.size()) return share_;
    carried_ -= arrived_.size();
    return share_ + 1;
  }
  /// The kernel has finished that piece. Returns its number.
  std::size_t end() {
    working_ = false;
    ++next_;
    return piece_;
  }
  bool over() const { return next_ == arrived_.size(); }

 private:
  std::vector<std::uint8_t> arrived_;  ///< by piece: 1 once its pages have arrived
  RingQueue<std::size_t> waiting_;     ///< that have arrived and no kernel has taken, if by arrival
  bool by_arrival_ = false;
  std::size_t missing_ = 0;
  std::size_t next_ = 0;   ///< pieces that are done
  std::size_t piece_ = 0;  ///< that a kernel works on
  bool working_ = false;
  std::uint64_t share_ = 0;    ///< cycles of a piece, rounded down
  std::uint64_t rest_ = 0;     ///< cycles that are left over `share_` of each piece: as many pieces take one more
  std::uint64_t carried_ = 0;  ///< sum of the rests of the pieces so far, below one cycle per piece
};

/// `pages` pages cost `lookups` together. Returns the share of pages first to end - 1 when pages are read one by one:
/// even shares, rounded up for the first pages, so that the shares of all pages add up to `lookups`.
inline std::uint64_t lookups_of_pages(std::uint64_t lookups, std::size_t pages, std::size_t first, std::size_t end) {
  const auto before = [&](std::size_t page) { return (lookups * page + pages - 1) / pages; };
  return before(end) - before(first);
}
inline std::uint64_t lookups_of_page(const ReadPlan& plan, std::size_t i) {
  if (plan.lookups == plan.size()) return 1;
  return lookups_of_pages(plan.lookups, plan.size(), i, i + 1);
}

/// Issues page reads as the page buffers of their channels come free: each holds one from when it is issued until a
/// kernel has consumed the page. Reads of a channel are issued in the order of want() calls. A phase wants all its
/// pages at once, and they are consumed in that order: the oldest page that was wanted and not consumed always has a
/// buffer, so there is no deadlock.
class PageIssue {
 public:
  PageIssue(std::uint32_t buffers, const FlashGeometry& geometry, std::uint32_t jobs)
      : buffers_(buffers), geometry_(geometry), channels_(geometry.channels), pages_of_(jobs) {}

  /// Most buffers of one channel that were in use at a time.
  std::uint32_t peak() const { return peak_; }

  /// The pages of a phase, of which none is in flight. Calls `issue(PageRead, PageOp, lookups)` for each page that gets
  /// a buffer.
  template <class Issue>
  void want(JobId job, const ReadPlan& plan, SimTime now, Issue&& issue) {
    pages_of_[job.value].clear();
    for (std::uint32_t i = 0; i < plan.size(); ++i) {
      const ChannelId channel = geometry_.channel_of(geometry_.plane_of(plan.ops[i].ppa));
      pages_of_[job.value].push_back(channel);
      channels_[channel.value].waiting.push_back({{job, i}, plan.ops[i], lookups_of_page(plan, i), now});
      issue_from(
          channels_[channel.value], [](SimTime) {}, issue);
    }
  }
  /// The buffer of an issued page is free. Adds the time that the pages which are issued now have waited to `waited`.
  template <class Issue>
  void consumed(PageRead read, SimTime now, DurationSum& waited, Issue&& issue) {
    Channel& channel = channels_[pages_of_[read.job.value][read.piece].value];
    --channel.held;
    issue_from(
        channel, [&](SimTime wanted) { waited += now - wanted; }, issue);
  }
  /// Pages that wait have been wanted so much later.
  void postpone(SimTime by) {
    for (Channel& channel : channels_)
      for (Page& page : channel.waiting) page.wanted += by;
  }

 private:
  struct Page {
    PageRead read;
    PageOp op;
    std::uint64_t lookups;
    SimTime wanted;
  };
  struct Channel {
    std::uint32_t held = 0;
    std::deque<Page> waiting;
  };

  template <class Waited, class Issue>
  void issue_from(Channel& channel, Waited&& waited, Issue&& issue) {
    while (channel.held < buffers_ && !channel.waiting.empty()) {
      const Page page = channel.waiting.front();
      channel.waiting.pop_front();
      waited(page.wanted);
      peak_ = std::max(peak_, ++channel.held);
      issue(page.read, page.op, page.lookups);
    }
  }

  std::uint32_t buffers_;
  FlashGeometry geometry_;
  std::vector<Channel> channels_;                 ///< [ChannelId]
  std::vector<std::vector<ChannelId>> pages_of_;  ///< by JobId: of the pages of its phase
  std::uint32_t peak_ = 0;
};

}  // namespace csdsim::engine

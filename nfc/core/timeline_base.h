// Base of all timelines of a flash: batches, the order of steps over the channels, and the contract of run.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/error.h"
#include "base/fixed_divisor.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "nfc/core/earliest_time.h"
#include "nfc/core/flash_batches.h"
#include "nfc/core/flash_observers.h"
#include "nfc/core/flash_statistics.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/page_buffers.h"

namespace csdsim::nfc {

/// Which operations a drive accepts: a page inside the geometry, and for a read 1 .. page_size bytes on the channel (a
/// page of which nothing is wanted is not read at all), for a program as many of its word line. Bytes of an erase are
/// ignored.
constexpr bool accepts(const FlashGeometry& geometry, std::uint32_t word_line_pages, const PageOp& op) {
  const std::uint64_t most = geometry.page_size.value * (op.kind == PageOpKind::program ? word_line_pages : 1);
  return geometry.contains(op.ppa) &&
         (op.kind == PageOpKind::erase || (op.channel_bytes >= 1 && op.channel_bytes <= most));
}

/// State that does not depend on the rules. Channels share only the batches: each channel has the time of its next
/// step. Steps are made in time order; at equal times, in the order of channels.
class TimelineBase {
 public:
  TimelineBase(const FlashGeometry& geometry, const FlashTiming& timing)
      : geometry_(checked(geometry)),
        timing_(checked(timing)),
        pages_(geometry.pages()),
        pages_per_plane_(geometry.pages_per_plane()),
        page_bus_time_(transfer_time(Bytes{bus_bytes(timing, static_cast<std::uint32_t>(geometry.page_size.value))},
                                     timing.channel_bandwidth)),
        steps_(geometry.channels),
        buffers_(timing.buffer_limit(), geometry.channels),
        statistics_(geometry) {}

  void take_completions(SimTime now, std::vector<FlashCompletion>& out) {
    const std::size_t before = out.size();
    statistics_.unfinished.pass(now);
    batches_.take(now, out);
    if (!buffers_.limited()) return;
    for (std::size_t i = before; i < out.size(); ++i) buffers_.complete(out[i].ticket, now);
  }
  SimTime next_completion() const { return batches_.next_completion(); }
  SimTime next_part() const { return batches_.next_part(); }
  template <class Take>
  SimTime take_parts(SimTime bound, Take&& take) {
    return batches_.take_parts(bound, std::forward<Take>(take));
  }
  FlashTicket next_ticket() const { return batches_.next_ticket(); }
  SimTime next_step() const { return steps_.min(); }
  SimTime front() const { return front_; }
  SimTime lookahead() const { return lookahead_; }
  std::uint64_t waiting_ops() const { return next_sequence_ - statistics_.total_ops(); }
  const FlashGeometry& geometry() const { return geometry_; }
  const FlashTiming& timing() const { return timing_; }
  const FlashStatistics& statistics() const { return statistics_; }
  /// The observers must outlive the timeline.
  void observe(const FlashObservers& observers) {
    observers_ = observers;
    buffers_.observe(observers.buffers);
    observed_ = observers.channels != nullptr || observers.filters != nullptr || observers.planes != nullptr;
  }
  /// It must outlive the timeline; null: nobody is told.
  void observe_changes(ChangeObserver* observer) { changes_ = observer; }

  /// What outlives a loss of power.
  struct History {
    FlashStatistics statistics;
    FlashObservers observers;
    ChangeObserver* changes = nullptr;
  };
  History history() const { return {statistics_, observers_, changes_}; }
  /// Goes on with the history of another timeline of the same flash, whose operations have been given up at `now`.
  /// Nothing has been submitted yet.
  void go_on(const History& history, SimTime now) {
    statistics_ = history.statistics;
    statistics_.give_up(now);
    next_sequence_ = statistics_.total_ops();
    front_ = now;
    observe(history.observers);
    changes_ = history.changes;
  }

 protected:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// Accepts a batch; `lookahead_` follows the shortest read in flight.
  void check_batch(std::span<const PageOp> ops) {
    if (ops.empty()) throw InternalError("a flash batch needs at least one page operation");
    // Nearly all operations move a whole page, and shorten nothing.
    const std::uint64_t page = geometry_.page_size.value;
    const auto whole = [&](const PageOp& op) { return op.ppa.value < pages_ && op.channel_bytes == page; };
    if (least_read_bytes_ != page || !std::ranges::all_of(ops, whole)) check_parts(ops);
  }

  /// Called once, with the lower bound of the time to completion for programs and erases.
  void init_lookahead(SimTime others) {
    others_lookahead_ = others;
    set_least_read(static_cast<std::uint32_t>(geometry_.page_size.value));
  }

  /// Makes all steps before min(horizon, earliest completion): `advance(channel, bound)` makes those of a channel and
  /// returns the time of its next one. A decision at t completes nothing before t + lookahead(), so within that window
  /// the channels need not wait for each other.
  template <class Advance>
  SimTime run_steps(SimTime horizon, Advance&& advance) {
    for (;;) {
      const SimTime first = steps_.min();
      const SimTime bound = std::min(horizon, next_completion());
      if (first >= bound) {
        passed_ = std::max(passed_, bound);
        return next_completion();
      }
      const SimTime window = std::min(bound, first + lookahead_);
      steps_.advance(window, [&](std::size_t channel) { return advance(channel, window); });
    }
  }

  std::uint32_t plane_of(PhysicalPageAddress ppa) const {
    return static_cast<std::uint32_t>(pages_per_plane_.quotient(ppa.value));
  }
  SimTime bus_time(std::uint32_t bytes) const {
    if (bytes == geometry_.page_size.value) return page_bus_time_;
    if (bytes != last_bytes_) {
      last_bytes_ = bytes;
      last_bus_time_ = transfer_time(Bytes{bus_bytes(timing_, bytes)}, timing_.channel_bandwidth);
    }
    return last_bus_time_;
  }

  SimTime decoding_time(std::uint32_t bytes) const {
    return transfer_time(Bytes{bus_bytes(timing_, bytes)}, *timing_.ecc_bandwidth);
  }

  /// Tells the observers of the bus of an operation: its command, its data of `bytes` of a page, and its data in the
  /// filter. Nearly all runs have none, so that asking for them must cost one comparison.
  void tell_command(std::uint32_t channel, OpClass op_class, PageOpKind kind, SimTime start) const {
    if (observed_) [[unlikely]]
      report_command(channel, op_class, kind, start);
  }
  void tell_data(std::uint32_t channel, OpClass op_class, PageOpKind kind, std::uint32_t bytes, SimTime start,
                 SimTime end) const {
    if (observed_) [[unlikely]]
      report_data(channel, op_class, kind, bus_bytes(timing_, bytes), start, end);
  }
  void tell_array(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime start, SimTime end) const {
    if (observed_) [[unlikely]]
      report_array(plane, op_class, kind, start, end);
  }

  FlashGeometry geometry_;
  FlashTiming timing_;
  std::uint64_t pages_;
  FixedDivisor pages_per_plane_;
  SimTime page_bus_time_;
  mutable std::uint32_t last_bytes_ = 0;  ///< size of a part of a page, whose time takes a slow division
  mutable SimTime last_bus_time_;
  TwoLevelMin steps_;  ///< next step of each channel
  FlashBatches batches_;
  PageBuffers buffers_;
  std::uint64_t next_sequence_ = 0;
  SimTime front_;
  SimTime passed_;  ///< all steps before it have been made
  FlashStatistics statistics_;
  FlashObservers observers_;
  ChangeObserver* changes_ = nullptr;
  bool observed_ = false;  ///< any of those that are told of work

 private:
  void report_command(std::uint32_t channel, OpClass op_class, PageOpKind kind, SimTime start) const;
  void report_data(std::uint32_t channel, OpClass op_class, PageOpKind kind, std::uint32_t bytes, SimTime start,
                   SimTime end) const;
  void report_array(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime start, SimTime end) const;
  [[noreturn]] void refuse(const PageOp& op) const {
    throw InternalError(fmt::format("page {} with {} B on the channel is outside a flash of {} pages of {} B",
                                    op.ppa.value, op.channel_bytes, geometry_.pages(), geometry_.page_size.value));
  }
  /// check_batch() of operations that may move less than a page.
  [[gnu::noinline]] void check_parts(std::span<const PageOp> ops) {
    auto least = waiting_ops() == 0 ? static_cast<std::uint32_t>(geometry_.page_size.value) : least_read_bytes_;
    for (const PageOp& op : ops) {
      const bool whole = op.ppa.value < pages_ && op.channel_bytes == geometry_.page_size.value;
      if (!whole && !accepts(geometry_, timing_.word_line_pages, op)) refuse(op);
      if (op.kind == PageOpKind::read) least = std::min(least, op.channel_bytes);
    }
    if (least != least_read_bytes_) set_least_read(least);
  }
  void set_least_read(std::uint32_t bytes) {
    least_read_bytes_ = bytes;
    const SimTime decoding = timing_.ecc_bandwidth ? decoding_time(bytes) : SimTime{};
    lookahead_ = std::min(others_lookahead_, timing_.data_out_setup + bus_time(bytes) + decoding + timing_.ecc_latency);
  }

  std::uint32_t least_read_bytes_ = 0;  ///< lower bound of the bytes of a read in flight
  SimTime others_lookahead_{};
  SimTime lookahead_{};

  static const FlashGeometry& checked(const FlashGeometry& geometry) {
    validate(geometry);
    return geometry;
  }
  static const FlashTiming& checked(const FlashTiming& timing) {
    validate(timing);
    return timing;
  }
};

/// Index of a stage in FlashStages.
constexpr std::size_t at(FlashStage stage) { return static_cast<std::size_t>(stage); }

}  // namespace csdsim::nfc

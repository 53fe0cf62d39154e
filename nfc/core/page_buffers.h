// The page buffers of the flash controllers where they are limited: which are in use, and who gives them back when.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/nearly_sorted_queue.h"
#include "base/ring_queue.h"
#include "base/units.h"
#include "base/work_observer.h"
#include "contracts/page_op.h"

namespace csdsim::nfc {

/// A data-out takes a buffer of its channel until its page is decoded or, if its batch holds and no further attempt
/// follows, until the batch is released. Changes have times, and count once pass() has gone by them: so a decision that
/// is made late sees the buffers of its own time.
class PageBuffers {
 public:
  /// `per_channel` 0: unlimited. Then nothing may be called but limited(), open() and complete().
  PageBuffers(std::uint32_t per_channel, std::uint32_t channels)
      : per_channel_(per_channel), channels_(per_channel == 0 ? 0 : channels) {}

  bool limited() const { return per_channel_ > 0; }

  /// Every batch, in the order of tickets.
  void open(bool holds, std::size_t pages) {
    if (!limited()) return;
    Batch& batch = batches_.extend();
    batch.channels.clear();
    batch.single = pages == 1;
    batch.taken = false;
    batch.state = holds ? State::reading : State::over;
    if (!holds) drop();
  }
  /// A data-out of the batch begins on `channel` at `now`; its page is decoded at `decoded`. `last`: no further attempt
  /// follows, so that a batch that holds keeps the buffer from then on. Returns whether it has found no free buffer.
  bool take(std::uint32_t channel, FlashTicket ticket, bool last, SimTime now, SimTime decoded) {
    Channel& c = channels_[channel];
    const bool overflow = c.used >= per_channel_;
    ++c.used;
    ++c.coming;
    tell(channel, now);
    if (!last || !reads_to_hold(ticket)) {
      change(c, {decoded, 0, -1, -1});
      return overflow;
    }
    Batch& batch = batches_[ticket.value - first_];
    batch.channel = channel;
    batch.taken = true;
    if (batch.single) return overflow;  // it waits for no other page: its batch is complete when it is decoded
    batch.channels.push_back(channel);
    change(c, {decoded, 0, 0, -1});
    return overflow;
  }
  /// The completion of the batch has been taken.
  void complete(FlashTicket ticket, SimTime now) {
    if (!limited() || !reads_to_hold(ticket)) return;
    Batch& batch = batches_[ticket.value - first_];
    batch.state = State::complete;
    for (const std::uint32_t channel : batch.channels) change(channels_[channel], {now, 0, 0, 1});
  }
  /// Frees the buffers of a complete batch; calls `freed(channel)` for each of its pages. Throws InternalError for a
  /// batch that holds none.
  template <class Freed>
  void release(FlashTicket ticket, SimTime at, Freed&& freed) {
    const bool known = ticket.value >= first_ && ticket.value - first_ < batches_.size();
    if (!known || batches_[ticket.value - first_].state != State::complete)
      throw InternalError(fmt::format("flash batch {} holds no page buffers or is not complete", ticket.value));
    Batch& batch = batches_[ticket.value - first_];
    const auto give_back = [&](std::uint32_t channel) {
      change(channels_[channel], {at, 0, -1, -1});
      freed(channel);
    };
    if (batch.single && batch.taken)
      give_back(batch.channel);
    else
      for (const std::uint32_t channel : batch.channels) give_back(channel);
    batch.state = State::over;
    drop();
  }

  /// Makes the changes up to `now`.
  void pass(std::uint32_t channel, SimTime now) {
    Channel& c = channels_[channel];
    for (; !c.changes.empty() && c.changes.front().at <= now; c.changes.pop()) {
      const Change& next = c.changes.front();
      c.used += next.used;
      c.coming += next.coming;
      if (next.used != 0) tell(channel, next.at);
    }
  }
  SimTime next_change(std::uint32_t channel) const { return channels_[channel].changes.front_time(); }
  /// True if a data-out may begin: a buffer is free, or none would ever come free by itself.
  bool available(std::uint32_t channel) const {
    const Channel& c = channels_[channel];
    return c.used < per_channel_ || c.coming == 0;
  }

  /// The number of buffers in use by channel; it must outlive the buffers.
  void observe(WorkObserver* observer) { observer_ = observer; }

 private:
  enum class State : std::uint8_t { reading, complete, over };
  struct Batch {
    State state = State::over;
    bool single = false;                  ///< a batch of one page
    bool taken = false;                   ///< it holds a buffer
    std::uint32_t channel = 0;            ///< channel of the page that it holds, where it is the only one
    std::vector<std::uint32_t> channels;  ///< channels of the pages that it holds, where there are several
  };
  struct Change {
    SimTime at;
    std::uint64_t order;
    std::int32_t used, coming;
    constexpr bool before(const Change& o) const { return at != o.at ? at < o.at : order < o.order; }
  };
  struct Channel {
    std::int64_t used = 0;
    std::int64_t coming = 0;  ///< pages of these in transfer, being decoded, or held by batches that are complete
    std::uint64_t changes_made = 0;
    NearlySortedQueue<Change> changes;
  };

  /// True if the batch holds and is not complete.
  bool reads_to_hold(FlashTicket ticket) {
    return ticket.value >= first_ && batches_[ticket.value - first_].state == State::reading;
  }
  static void change(Channel& channel, Change change) {
    change.order = channel.changes_made++;
    channel.changes.insert(change);
  }
  void drop() {
    for (; !batches_.empty() && batches_.front().state == State::over; batches_.pop_front()) ++first_;
  }
  void tell(std::uint32_t channel, SimTime now) const {
    if (observer_ != nullptr) observer_->level(channel, static_cast<std::uint64_t>(channels_[channel].used), now);
  }

  std::int64_t per_channel_;
  std::vector<Channel> channels_;
  RingQueue<Batch> batches_;  ///< by ticket, from first_ on
  std::uint64_t first_ = 0;
  WorkObserver* observer_ = nullptr;
};

}  // namespace csdsim::nfc

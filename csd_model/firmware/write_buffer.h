// The write buffer that blocks and the KV cache share: data that was acknowledged before it is in flash.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "base/callback.h"
#include "base/ring_queue.h"
#include "base/units.h"
#include "base/work_observer.h"

namespace csdsim::csd_model {

/// When buffered writes of blocks go to flash.
enum class FlushPolicy : std::uint8_t {
  immediate,  ///< as soon as they are in the buffer
  threshold,  ///< together, when the buffer is filled to a share of its capacity
  idle        ///< together, when no block command has come for some time
};

struct FlushConfig {
  FlushPolicy policy = FlushPolicy::immediate;
  Bytes threshold{};    ///< for FlushPolicy::threshold
  SimTime idle_time{};  ///< for FlushPolicy::idle
};

/// Counts bytes and holds no data. Pages of the KV cache enter whether they fit or not, because their tokens are in
/// controller DRAM anyway; only those that fit are acknowledged.
class WriteBuffer {
 public:
  using Then = Callback<void()>;

  explicit WriteBuffer(Bytes capacity) : capacity_(capacity) { groups_.push_back(0); }

  Bytes capacity() const { return capacity_; }
  /// There is room for `size` bytes, and nobody waits for room.
  bool fits(Bytes size) const { return asking_.empty() && used_ + size <= capacity_; }
  Bytes used() const { return used_; }

  /// Is told the bytes in use; it must outlive the buffer.
  void observe(WorkObserver* observer) { observer_ = observer; }

  /// Enters `size` bytes as `entries` entries. Returns the number of the group in which they leave.
  std::uint64_t enter(Bytes size, std::uint32_t entries = 1);
  /// `size` bytes of the group, in `entries` entries, are in flash and leave. Calls back those who waited for the
  /// group.
  void leave(std::uint64_t group, Bytes size, std::uint32_t entries = 1);

  /// Calls back when all that is in the buffer now has left it, at once if nothing is.
  void when_left(Then then);

  /// Sets the callback of ask(). It is called once for each call of ask(), in the same order.
  void on_turn(Then callback) { turn_ = std::move(callback); }
  /// Asks for room. The callback of on_turn() runs when `size` bytes fit and all earlier calls of ask() have been
  /// answered, at once if that is so now. It may enter the bytes. If they are more than the capacity they never fit:
  /// then the callback runs after those of the earlier calls, and must not enter them.
  void ask(Bytes size);
  /// How many entries of `size` bytes there is room for.
  std::uint64_t room(Bytes size) const { return used_ < capacity_ ? (capacity_ - used_).value / size.value : 0; }
  /// From inside the callback of on_turn(): the next `calls` of ask() are answered, too.
  void answer(std::uint32_t calls) {
    for (; calls > 0; --calls) asking_.pop_front();
  }
  /// Somebody is told each change of the bytes in use, or when bytes have left.
  bool is_watched() const { return observer_ != nullptr || !waiters_.empty(); }
  /// Somebody waits for room, and there is none for the first.
  bool is_short() const { return !asking_.empty() && !takes(asking_.front()); }

  /// The power has failed: the buffer is empty, and nobody waits for it.
  void forget();

  /// Sets the callback that starts flushing held data. It is also called when bytes have left and somebody still waits.
  void on_flush_request(Then callback) { flush_request_ = std::move(callback); }
  /// Starts flushing held data, because somebody waits for room.
  void request_flush() {
    if (flush_request_) flush_request_();
  }

 private:
  struct Waiter {
    std::uint64_t end = 0;  ///< groups below it have to leave
    Then then;
  };

  bool takes(Bytes size) const { return size > capacity_ || used_ + size <= capacity_; }
  void admit();
  void tell() const;

  Bytes capacity_;
  Bytes used_;
  std::uint64_t inside_ = 0;  ///< entries that have not left
  std::uint64_t group_ = 0;   ///< number of the first of `groups_`
  /// Entries that have not left, in groups: each waiter waits for those up to the group that its call ended.
  RingQueue<std::uint64_t> groups_;
  std::deque<Waiter> waiters_;  ///< in order of arrival
  RingQueue<Bytes> asking_;     ///< sizes of the calls of ask() that wait, in their order
  bool admitting_ = false;      ///< the callback of on_turn() runs
  Then turn_;
  Then flush_request_;
  WorkObserver* observer_ = nullptr;
};

}  // namespace csdsim::csd_model

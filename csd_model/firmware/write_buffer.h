// The write buffer that blocks and the KV cache share: data that was acknowledged before it is in flash.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "base/callback.h"
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

  explicit WriteBuffer(Bytes capacity) : capacity_(capacity) {}

  bool fits(Bytes size) const { return used_ + size <= capacity_; }
  Bytes used() const { return used_; }

  /// Is told the bytes in use; it must outlive the buffer.
  void observe(WorkObserver* observer) { observer_ = observer; }

  /// Enters `size` bytes; returns the number by which they leave.
  std::uint64_t enter(Bytes size);
  /// The bytes with this number are in flash. Calls back those who waited for them.
  void leave(std::uint64_t number, Bytes size);

  /// Calls back when all that is in the buffer now has left it, at once if nothing is.
  void when_left(Then then);

  /// Sets the callback that starts flushing held data.
  void on_flush_request(Then callback) { flush_request_ = std::move(callback); }
  /// Starts flushing held data, because somebody waits for room.
  void request_flush() {
    if (flush_request_) flush_request_();
  }

 private:
  struct Waiter {
    std::uint64_t end = 0;  ///< numbers below it have to leave
    Then then;
  };

  void tell() const;

  Bytes capacity_;
  Bytes used_;
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> inside_;
  std::deque<Waiter> waiters_;  ///< in order of arrival
  Then flush_request_;
  WorkObserver* observer_ = nullptr;
};

}  // namespace csdsim::csd_model

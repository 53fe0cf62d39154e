#include "nvme_if/sysc/command.h"

#include <utility>

#include "base/error.h"
#include "nvme_if/sysc/nvme_controller.h"

namespace csdsim::nvme {

/// A transfer can begin at once.
inline bool Command::is_resolved() const {
  return !walking_ && epoch_ == controller_.epoch_ && walk_.state() == WalkState::done;
}

void Command::read_host(Bytes offset, std::span<std::byte> into, Done done) {
  access({LinkDirection::to_drive, offset, Bytes{into.size()}, into.data(), std::move(done)});
}

void Command::read_host_timing(Bytes offset, Bytes length, Done done) {
  access({LinkDirection::to_drive, offset, length, nullptr, std::move(done)});
}

void Command::read_host_timing(Bytes offset, Bytes length, AccessClient& client, std::uint32_t tag) {
  if (!is_resolved()) return read_host_timing(offset, length, [&client, tag](Status s) { client.access_done(tag, s); });
  count_access(offset, length);
  client_ = &client;
  move(LinkDirection::to_drive, offset, length, nullptr, kTagged | tag);
}

void Command::write_host(Bytes offset, std::span<const std::byte> from, Done done) {
  // The DMA engine only reads these bytes; TLM wants a pointer to mutable data.
  access({LinkDirection::to_host, offset, Bytes{from.size()}, const_cast<std::byte*>(from.data()), std::move(done)});
}

void Command::write_host_timing(Bytes offset, Bytes length, Done done) {
  access({LinkDirection::to_host, offset, length, nullptr, std::move(done)});
}

void Command::complete(Status status, std::uint32_t dw0) {
  if (state_ != State::executing) throw InternalError("a command is completed twice, or before it is executed");
  if (accesses_ != 0) throw InternalError("a command is completed while its data is still moving");
  state_ = State::completed;
  if (!status.ok()) status_ = status;
  dw0_ = dw0;
  if (!walking_) controller_.retire(*this);
}

void Command::send_part(Bytes offset, std::span<const std::byte> from) {
  write_host(offset, from, [this](Status s) { part_sent(s); });
}

void Command::send_part_timing(Bytes offset, Bytes length) {
  if (send_part_ahead(offset, length, sim_time_now())) return;
  write_host_timing(offset, length, [this](Status s) { part_sent(s); });
}

bool Command::send_part_ahead(Bytes offset, Bytes length, SimTime at) {
  return is_resolved() && write_ahead(offset, length, at);
}

void Command::part_sent(Status status) {
  if (state_ == State::executing && status_.ok()) status_ = status;
}

/// Nearly all commands have one piece of memory, whose end needs no callback. Returns false and does nothing elsewhere.
[[gnu::always_inline]] inline bool Command::write_ahead(Bytes offset, Bytes length, SimTime at) {
  const std::span<const Segment> segments = walk_.segments();
  return segments.size() == 1 && length <= io_.data && offset <= io_.data - length &&
         controller_.dma_.write_ahead({segments[0].address + offset, length}, at);
}

/// Sends data with the completion behind it. Returns false and does nothing if the completion has to wait, for PRPs or
/// for room in its queue.
template <class Send>
inline bool Command::complete_behind(Send&& send) {
  if (!is_resolved() || !status_.ok()) return false;
  const NvmeController::Queues queues = controller_.queues_of(*this);
  if (!queues.may_post()) return false;
  send();
  controller_.post_behind_data(*this, queues);
  return true;
}

void Command::complete_with_data(Bytes offset, std::span<const std::byte> from, Done sent) {
  if (complete_behind([&] { write_host(offset, from, std::move(sent)); })) return;
  write_host(offset, from, [this, after = std::move(sent)](Status s) {
    after(s);
    complete(s);
  });
}

void Command::complete_with_data_timing(Bytes offset, Bytes length) {
  const auto send = [&] {
    if (write_ahead(offset, length, sim_time_now())) return;
    count_access(offset, length);
    move(LinkDirection::to_host, offset, length, nullptr, kResult);
  };
  if (!complete_behind(send)) write_host_timing(offset, length, [this](Status s) { complete(s); });
}

void Command::dma_done(std::uint64_t token, Status status) {
  if (token == kCompletion) [[likely]]
    return controller_.posted(*this, status);
  switch (token) {
    case kResult:
      controller_.dma_finished();
      --accesses_;
      return controller_.data_sent(*this, status);
    case kList:
      list_status_ = status;
      resolved();
      return controller_.dma_finished();
    default:
      controller_.dma_finished();
      if (token < kTagged) return finish_access(static_cast<std::uint32_t>(token), status);
      end_access(status);
      client_->access_done(static_cast<std::uint32_t>(token), status);
  }
}

void Command::count_access(Bytes offset, Bytes length) {
  if (state_ != State::executing) throw InternalError("data access of a command that is not being executed");
  if (length > io_.data || offset > io_.data - length)
    throw InternalError("data access outside of the command's buffer");
  ++accesses_;
}

void Command::access(Access&& a) {
  count_access(a.offset, a.length);
  if (walking_)
    waiting_.push_back(std::move(a));
  else
    start_access(std::move(a));
}

void Command::start_access(Access&& a) {
  // The callback stays here: the transfer itself carries only two words.
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(active_.size()));
    active_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  active_[slot] = std::move(a.done);

  const bool stale = epoch_ != controller_.epoch_;
  if (stale || walk_.state() == WalkState::failed) {
    // The callback never runs inside the call that started the access.
    const Status s = stale ? status::abort_sq_deletion : walk_.error();
    controller_.defer([this, slot, s] { finish_access(slot, s); });
    return;
  }
  move(a.direction, a.offset, a.length, a.local, slot);
}

[[gnu::noinline]] void Command::move(LinkDirection direction, Bytes offset, Bytes length, std::byte* local,
                                     std::uint64_t token) {
  PcieDma& dma = controller_.dma_;
  const std::span<const Segment> segments = walk_.segments();
  ++controller_.dma_in_flight_;
  if (segments.size() == 1) {
    const Segment piece{segments[0].address + offset, length};
    return direction == LinkDirection::to_drive ? dma.read(piece, local, *this, token)
                                                : dma.write(piece, local, *this, token);
  }
  direction == LinkDirection::to_drive ? dma.read(segments, offset, length, local, *this, token)
                                       : dma.write(segments, offset, length, local, *this, token);
}

void Command::finish_access(std::uint32_t slot, Status s) {
  const Done done = std::exchange(active_[slot], nullptr);
  free_slots_.push_back(slot);
  end_access(s);
  done(s);
}

void Command::end_access(Status s) {
  --accesses_;
  if (state_ == State::posted_behind_data) controller_.data_sent(*this, s);
}

/// The power has failed: nothing of the command is left.
void Command::forget() {
  state_ = State::idle;
  walking_ = false;
  accesses_ = 0;
  waiting_.clear();
  active_.clear();
  free_slots_.clear();
}

void Command::fetch_list() {
  list_segment_ = walk_.list();
  list_.resize(list_segment_.length.value / sizeof(std::uint64_t));
  ++controller_.dma_in_flight_;
  controller_.dma_.read(list_segment_, reinterpret_cast<std::byte*>(list_.data()), *this, kList);
}

void Command::resolved() {
  if (list_status_.ok()) {
    walk_.feed(list_);
    if (walk_.state() == WalkState::needs_list && epoch_ == controller_.epoch_) return fetch_list();
  } else {
    walk_.fail(list_status_);
  }
  walking_ = false;
  std::vector<Access> waiting = std::exchange(waiting_, {});
  for (Access& a : waiting) start_access(std::move(a));
  waiting.clear();
  waiting_.swap(waiting);  // keeps the memory: the next command may have as many accesses
  if (state_ == State::completed) controller_.retire(*this);
}

}  // namespace csdsim::nvme

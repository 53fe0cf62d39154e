#include "nvme_if/sysc/pcie_dma.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "nvme_if/spec/command.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {
namespace {

/// tlm_generic_payload carries its length in 32 bits.
constexpr Bytes kLargestSlice = Bytes::gib(1);

}  // namespace

PcieDma::PcieDma(const sc_core::sc_module_name& name, const LinkConfig& link, MemoryMap* map)
    : sc_module(name),
      memory("memory"),
      link_(link),
      map_(map),
      routed_(map != nullptr && map->routed()),
      largest_direct_(routed_ ? Bytes{} : kLargestSlice) {
  memory.register_invalidate_direct_mem_ptr(this, &PcieDma::invalidate);
  SC_THREAD(to_host_thread);
  SC_THREAD(to_drive_thread);
}

std::uint64_t PcieDma::Callbacks::keep(Done&& done) {
  if (free_.empty()) {
    free_.push_back(done_.size());
    done_.emplace_back();
  }
  const std::uint64_t token = free_.back();
  free_.pop_back();
  done_[token] = std::move(done);
  return token;
}

void PcieDma::Callbacks::dma_done(std::uint64_t token, Status status) {
  const Done done = std::move(done_[token]);
  free_.push_back(token);
  done(status);
}

void PcieDma::submit(Lane& l, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
                     DmaClient& client, std::uint64_t token) {
  Slice slice;
  slice.last = true;
  slice.client = &client;
  slice.token = token;
  const bool wakes = l.slices.empty() && !l.held;
  if (routed_)
    submit_routed(l, segments, offset, length, local, slice);
  else
    submit_pieces(l, segments, offset, length, local, slice);
  l.slices.extend() = slice;
  if (wakes) l.due.set(l.slices.front().end);
}

/// Adds slices for all pieces but the last one, which it leaves in `slice`.
void PcieDma::submit_pieces(Lane& l, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
                            Slice& slice) {
  Slice piece;
  piece.end = sim_now();
  std::uint64_t skip = offset.value;
  std::uint64_t remaining = length.value;
  for (const Segment* s = segments.data(); remaining != 0;) {
    if (s == segments.data() + segments.size()) throw InternalError("a DMA transfer is longer than its segments");
    if (skip >= s->length.value) {
      skip -= s->length.value;
      ++s;
      continue;
    }
    const Segment part{s->address + Bytes{skip}, std::min({s->length - Bytes{skip}, Bytes{remaining}, kLargestSlice})};
    skip += part.length.value;
    remaining -= part.length.value;
    if (piece.local != nullptr) l.slices.extend() = piece;
    if (map_ != nullptr && !map_->record(part, l.direction)) {
      // The rest of the buffer is not transferred; pieces submitted before keep their place.
      piece.local = nullptr;
      piece.failed = true;
      break;
    }
    piece.end = reserve(l.direction, part.length).arrival;
    if (local == nullptr) continue;
    piece.address = part.address.value;
    piece.length = static_cast<std::uint32_t>(part.length.value);
    piece.local = local;
    local += part.length.value;
  }
  slice.end = piece.end;
  slice.address = piece.address;
  slice.length = piece.length;
  slice.local = piece.local;
  slice.failed = piece.failed;
}

/// The same in pieces that pass shared links, where there are some.
void PcieDma::submit_routed(Lane& l, std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* local,
                            Slice& slice) {
  Slice piece;
  piece.end = sim_now();
  std::uint64_t skip = offset.value;
  std::uint64_t remaining = length.value;
  bool first = true;
  for (const Segment* s = segments.data(); remaining != 0;) {
    if (s == segments.data() + segments.size()) throw InternalError("a DMA transfer is longer than its segments");
    if (skip >= s->length.value) {
      skip -= s->length.value;
      ++s;
      continue;
    }
    const Bytes here = std::min(s->length - Bytes{skip}, Bytes{remaining});
    const Route* const route = map_->route({s->address + Bytes{skip}, here}, l.direction);
    const Segment part{s->address + Bytes{skip}, std::min(here, route != nullptr ? kSharedPiece : kLargestSlice)};
    skip += part.length.value;
    remaining -= part.length.value;
    if (!std::exchange(first, false)) l.slices.extend() = piece;
    if (!map_->record(part, l.direction)) {
      // The rest of the buffer is not transferred; pieces submitted before keep their place.
      piece.local = nullptr;
      piece.length = 0;
      piece.route = nullptr;
      piece.failed = true;
      break;
    }
    const LinkSlot slot = reserve(l.direction, part.length);
    piece.end = slot.arrival;
    piece.address = part.address.value;
    piece.local = local;
    piece.length = static_cast<std::uint32_t>(part.length.value);
    piece.wire = slot.end - slot.start;
    piece.route = route;
    if (local != nullptr) local += part.length.value;
  }
  piece.last = true;
  piece.client = slice.client;
  piece.token = slice.token;
  slice = piece;
}

/// Offers the front slice to the shared links of its route, one after another. Returns false, and sets the alarm, if it
/// has to wait.
bool PcieDma::pass_shared(Lane& l) {
  const Slice& front = l.slices.front();
  if (l.stage == 0) l.offered = sim_now();
  while (front.route != nullptr && l.stage < front.route->size()) {
    const Hop& hop = (*front.route)[l.stage++];
    const SimTime passed = hop.link->pass(Bytes{front.length}, hop.rate, sim_now());
    if (passed <= sim_now()) continue;
    link_.add_wait(l.direction, passed - sim_now());
    if (hold_.loop().skip_to(passed)) continue;
    l.due.set(passed);
    return false;
  }
  return true;
}

/// The drive's own link is at most one piece ahead of the shared links: the next slice crosses it after this one has
/// been offered.
inline void PcieDma::drop_front(Lane& l) {
  l.slices.pop_front();
  if (!routed_) return;
  l.stage = 0;
  if (l.slices.empty()) return;
  Slice& next = l.slices.front();
  next.end = std::max(next.end, l.offered + next.wire);
}

/// Called when the front slice is due. Continues with the following slices as long as no other action is due before
/// them.
void PcieDma::serve(Lane& l) {
  EventLoop& loop = hold_.loop();
  do {
    if (routed_ && !pass_shared(l)) [[unlikely]]
      return;
    const Slice& front = l.slices.front();
    if (front.local != nullptr && !move_directly(l.direction, front)) [[unlikely]]
      return hand_over(l);
    Status status = status::success;
    if (front.failed || l.failed) [[unlikely]] {
      l.failed = !front.last;
      status = status::data_transfer_error;
    }
    if (!front.last) {
      drop_front(l);
      continue;
    }
    DmaClient& client = *front.client;
    const std::uint64_t token = front.token;
    drop_front(l);
    // The client may submit. If no slice follows, it may also skip to later times.
    if (l.slices.empty()) return client.dma_done(token, status);
    loop.before(l.slices.front().end, [&] { client.dma_done(token, status); });
  } while (l.slices.front().end <= sim_now() || loop.skip_to(l.slices.front().end));
  l.due.set(l.slices.front().end);
}

void PcieDma::forget() {
  forget(to_host_);
  forget(to_drive_);
  callbacks_ = Callbacks();
  link_.give_up(sim_now());
}

/// A piece that the thread is moving ends as it would.
void PcieDma::forget(Lane& l) {
  l.due.cancel();
  l.failed = false;
  l.stage = 0;
  if (!l.held) return l.slices.clear();
  Slice moving = l.slices.front();
  moving.last = true;
  moving.client = &nobody_;
  l.slices.clear();
  l.slices.extend() = moving;
}

/// Gives the front slice to the thread, at the time of the kernel.
void PcieDma::hand_over(Lane& l) {
  hold_.engage();
  if (!hold_.loop().in_step()) return l.due.set(sim_now());
  l.held = true;
  l.handed_over.notify(sc_core::SC_ZERO_TIME);
}

inline bool PcieDma::move_directly(LinkDirection direction, const Slice& slice) {
  const bool known = last_range_.at != nullptr && last_range_.contains(slice.address, slice.length);
  if (!known && !find_direct_range(slice)) return false;
  std::byte* const remote = last_range_.at + (slice.address - last_range_.first);
  // Nearly all transfers of timing runs are queue entries.
  if (direction == LinkDirection::to_host) {
    if (slice.length == sizeof(CompletionEntry))
      std::memcpy(remote, slice.local, sizeof(CompletionEntry));
    else
      std::memcpy(remote, slice.local, slice.length);
  } else {
    if (slice.length == sizeof(SubmissionEntry))
      std::memcpy(slice.local, remote, sizeof(SubmissionEntry));
    else
      std::memcpy(slice.local, remote, slice.length);
  }
  return true;
}

/// Returns false if the memory does not grant direct access.
bool PcieDma::find_direct_range(const Slice& slice) {
  const auto holds = [&](const DirectRange& range) { return range.contains(slice.address, 1); };
  auto found = std::ranges::find_if(direct_, holds);
  if (found == direct_.end()) {
    ask_for_direct_range(slice.address);
    found = direct_.end() - 1;
  }
  if (found->at == nullptr || !found->contains(slice.address, slice.length)) return false;
  last_range_ = *found;
  return true;
}

void PcieDma::ask_for_direct_range(std::uint64_t address) {
  tlm::tlm_generic_payload probe;
  probe.set_command(tlm::TLM_WRITE_COMMAND);
  probe.set_address(address);
  tlm::tlm_dmi dmi;
  const bool granted = memory->get_direct_mem_ptr(probe, dmi) && dmi.is_read_write_allowed() &&
                       dmi.get_read_latency() == sc_core::SC_ZERO_TIME &&
                       dmi.get_write_latency() == sc_core::SC_ZERO_TIME;
  direct_.push_back({dmi.get_start_address(), dmi.get_end_address(),
                     granted ? reinterpret_cast<std::byte*>(dmi.get_dmi_ptr()) : nullptr});
}

void PcieDma::invalidate(sc_dt::uint64 first, sc_dt::uint64 last) {
  std::erase_if(direct_, [&](const DirectRange& range) { return range.first <= last && first <= range.last; });
  last_range_ = {0, 0, nullptr};
}

// The threads wait in frames without variables of their own, in an endless loop that is not a call: AddressSanitizer
// does not know the stacks of SystemC threads, and what it marks there outlives the thread.
void PcieDma::to_host_thread() {
  for (;;) {
    wait(to_host_.handed_over);
    transport(to_host_);
  }
}

void PcieDma::to_drive_thread() {
  for (;;) {
    wait(to_drive_.handed_over);
    transport(to_drive_);
  }
}

/// Moves the front slice by b_transport. The following slices continue in the event loop.
[[gnu::noinline]] void PcieDma::transport(Lane& l) {
  const Slice& slice = l.slices.front();
  tlm::tlm_generic_payload& p = l.payload;
  p.set_command(l.direction == LinkDirection::to_host ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
  p.set_address(slice.address);
  p.set_data_ptr(reinterpret_cast<unsigned char*>(slice.local));
  p.set_data_length(slice.length);
  p.set_streaming_width(slice.length);
  p.set_byte_enable_ptr(nullptr);
  p.set_dmi_allowed(false);
  p.set_response_status(tlm::TLM_INCOMPLETE_RESPONSE);
  l.delay = sc_core::SC_ZERO_TIME;
  memory->b_transport(p, l.delay);
  if (l.delay != sc_core::SC_ZERO_TIME) wait(l.delay);
  // The slice may have moved in memory: others were submitted meanwhile.
  l.slices.front().local = nullptr;
  l.slices.front().end = sim_now();
  l.slices.front().failed = !p.is_response_ok();
  l.held = false;
  l.due.set(sim_now());
}

}  // namespace csdsim::nvme

#include "nvme_if/sysc/pcie_dma.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {
namespace {

/// tlm_generic_payload carries its length in 32 bits.
constexpr std::uint64_t kLargestSlice = std::uint64_t{1} << 30;

}  // namespace

PcieDma::PcieDma(const sc_core::sc_module_name& name, const PcieLinkParams& link, MemoryMap* map)
    : sc_module(name), memory("memory"), link_(link), map_(map) {
  check_time_resolution();
  SC_THREAD(to_host_thread);
  SC_THREAD(to_drive_thread);
  SC_METHOD(deliver);
  sensitive << deliver_event_;
  dont_initialize();
}

void PcieDma::read(std::span<const Segment> segments, Bytes offset, Bytes length, std::byte* into, DmaDone done) {
  submit(LinkDirection::to_drive, segments, offset, length, into, std::move(done));
}

void PcieDma::write(std::span<const Segment> segments, Bytes offset, Bytes length, const std::byte* from,
                    DmaDone done) {
  // The payload of a TLM write takes a pointer to mutable data, which the target only reads.
  submit(LinkDirection::to_host, segments, offset, length, const_cast<std::byte*>(from), std::move(done));
}

void PcieDma::submit(LinkDirection direction, std::span<const Segment> segments, Bytes offset, Bytes length,
                     std::byte* local, DmaDone&& done) {
  Lane& l = lane(direction);
  Transfer transfer{std::move(done), status::success};
  SimTime end = sim_now();
  bool last_moves_bytes = false;
  std::uint64_t skip = offset.value;
  std::uint64_t remaining = length.value;
  for (auto s = segments.begin(); s != segments.end() && remaining != 0;) {
    if (skip >= s->length.value) {
      skip -= s->length.value;
      ++s;
      continue;
    }
    const Segment part{s->address + Bytes{skip}, Bytes{std::min({s->length.value - skip, remaining, kLargestSlice})}};
    skip += part.length.value;
    remaining -= part.length.value;
    const std::optional<SimTime> arrival = reserve(direction, part);
    if (!arrival) {
      // The rest of the buffer is not transferred; what was asked for before keeps its place.
      transfer.status = status::data_transfer_error;
      last_moves_bytes = false;
      remaining = 0;
      break;
    }
    end = *arrival;
    if (local == nullptr) continue;
    l.slices.push_back({end, part.address.value, local, static_cast<std::uint32_t>(part.length.value), false});
    local += part.length.value;
    last_moves_bytes = true;
  }
  if (remaining != 0) throw InternalError("a DMA transfer is longer than its segments");
  if (last_moves_bytes)
    l.slices.back().last = true;
  else
    l.slices.push_back({end, 0, nullptr, 0, true});
  l.transfers.push_back(std::move(transfer));
  if (std::exchange(l.idle, false)) l.wake.notify();
}

std::optional<SimTime> PcieDma::reserve(LinkDirection direction, const Segment& part) {
  if (map_ != nullptr) {
    const std::optional<RegionId> region = map_->find(part);
    if (!region) return std::nullopt;
    map_->record(*region, direction, part.length);
  }
  const LinkSlot slot = direction == LinkDirection::to_host ? link_.reserve(direction, part.length, sim_now())
                                                            : link_.reserve_read(part.length, sim_now());
  return slot.arrival;
}

bool PcieDma::transport(Lane& l, LinkDirection direction, const Slice& slice) {
  tlm::tlm_generic_payload& p = l.payload;
  p.set_command(direction == LinkDirection::to_host ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
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
  return p.is_response_ok();
}

// The threads wait in frames without variables of their own, in an endless loop that is not a call: AddressSanitizer
// does not know the stacks of SystemC threads, and what it marks there outlives the thread.
void PcieDma::to_host_thread() {
  for (;;) {
    while (!due(lane(LinkDirection::to_host))) wait(lane(LinkDirection::to_host).wake);
    serve(lane(LinkDirection::to_host), LinkDirection::to_host);
  }
}

void PcieDma::to_drive_thread() {
  for (;;) {
    while (!due(lane(LinkDirection::to_drive))) wait(lane(LinkDirection::to_drive).wake);
    serve(lane(LinkDirection::to_drive), LinkDirection::to_drive);
  }
}

[[gnu::noinline]] bool PcieDma::due(Lane& l) {
  l.idle = l.slices.empty();
  if (l.idle) return false;
  const SimTime end = l.slices.front().end;
  const SimTime now = sim_now();
  if (end > now) l.wake.notify(to_sc_time(end - now));
  return end <= now;
}

[[gnu::noinline]] void PcieDma::serve(Lane& l, LinkDirection direction) {
  const Slice slice = l.slices.front();
  l.slices.pop_front();
  if (slice.local != nullptr && !transport(l, direction, slice))
    l.transfers.front().status = status::data_transfer_error;
  if (!slice.last) return;
  finished_.push_back(std::move(l.transfers.front()));
  l.transfers.pop_front();
  deliver_event_.notify();
}

void PcieDma::deliver() {
  // A callback may submit, but finishes nothing itself: finished_ grows only in the threads.
  std::swap(delivering_, finished_);
  for (Transfer& t : delivering_) t.done(t.status);
  delivering_.clear();
}

}  // namespace csdsim::nvme

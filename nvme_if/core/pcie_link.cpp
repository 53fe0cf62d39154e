#include "nvme_if/core/pcie_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace csdsim::nvme {
namespace {

struct LaneRate {
  std::uint64_t transfers_per_second;
  std::uint64_t payload_part;  ///< of `whole` bits on the wire, `payload_part` carry packets
  std::uint64_t whole;
};
constexpr std::array<LaneRate, 6> kLaneRates{{{2'500'000'000, 8, 10},
                                              {5'000'000'000, 8, 10},
                                              {8'000'000'000, 128, 130},
                                              {16'000'000'000, 128, 130},
                                              {32'000'000'000, 128, 130},
                                              {64'000'000'000, 236, 256}}};

void require(bool condition, std::string_view what, std::uint64_t found, std::string_view right) {
  if (!condition) throw UserError(fmt::format("PCIe link: {} is {}, must be {}", what, found, right));
}

void require_packet_size(std::string_view what, Bytes size) {
  require(std::has_single_bit(size.value) && size.value >= 128 && size.value <= 4096, what, size.value,
          "a power of two from 128 to 4096 bytes");
}

}  // namespace

PcieLink::PcieLink(const PcieLinkParams& params) : params_(params) {
  require(params.latency.ps >= 0, "latency", static_cast<std::uint64_t>(-params.latency.ps), "not negative");
  if (params.effective_bandwidth.bytes_per_second != 0) {
    numerator_ = 1'000'000'000'000ULL;
    denominator_ = params.effective_bandwidth.bytes_per_second;
    return;
  }
  require(params.generation >= 1 && params.generation <= 6, "generation", params.generation, "1 to 6");
  constexpr std::array<std::uint32_t, 7> kWidths{1, 2, 4, 8, 12, 16, 32};
  require(std::ranges::find(kWidths, params.lanes) != kWidths.end(), "lanes", params.lanes, "1, 2, 4, 8, 12, 16 or 32");
  require_packet_size("max_payload", params.max_payload);
  require_packet_size("max_read_request", params.max_read_request);
  require(params.tlp_overhead.value + params.dllp_overhead.value <= 1024, "overhead of a packet",
          params.tlp_overhead.value + params.dllp_overhead.value, "at most 1024 bytes");
  const LaneRate& rate = kLaneRates[params.generation - 1];
  numerator_ = 8 * 1'000'000'000'000ULL * rate.whole;
  denominator_ = rate.transfers_per_second * rate.payload_part * params.lanes;
}

std::uint64_t PcieLink::packets(Bytes size) const {
  return (size.value + params_.max_payload.value - 1) / params_.max_payload.value;
}

std::uint64_t PcieLink::wire_bytes(Bytes size) const {
  if (params_.effective_bandwidth.bytes_per_second != 0) return size.value;
  return size.value + packets(size) * (params_.tlp_overhead.value + params_.dllp_overhead.value);
}

PcieLink::Duration PcieLink::wire_time(std::uint64_t wire) const {
  const unsigned __int128 scaled = static_cast<unsigned __int128>(wire) * numerator_;
  return {static_cast<std::int64_t>(scaled / denominator_), static_cast<std::uint64_t>(scaled % denominator_)};
}

PcieLink::Duration PcieLink::known_wire_time(std::uint64_t wire) {
  KnownTime& known = known_[(wire >> 4 ^ wire >> 8) % known_.size()];
  if (known.wire_bytes != wire) known = {wire, wire_time(wire)};
  return known.time;
}

SimTime PcieLink::transfer_duration(Bytes size) const { return wire_time(wire_bytes(size)).rounded_up(); }

LinkSlot PcieLink::occupy(LinkDirection direction, std::uint64_t packet_count, std::uint64_t payload,
                          std::uint64_t wire, SimTime now) {
  Pipe& p = pipe(direction);
  if (now >= p.busy_until.rounded_up()) p.busy_until = {now.ps, 0};
  const SimTime start = p.busy_until.rounded_up();
  const Duration duration = known_wire_time(wire);
  p.busy_until.whole += duration.whole;
  p.busy_until.fraction += duration.fraction;
  if (p.busy_until.fraction >= denominator_) {
    p.busy_until.fraction -= denominator_;
    ++p.busy_until.whole;
  }
  const SimTime end = p.busy_until.rounded_up();
  p.stats.payload_bytes += payload;
  p.stats.wire_bytes += wire;
  p.stats.packets += packet_count;
  p.stats.busy += end - start;
  return {start, end, end + params_.latency};
}

LinkSlot PcieLink::reserve(LinkDirection direction, Bytes size, SimTime now) {
  return occupy(direction, packets(size), size.value, wire_bytes(size), now);
}

LinkSlot PcieLink::reserve_read(Bytes size, SimTime now) {
  SimTime request_arrival = now + params_.latency;
  if (params_.effective_bandwidth.bytes_per_second == 0 && size.value > 0) {
    const std::uint64_t requests = (size.value + params_.max_read_request.value - 1) / params_.max_read_request.value;
    const std::uint64_t request_bytes = params_.tlp_overhead.value + params_.dllp_overhead.value;
    occupy(LinkDirection::to_host, requests, 0, requests * request_bytes, now);
    request_arrival += known_wire_time(request_bytes).rounded_up();
  }
  return reserve(LinkDirection::to_drive, size, request_arrival);
}

}  // namespace csdsim::nvme

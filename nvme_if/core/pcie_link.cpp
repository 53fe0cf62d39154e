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
    params_.outstanding_reads = 0;
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
  read_request_time_ = load(0, 1).time.rounded_up();
  tag_free_.resize(params_.outstanding_reads);
}

PcieLink::Load PcieLink::load(std::uint64_t payload, std::uint64_t packets) const {
  Load load{.payload = payload, .packets = packets, .wire_bytes = payload, .time = {}};
  if (params_.effective_bandwidth.bytes_per_second == 0)
    load.wire_bytes += packets * (params_.tlp_overhead.value + params_.dllp_overhead.value);
  const unsigned __int128 scaled = static_cast<unsigned __int128>(load.wire_bytes) * numerator_;
  load.time = {static_cast<std::int64_t>(scaled / denominator_), static_cast<std::uint64_t>(scaled % denominator_)};
  return load;
}

PcieLink::Known PcieLink::known(Bytes size) const {
  const auto packets = [&](Bytes largest) { return (size.value + largest.value - 1) / largest.value; };
  Known entry{.size = size, .data = load(size.value, packets(params_.max_payload)), .requests = {}};
  if (params_.effective_bandwidth.bytes_per_second == 0) entry.requests = load(0, packets(params_.max_read_request));
  return entry;
}

/// Read requests use their share of to_host at `now`, as they do without tags. The model does not place them between
/// the writes of the drive; it does model their waiting for tags.
LinkSlot PcieLink::reserve_with_tags(Bytes size, SimTime now) {
  occupy(LinkDirection::to_host, look_up(size).requests, now);
  LinkSlot slot{};
  bool first = true;
  std::uint64_t left = size.value;
  do {
    const Bytes asked{std::min(left, params_.max_read_request.value)};
    left -= asked.value;
    SimTime& tag = tag_free_[next_tag_];
    next_tag_ = next_tag_ + 1 == tag_free_.size() ? 0 : next_tag_ + 1;
    const SimTime request_arrival = std::max(now, tag) + read_request_time_ + params_.latency;
    const LinkSlot data = occupy(LinkDirection::to_drive, look_up(asked).data, request_arrival);
    tag = data.arrival;
    slot = {first ? data.start : slot.start, data.end, data.arrival};
    first = false;
  } while (left > 0);
  return slot;
}

SimTime PcieLink::transfer_duration(Bytes size) const { return known(size).data.time.rounded_up(); }

}  // namespace csdsim::nvme

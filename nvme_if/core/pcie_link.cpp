#include "nvme_if/core/pcie_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/statistics.h"

namespace csdsim::nvme {
namespace {

void require_link(bool condition, std::string_view what, std::uint64_t found, std::string_view right) {
  if (!condition) throw UserError(fmt::format("PCIe link: {} is {}, must be {}", what, found, right));
}

void require_packet_size(std::string_view what, Bytes size) {
  require_link(std::has_single_bit(size.value) && size.value >= 128 && size.value <= 4096, what, size.value,
               "a power of two from 128 to 4096 bytes");
}

}  // namespace

PcieLink::PcieLink(const LinkConfig& config) : config_(config) {
  require_link(config.latency.ps >= 0, "latency", static_cast<std::uint64_t>(-config.latency.ps), "not negative");
  if (config.bandwidth) {
    require_link(config.bandwidth->bytes_per_second > 0, "bandwidth", 0, "at least 1 B/s");
    numerator_ = 1'000'000'000'000ULL;
    denominator_ = config.raw_bandwidth().bytes_per_second;
    return;
  }
  if (!config.generation || !config.lanes) throw UserError("PCIe link: needs generation and lanes, or bandwidth");
  const LaneRate rate = lane_rate(*config.generation);
  constexpr std::array<std::uint32_t, 7> kWidths{1, 2, 4, 8, 12, 16, 32};
  require_link(std::ranges::find(kWidths, *config.lanes) != kWidths.end(), "lanes", *config.lanes,
               "1, 2, 4, 8, 12, 16 or 32");
  require_packet_size("max_payload", config.max_payload);
  require_packet_size("max_read_request", config.max_read_request);
  require_link(config.tlp_overhead.value + config.dllp_overhead.value <= 1024, "overhead of a packet",
               config.tlp_overhead.value + config.dllp_overhead.value, "at most 1024 bytes");
  numerator_ = 8 * 1'000'000'000'000ULL * rate.whole;
  denominator_ = rate.transfers_per_second * rate.payload_part * *config.lanes;
  if (config.speed != 1) denominator_ = static_cast<std::uint64_t>(static_cast<double>(denominator_) * config.speed);
  read_request_time_ = load(0, 1).time.rounded_up();
  tag_free_.resize(config.outstanding_reads.value_or(0));
}

PcieLink::Load PcieLink::load(std::uint64_t payload, std::uint64_t packets) const {
  const unsigned __int128 scaled = static_cast<unsigned __int128>(wire_bytes(payload, packets)) * numerator_;
  return {payload,
          packets,
          {static_cast<std::int64_t>(scaled / denominator_), static_cast<std::uint64_t>(scaled % denominator_)}};
}

PcieLink::Known PcieLink::known(Bytes size) const {
  const auto packets = [&](Bytes largest) { return (size.value + largest.value - 1) / largest.value; };
  Known entry{.size = size, .data = load(size.value, packets(config_.max_payload)), .requests = {}};
  if (!config_.bandwidth) entry.requests = load(0, packets(config_.max_read_request));
  return entry;
}

void PcieLink::tell(LinkDirection direction, const Load& load, SimTime start, SimTime end) const {
  observer_->work(static_cast<std::uint32_t>(direction), load.payload == 0 ? "read requests" : "data", start, end,
                  load.payload);
}

/// Read requests use their share of to_host at `now`, as they do without tags. The model does not place them between
/// the writes of the drive; it does model their waiting for tags.
LinkSlot PcieLink::reserve_with_tags(Bytes size, SimTime now) {
  occupy(LinkDirection::to_host, look_up(size).requests, now);
  LinkSlot slot{};
  bool first = true;
  std::uint64_t left = size.value;
  do {
    const Bytes asked{std::min(left, config_.max_read_request.value)};
    left -= asked.value;
    SimTime& tag = tag_free_[next_tag_];
    next_tag_ = next_tag_ + 1 == tag_free_.size() ? 0 : next_tag_ + 1;
    const SimTime request_arrival = std::max(now, tag) + read_request_time_ + config_.latency;
    const LinkSlot data = occupy(LinkDirection::to_drive, look_up(asked).data, request_arrival);
    tag = data.arrival;
    slot = {first ? data.start : slot.start, data.end, data.arrival};
    first = false;
  } while (left > 0);
  return slot;
}

SimTime PcieLink::transfer_duration(Bytes size) const { return known(size).data.time.rounded_up(); }

void register_statistics(Statistics& s, const PcieLink& link) {
  const LinkStats& out = link.stats(LinkDirection::to_host);
  const LinkStats& in = link.stats(LinkDirection::to_drive);
  s.counter("to_host_bytes", out.payload_bytes, "B", "Payload from the drive.");
  s.time("to_host_busy", out.busy, "Time that this direction was occupied.");
  s.counter("to_drive_bytes", in.payload_bytes, "B", "Payload to the drive.");
  s.time("to_drive_busy", in.busy, "Time that this direction was occupied.");
}

}  // namespace csdsim::nvme

#include "nvme_if/core/link_config.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/param.h"

namespace csdsim::nvme {
namespace {

constexpr std::array<LaneRate, 6> kLaneRates{{{2'500'000'000, 8, 10},
                                              {5'000'000'000, 8, 10},
                                              {8'000'000'000, 128, 130},
                                              {16'000'000'000, 128, 130},
                                              {32'000'000'000, 128, 130},
                                              {64'000'000'000, 236, 256}}};

}  // namespace

LaneRate lane_rate(std::uint32_t generation) {
  if (generation < 1 || generation > kLaneRates.size())
    throw UserError(fmt::format("PCIe link: generation is {}, must be 1 to {}", generation, kLaneRates.size()));
  return kLaneRates[generation - 1];
}

Bandwidth LinkConfig::raw_bandwidth() const {
  const auto sped_up = [this](std::uint64_t rate) {
    return Bandwidth{speed == 1 ? rate : static_cast<std::uint64_t>(static_cast<double>(rate) * speed)};
  };
  if (bandwidth) return sped_up(bandwidth->bytes_per_second);
  const LaneRate rate = lane_rate(generation.value());
  return sped_up(rate.transfers_per_second * lanes.value() * rate.payload_part / rate.whole / 8);
}

Bandwidth LinkConfig::payload_bandwidth() const {
  if (bandwidth) return raw_bandwidth();
  const std::uint64_t packet = max_payload.value + tlp_overhead.value + dllp_overhead.value;
  return {static_cast<std::uint64_t>(static_cast<unsigned __int128>(raw_bandwidth().bytes_per_second) *
                                     max_payload.value / packet)};
}

namespace {

void describe_lanes(ParamVisitor& v, LinkConfig& c) {
  v.optional("generation", c.generation, "auto", {1, 6}, "PCIe generation; auto where bandwidth is given.",
             paper("InstInfer: drive 3.0 x4 (V-A, prototype), GPU 4.0 x16 (VI-A)"));
  v.optional("lanes", c.lanes, "auto", {1, 32}, "PCIe lanes: a power of two; auto where bandwidth is given.",
             paper("InstInfer: drive 3.0 x4 (V-A, prototype), GPU 4.0 x16 (VI-A)"));
  v.optional("bandwidth", c.bandwidth, "auto", {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
             "Payload bytes a second, in place of generation, lanes and overheads.",
             assumed("follows from generation and lanes"));
  v.param("max_payload", c.max_payload, {Bytes{128}, Bytes::kib(4)}, "Largest payload of a TLP: a power of two.",
          assumed("common root complexes"));
  v.param("tlp_overhead", c.tlp_overhead, {Bytes{0}, Bytes{128}}, "Header, framing and CRC bytes of a TLP.",
          datasheet("PCIe base specification: 4 DW header, sequence number, LCRC, framing"));
  v.param("dllp_overhead", c.dllp_overhead, {Bytes{0}, Bytes{128}},
          "Share of acknowledge and flow-control packets, charged to each TLP.", assumed("one of 8 B for two TLPs"));
  v.param("latency", c.latency, {SimTime{}, SimTime::milliseconds(1)},
          "Flight time from end to end, each way; doorbells take none.", assumed("0: a short trace"));
}

}  // namespace

void describe(ParamVisitor& v, LinkConfig& c) {
  describe_lanes(v, c);
  v.param("max_read_request", c.max_read_request, {Bytes{128}, Bytes::kib(4)},
          "Bytes that one read request asks for at most: a power of two.", assumed("common root complexes"));
  v.optional("outstanding_reads", c.outstanding_reads, "unlimited", {1, 1024},
             "Read requests of the drive on their way at a time: so much data comes in a round trip at most.",
             assumed("never the bottleneck; PCIe has 32 to 256 tags, 768 from generation 4 on"));
}

void describe(ParamVisitor& v, GpuLinkConfig& c) {
  describe_lanes(v, c);
  v.optional(
      "peer_to_peer", c.peer_to_peer, "auto", {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
      "Payload bytes per second, in each direction, of all transfers between drives and this GPU's memory; auto: "
      "what generation and lanes carry, or bandwidth. Give it where bandwidth is a measured rate of copies.",
      assumed("the link is the only limit of peer-to-peer transfers"));
}

}  // namespace csdsim::nvme

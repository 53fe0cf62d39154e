// A PCI Express link as a scenario describes it, and the rates of its generations.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace csdsim {
class ParamVisitor;
}

namespace csdsim::nvme {

/// The rate of one lane in one direction.
struct LaneRate {
  std::uint64_t transfers_per_second;
  std::uint64_t payload_part;  ///< so many of `whole` bits on the wire carry packets
  std::uint64_t whole;
};

/// 2.5, 5, 8, 16, 32, 64 GT/s with 8b/10b up to generation 2, 128b/130b up to 5, and for 6 the 236 of 256 bytes of a
/// FLIT that carry transaction layer packets (PCI Express Base 6.0). UserError for another generation.
LaneRate lane_rate(std::uint32_t generation);

/// Section `link` of a drive or a GPU: either generation and lanes, or the bandwidth. After a scenario is checked,
/// exactly one of the two is set. With a bandwidth, payload bytes move at that rate, and read requests are free and
/// unbounded.
struct LinkConfig {
  std::optional<std::uint32_t> generation = 3;  ///< 1..6
  std::optional<std::uint32_t> lanes = 4;       ///< 1, 2, 4, 8, 12, 16 or 32
  std::optional<Bandwidth> bandwidth{};
  Bytes max_payload{256};       ///< data bytes a packet carries at most: power of two, 128..4096
  Bytes max_read_request{512};  ///< data bytes one read request asks for at most: power of two, 128..4096
  /// Read requests on their way at a time, each with a tag until its data is there; unset or 0: unlimited. At most
  /// outstanding_reads x max_read_request bytes arrive in a round trip. Source: PCIe Base 3.0, 2.2.6.2 (tags).
  std::optional<std::uint32_t> outstanding_reads{};
  /// Framing, sequence number, 4-dword header and LCRC of one packet. Source: PCIe Base 3.0, 2.2 and 4.2.2.
  Bytes tlp_overhead{24};
  /// Share of acknowledge and flow control packets, charged to each data packet. Source: assumed (one 8-byte DLLP for
  /// two).
  Bytes dllp_overhead{4};
  SimTime latency{};  ///< flight time from one end to the other, added to each direction. Source: assumed.
  /// Times as fast as stated. Nothing but a run that asks what a faster link would gain changes it.
  double speed = 1;

  /// Bytes per second in one direction: the given bandwidth (payload only), or lanes x transfer rate x line coding
  /// rounded down, from which packet overheads are not subtracted.
  Bandwidth raw_bandwidth() const;
  /// The part of it that is payload when every packet is full.
  Bandwidth payload_bandwidth() const;
};

/// The GPU's link. Copies over it are large: what the size of read requests costs is on the idle direction.
struct GpuLinkConfig : LinkConfig {
  GpuLinkConfig() : LinkConfig{.generation = 4, .lanes = 16} {}
  std::optional<Bandwidth>
      peer_to_peer{};  ///< rate of all drives together, in each direction; unset: payload_bandwidth()

  Bandwidth peer_to_peer_bandwidth() const { return peer_to_peer.value_or(payload_bandwidth()); }
};

void describe(ParamVisitor& v, LinkConfig& c);
void describe(ParamVisitor& v, GpuLinkConfig& c);

}  // namespace csdsim::nvme

#include "csd_model/kv_rates.h"

#include <algorithm>
#include <cmath>

namespace csdsim::csd_model {
namespace {

double seconds(SimTime t) { return static_cast<double>(t.ps) * 1e-12; }
double per_second(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }

/// Time of a page on its channel: command cycles and the transfer.
double channel_time(const DriveConfig& drive) {
  return seconds(drive.flash.command_time + drive.flash.data_out_setup) +
         static_cast<double>(drive.geometry.page_size.value) / per_second(drive.flash.channel_bandwidth);
}

/// Requests over the switch: the link, the FPGA's DRAM, or `outstanding` requests one after another.
double peer_rate(const DriveConfig& drive, const KvRequestShape& shape) {
  const PeerReadConfig& reads = *drive.peer_reads;
  const double of_head = static_cast<double>(shape.tokens) * shape.head_dim * sizeof(Half);
  const double page = static_cast<double>(drive.geometry.page_size.value);
  const double size = std::max(page, std::min(static_cast<double>(reads.request_size.value), of_head));
  const double request = seconds(reads.command_time + drive.flash.read_latency) + channel_time(drive) +
                         size / per_second(reads.request_bandwidth);
  // Each page is written to the FPGA's DRAM and read from it.
  const double link = std::min(per_second(reads.bandwidth), per_second(reads.dram_bandwidth) / 2);
  return std::min(link, reads.outstanding * size / request);
}

/// Bytes of whole pages per second that reach the engine.
double page_rate(const DriveConfig& drive, const KvRequestShape& shape) {
  const double page = static_cast<double>(drive.geometry.page_size.value);
  const double channels = drive.geometry.channels * page / channel_time(drive);
  const double planes = drive.geometry.planes() * page / (seconds(drive.flash.read_latency) + channel_time(drive));
  const double flash = std::min(channels, planes);
  return drive.peer_reads ? std::min(flash, peer_rate(drive, shape)) : flash;
}

Bandwidth rate(double bytes_per_second) { return {static_cast<std::uint64_t>(std::llround(bytes_per_second))}; }

}  // namespace

Bandwidth scoring_rate(const DriveConfig& drive, const KvRequestShape& shape, ScorePrecision precision) {
  const engine::EngineConfig& engine = drive.engine;
  engine.require(precision);
  const double products = engine.scoring.lanes(precision).value_or(engine.kernels * engine.macs_per_cycle);
  const double unit = products * static_cast<double>(engine.clock.hertz) * sizeof(Half) / shape.group;
  return rate(std::min(unit, page_rate(drive, shape)));
}

Bandwidth fetch_rate(const DriveConfig& drive, const KvRequestShape& shape, double rows_per_page) {
  const double row = static_cast<double>(shape.head_dim) * sizeof(Half);
  const double useful = rows_per_page * row / static_cast<double>(drive.geometry.page_size.value);
  return rate(std::min(useful * page_rate(drive, shape), per_second(drive.link.payload_bandwidth())));
}

}  // namespace csdsim::csd_model

#include "csd_model/kv_rates.h"

#include <algorithm>
#include <cmath>

namespace csdsim::csd_model {
namespace {

double seconds(SimTime t) { return t.seconds(); }
double per_second(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }

/// Time of a page on its channel: command cycles and the transfer, parity included.
double channel_time(const DriveConfig& drive) {
  return seconds(drive.flash.command_time + drive.flash.data_out_setup) +
         nfc::bus_bytes(drive.flash, static_cast<std::uint32_t>(drive.geometry.page_size.value)) /
             per_second(drive.flash.channel_bandwidth);
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

double attention_time(const DriveConfig& drive, const AttentionShape& shape) {
  const engine::EngineConfig& engine = drive.engine;
  const double d = shape.head_dim, group = shape.group, jobs = double(shape.heads) * shape.sequences;
  const double row = d * sizeof(Half), page = static_cast<double>(drive.geometry.page_size.value);
  const double pages_of_job = 2 * shape.tokens * row / page;
  const double cycles = shape.tokens * group * (2 * d / engine.macs_per_cycle + 1.0 / engine.softmax_per_cycle);
  const double kernel = cycles / static_cast<double>(engine.clock.hertz);
  const KvRequestShape asked{shape.head_dim, shape.group, static_cast<std::uint32_t>(std::llround(shape.tokens))};
  const double flash = jobs * pages_of_job * page / page_rate(drive, asked);
  const double kernels = jobs * kernel / engine.kernels;
  const double first_page = seconds(drive.flash.read_latency) + channel_time(drive);
  // A job by itself: its pages from all channels at once, then its kernel.
  const double alone = first_page + pages_of_job * page / page_rate(drive, asked) + kernel;
  const double slots = jobs * alone / engine.jobs_in_flight;
  const double lookups = jobs * pages_of_job * seconds(drive.lookup_time) / drive.lookup_cores;
  const double busy = std::max(lookups, engine.overlap_flash ? std::max({flash, kernels, slots}) : flash + kernels);
  return seconds(drive.pipeline_time) + first_page + busy + kernel;
}

}  // namespace csdsim::csd_model

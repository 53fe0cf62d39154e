#include "csd_model/kv_rates.h"

#include <algorithm>
#include <cmath>

namespace csdsim::csd_model {
namespace {

double seconds(SimTime t) { return t.seconds(); }
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

/// Time until the first page of a command is there, besides what the rates say.
double first_page_time(const DriveConfig& drive) {
  double time = seconds(drive.flash.read_latency) + channel_time(drive);
  if (drive.peer_reads) time += seconds(drive.peer_reads->command_time);
  return time;
}

/// Of a command outside the flash: its work in the controller, and the flights over the link of doorbell, entry,
/// descriptors and queries (each asked for and sent), results and completion.
double command_time(const DriveConfig& drive) {
  constexpr int kFlights = 9;
  return seconds(drive.pipeline_time + drive.nvme.firmware_time) + kFlights * seconds(drive.link.latency);
}

/// Bytes of K per second that the unit, or the kernels in its place, take in.
double scoring_unit_rate(const engine::EngineConfig& engine, ScorePrecision precision, double group) {
  const double products = engine.scoring.lanes(precision).value_or(engine.kernels * engine.macs_per_cycle);
  return products * static_cast<double>(engine.clock.hertz) * sizeof(Half) / group;
}

Bandwidth rate(double bytes_per_second) { return {static_cast<std::uint64_t>(std::llround(bytes_per_second))}; }

}  // namespace

Bandwidth scoring_rate(const DriveConfig& drive, const KvRequestShape& shape, ScorePrecision precision) {
  const engine::EngineConfig& engine = drive.engine;
  engine.require(precision);
  return rate(std::min(scoring_unit_rate(engine, precision, shape.group), page_rate(drive, shape)));
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

double scoring_time(const DriveConfig& drive, const AttentionShape& shape, ScorePrecision precision,
                    std::uint32_t chunk) {
  const engine::EngineConfig& engine = drive.engine;
  engine.require(precision);
  if (shape.tokens <= 0) return 0;
  const double row = static_cast<double>(shape.head_dim) * sizeof(Half);
  const double page = static_cast<double>(drive.geometry.page_size.value);
  const double of_command = chunk == 0 ? shape.tokens : std::min<double>(shape.tokens, chunk);
  const double job_bytes = std::max(page, of_command * row), job_pages = job_bytes / page;
  const double jobs = double(shape.heads) * shape.sequences * shape.tokens / of_command;
  const double unit_rate = scoring_unit_rate(engine, precision, shape.group);
  const KvRequestShape asked{shape.head_dim, shape.group, static_cast<std::uint32_t>(std::llround(of_command))};
  const double first_page = first_page_time(drive);
  // A job by itself: its pages are spread over the channels.
  double alone = first_page + job_pages * channel_time(drive) / std::min<double>(job_pages, drive.geometry.channels);
  if (drive.peer_reads) alone += job_bytes / per_second(drive.peer_reads->request_bandwidth);
  const double slots = jobs * alone / engine.jobs_in_flight;
  const double lookups = jobs * job_pages * seconds(drive.lookup_time) / drive.lookup_cores;
  const double flash = jobs * job_bytes / page_rate(drive, asked), unit = jobs * job_bytes / unit_rate;
  const double busy = engine.overlap_flash ? std::max({flash, unit, slots}) : flash + unit;
  return command_time(drive) + first_page + std::max(busy, lookups) + job_bytes / unit_rate;
}

double fetching_time(const DriveConfig& drive, const AttentionShape& shape, std::span<const RandomPicks> picks) {
  const double row = static_cast<double>(shape.head_dim) * sizeof(Half), heads = shape.heads;
  const double page = static_cast<double>(drive.geometry.page_size.value), rows_per_page = page / row;
  double chosen = 0, touched = 0;  // of a sequence, pages of K of a head
  for (const RandomPicks& part : picks) {
    if (part.tokens <= 0 || part.chosen <= 0) continue;
    chosen += part.chosen;
    const double left_out = 1 - std::min(1.0, part.chosen / part.tokens);
    touched += part.tokens / rows_per_page * (1 - std::pow(left_out, rows_per_page));
  }
  if (chosen <= 0) return 0;
  const double of_sequence = 2 * heads * chosen * row;
  const double commands =
      shape.sequences * std::ceil(of_sequence / static_cast<double>(drive.nvme.controller.mdts.value));
  const double pages = 2 * heads * touched * shape.sequences, of_command = std::max(1.0, pages / commands);
  const KvRequestShape asked{shape.head_dim, shape.group,
                             static_cast<std::uint32_t>(std::llround(of_command * rows_per_page))};
  double flash = pages * page / page_rate(drive, asked);
  if (drive.peer_reads) {
    const double request = std::min(static_cast<double>(drive.peer_reads->request_size.value), of_command * page);
    flash = std::max(flash, request / per_second(drive.peer_reads->request_bandwidth));
  }
  const double rows = of_sequence * shape.sequences / per_second(drive.link.payload_bandwidth());
  const double lookups = pages * seconds(drive.lookup_time) / drive.lookup_cores;
  flash = std::max(flash, lookups);
  return command_time(drive) + first_page_time(drive) + std::max(flash + rows / commands, flash / commands + rows);
}

}  // namespace csdsim::csd_model

// Scores and fetches.
#include <algorithm>
#include <cmath>

#include "csd_model/kv_rates.h"
#include "csd_model/page_rates.h"

namespace csdsim::csd_model {

namespace {

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

/// Groups of tokens of a head. Each fills a page of K and a page of V.
struct FullPages {
  double rows = 1;    ///< tokens of a group
  double groups = 0;  ///< full ones, on average while the head grows
  double filled = 0;  ///< groups that become full, per token that is added
};

FullPages full_pages_of(const DriveConfig& drive, std::uint32_t head_dim, double tokens, double grown) {
  FullPages full{.rows = std::max(1.0, std::floor(page_bytes(drive) / (head_dim * sizeof(Half))))};
  const auto sum = [&](double t) {  // of the full groups of 0 to t tokens
    const double groups = std::floor(t / full.rows);
    return full.rows * groups * (groups - 1) / 2 + groups * (t - full.rows * groups);
  };
  const double before = std::max(0.0, tokens - grown), last = std::floor(tokens / full.rows);
  full.groups = tokens - before < 1 ? last : (sum(tokens) - sum(before)) / (tokens - before);
  if (grown > 0) full.filled = (last - std::floor(before / full.rows)) / grown;
  return full;
}

}  // namespace

Bandwidth scoring_rate(const DriveConfig& drive, const KvRequestShape& shape, ScorePrecision precision) {
  const engine::EngineConfig& engine = drive.engine;
  engine.require(precision);
  return rate(
      std::min(scoring_unit_rate(engine, precision, shape.group), page_rate(drive, shape, drive.geometry.page_size)));
}

double rows_fetched(const DriveConfig& drive, std::uint32_t head_dim) {
  return static_cast<double>(fetched(drive).value) / (static_cast<double>(head_dim) * sizeof(Half));
}

Bandwidth fetch_rate(const DriveConfig& drive, const KvRequestShape& shape, double rows) {
  const double useful = rows / rows_fetched(drive, shape.head_dim);
  return rate(std::min(useful * page_rate(drive, shape, fetched(drive)), per_second(drive.link.payload_bandwidth())));
}

double scoring_time(const DriveConfig& drive, const AttentionShape& shape, ScorePrecision precision,
                    std::uint32_t chunk) {
  const engine::EngineConfig& engine = drive.engine;
  engine.require(precision);
  if (shape.tokens <= 0) return 0;
  const FullPages full = full_pages_of(drive, shape.head_dim, shape.tokens, shape.grown);
  const double of_command = chunk == 0 ? shape.tokens : std::min<double>(shape.tokens, chunk);
  const double jobs = double(shape.heads) * shape.sequences * shape.tokens / of_command;
  const double unit_of_job = of_command * static_cast<double>(shape.kv.row(shape.head_dim, sizeof(Half)).value) /
                             scoring_unit_rate(engine, precision, shape.group);
  const double unit = jobs * unit_of_job;
  if (full.groups <= 0) return command_time(drive) + unit;
  const double job_pages = full.groups * of_command / shape.tokens, job_bytes = job_pages * page_bytes(drive);
  const double first_page = first_page_time(drive);
  // A job by itself: its pages are spread over the channels.
  double alone =
      first_page + job_pages * channel_time(drive) / std::clamp<double>(job_pages, 1, drive.geometry.channels);
  if (drive.peer_reads) alone += job_bytes / per_second(drive.peer_reads->request_bandwidth);
  const double slots = jobs * alone / engine.jobs_in_flight - first_page;
  const double lookups = jobs * job_pages * seconds(drive.lookup_time) / drive.lookup_cores;
  const double of_head = std::max(of_command, full.rows);
  const KvRequestShape asked{shape.head_dim, shape.group, static_cast<std::uint32_t>(std::llround(of_head))};
  const double flash = jobs * job_bytes / page_rate(drive, asked, drive.geometry.page_size);
  const double busy = engine.overlap_flash ? std::max({flash, unit, slots}) : flash + unit;
  return command_time(drive) + first_page + std::max(busy, lookups) + unit_of_job;
}

Storing storing_of(const DriveConfig& drive, const AttentionShape& shape) {
  return {full_pages_of(drive, shape.head_dim, shape.tokens, shape.grown).filled,
          2 * seconds(drive.flash.program_latency)};
}

double fetching_time(const DriveConfig& drive, const AttentionShape& shape, std::span<const RandomPicks> picks) {
  const double row = static_cast<double>(shape.head_dim) * sizeof(Half), heads = shape.heads;
  const Bytes unit = fetched(drive);
  const double rows = rows_fetched(drive, shape.head_dim);
  double tokens = 0, chosen = 0;  // of a sequence
  for (const RandomPicks& part : picks) tokens += part.tokens;
  const FullPages full = full_pages_of(drive, shape.head_dim, tokens, shape.grown);
  double touched = 0;  // pages or groups of codewords of K of a head
  for (const RandomPicks& part : picks) {
    if (part.tokens <= 0 || part.chosen <= 0) continue;
    chosen += part.chosen;
    const double left_out = 1 - std::min(1.0, part.chosen / part.tokens);
    touched += full.groups * full.rows / tokens * part.tokens / rows * (1 - std::pow(left_out, rows));
  }
  if (chosen <= 0) return 0;
  const double of_sequence = 2 * heads * chosen * row;
  const double commands =
      shape.sequences * std::ceil(of_sequence / static_cast<double>(drive.nvme.controller.mdts.value));
  const double crossing = of_sequence * shape.sequences / per_second(drive.link.payload_bandwidth());
  if (touched <= 0) return command_time(drive) + crossing;
  const double units = 2 * heads * touched * shape.sequences, of_command = std::max(1.0, units / commands);
  const double bytes = static_cast<double>(unit.value);
  const KvRequestShape asked{shape.head_dim, shape.group, static_cast<std::uint32_t>(std::llround(of_command * rows))};
  double flash = units * bytes / page_rate(drive, asked, unit);
  if (drive.peer_reads) {
    const double request = std::min(static_cast<double>(drive.peer_reads->request_size.value), of_command * bytes);
    flash = std::max(flash, request / per_second(drive.peer_reads->request_bandwidth));
  }
  const double lookups = units * seconds(drive.lookup_time) / drive.lookup_cores;
  flash = std::max(flash, lookups);
  return command_time(drive) + first_page_time(drive) +
         std::max(flash + crossing / commands, flash / commands + crossing);
}

}  // namespace csdsim::csd_model

#include "csd_model/kv_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csd_model/page_rates.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::csd_model {
namespace {

/// Of K, or of V, of a token.
double row_bytes(const AttentionShape& shape) {
  return static_cast<double>(shape.kv.row(shape.head_dim, sizeof(Half)).value);
}

/// What one job, the attention of a KV head, asks of the drive.
struct JobWork {
  double groups = 0;  ///< full ones, of tokens
  double pages = 0, tail_bytes = 0;
  double fullest = 0;  ///< pages of all jobs in the plane with most of them
  double kernel_cycles = 0, argtopk_cycles = 0;
  double phases = 1;  ///< reads that follow each other
};

double full_pages(double tokens, double grown, double rows) {
  return std::floor((tokens - grown) / rows) + grown / rows;
}

/// Pages of K and V of all jobs in the plane with most of them. The groups of a head go from channel to channel, and
/// the first ones of all heads to different planes as far as there are any, those of K and V of a head to the same one:
/// few pages are uneven.
double fullest_plane(const DriveConfig& drive, double jobs, std::uint32_t groups) {
  const double channels = drive.geometry.channels, planes = drive.geometry.planes();
  const double of_round = channels * 2 * jobs / planes, rounds = std::floor(groups / channels);
  return rounds * of_round + std::min(of_round, (groups - rounds * channels) * 2 * std::ceil(jobs / planes));
}

JobWork work_of(const DriveConfig& drive, const AttentionShape& shape) {
  const engine::EngineConfig& engine = drive.engine;
  const double d = shape.head_dim, group = shape.group, tokens = shape.tokens;
  const double row = row_bytes(shape), rows = std::max(1.0, std::floor(page_bytes(drive) / row));
  const double groups = full_pages(tokens, shape.grown, rows);  // of tokens: a page of K and one of V
  const auto cycles = [&](double scored, double attended, double components) {
    const double taken_in = components * scored + 2 * d * attended;
    const double computing =
        taken_in * group / engine.macs_per_cycle + (scored + attended) * group / engine.softmax_per_cycle;
    return shape.kv.quantised() ? std::max(computing, taken_in / engine.dequantised_per_cycle) : computing;
  };
  const double jobs = double(shape.heads) * shape.sequences;
  const auto whole = static_cast<std::uint32_t>(groups);
  const double below = fullest_plane(drive, jobs, whole), above = fullest_plane(drive, jobs, whole + 1);
  JobWork work{.groups = groups,
               .pages = 2 * groups,
               .tail_bytes = 2 * (tokens - groups * rows) * row,
               .fullest = below + (groups - whole) * (above - below)};
  if (!shape.sparse || shape.sparse->tokens >= tokens) {
    work.kernel_cycles = cycles(0, tokens, 0);
    return work;
  }
  const SparseShape& sparse = *shape.sparse;
  const auto longest = static_cast<std::uint32_t>(std::ceil(tokens));
  const ftl::KvLayout layout = make_mapping(drive)->layout({.layers = 1,
                                                            .kv_heads = shape.heads,
                                                            .head_dim = shape.head_dim,
                                                            .max_tokens = std::max(1U, longest),
                                                            .component_major = true,
                                                            .format = shape.kv},
                                                           drive.geometry.page_size, drive.kv.layout);
  // Components are in groups of m, of which a page has one; tokens beyond the last window are scored from token pages.
  const double m = layout.embedding_group, component_groups = d / m;
  const double asked = component_groups * (1 - std::pow(1 - 1 / component_groups, sparse.components));
  const ftl::KvPageCount held = layout.pages(longest);
  const double windowed = static_cast<double>(layout.windowed(longest));
  const double scored = static_cast<double>(held.embedding) * asked / component_groups +
                        std::max(0.0, groups - windowed / layout.group_tokens);
  const double touched = std::clamp(sparse.touched * groups, std::min(groups, sparse.tokens / rows), groups);
  work.pages = scored + 2 * touched;
  work.fullest = jobs * work.pages / drive.geometry.planes();
  work.kernel_cycles = cycles(tokens, sparse.tokens, std::min(d, double(sparse.components)));
  work.argtopk_cycles = (d + tokens) / engine.argtopk_per_cycle;
  work.phases = 2;
  return work;
}

/// Time in which flash reads pages, in phases that follow each other, behind blocks of `read` bytes: what the channels
/// carry after the first page has been sensed, what a plane senses, or what crosses the switch after the first page.
/// The last pages of all planes cross it one after another.
double reading(const DriveConfig& drive, const AttentionShape& shape, double pages, double of_plane, double phases,
               Bytes read = {}) {
  const double blocks = static_cast<double>(read.value) / page_bytes(drive), all = pages + blocks;
  if (all <= 0) return 0;
  const double sensing = seconds(drive.flash.read_latency), carrying = channel_time(drive);
  const double planes = drive.geometry.planes();
  const double carried = phases * sensing + all * carrying / drive.geometry.channels;
  const double sensed = (of_plane + std::ceil(blocks / planes)) * (sensing + carrying);
  if (!drive.peer_reads) return std::max(carried, sensed);
  const double fp16_rows = shape.tokens * row_bytes(shape) / (shape.head_dim * sizeof(Half));
  const KvRequestShape asked{shape.head_dim, shape.group, static_cast<std::uint32_t>(std::llround(fp16_rows))};
  const double crosses = page_bytes(drive) / (pages > 0 ? peer_rate(drive, asked, drive.geometry.page_size)
                                                        : per_second(drive.peer_reads->bandwidth));
  const double crossing = pages * crosses + blocks * page_bytes(drive) / per_second(drive.peer_reads->bandwidth);
  return std::max(
      {carried + crosses, sensed + std::min(all, planes) * crosses, phases * (sensing + carrying) + crossing});
}

/// Flash time of the pages that tokens fill which are stored meanwhile, over all planes: reads wait for programs.
double programming(const DriveConfig& drive, const AttentionShape& shape) {
  const double row = row_bytes(shape), jobs = double(shape.heads) * shape.sequences;
  const double pages = jobs * 2 * shape.appended * row / page_bytes(drive);
  return pages * (seconds(drive.flash.program_latency) + channel_time(drive)) / drive.geometry.planes();
}

/// By the rates of what is slowest.
double attention_by_rates(const DriveConfig& drive, const AttentionShape& shape) {
  if (shape.queries_after > 0) {
    AttentionShape at_once = shape, alone = shape;
    at_once.queries_after = alone.queries_after = 0;
    alone.read = {};
    return std::max(attention_by_rates(drive, at_once), shape.queries_after + attention_by_rates(drive, alone));
  }
  const engine::EngineConfig& engine = drive.engine;
  const JobWork job = work_of(drive, shape);
  const double jobs = double(shape.heads) * shape.sequences;
  const double cycle = 1 / static_cast<double>(engine.clock.hertz), kernel = job.kernel_cycles * cycle;
  const double argtopk = job.argtopk_cycles * cycle;
  // Keys and values that fill no page yet cross the switch from controller DRAM before the engine starts. A link that
  // has been idle forwards them at once (InternalLink::move).
  const bool waits = drive.peer_reads && shape.read.value > 0;
  const double tail = waits ? jobs * job.tail_bytes / per_second(drive.peer_reads->bandwidth) : 0;
  const double blocks = reading(drive, shape, 0, 0, 1, shape.read);
  if (shape.tokens <= 0) return blocks;
  const double flash =
      reading(drive, shape, jobs * job.pages, job.fullest, job.phases, shape.read) + programming(drive, shape);
  // The engine's work begins when the blocks are read.
  const double first_page = blocks + (job.pages > 0 ? seconds(drive.flash.read_latency) + channel_time(drive) : 0);
  // A job by itself: its pages from all channels at once, then its kernel.
  const double alone =
      reading(drive, shape, job.pages, job.pages / drive.geometry.planes(), job.phases) + kernel + argtopk;
  const double slots = blocks + jobs * alone / engine.jobs_in_flight;
  const double lookups = jobs * job.pages * seconds(drive.lookup_time) / drive.lookup_cores;
  const double computing = jobs * std::max(kernel / engine.kernels, argtopk / engine.argtopk_units);
  const double pipelined = std::max({flash, first_page + computing, slots});
  const double busy =
      engine.overlap_flash ? pipelined : flash + jobs * (kernel / engine.kernels + argtopk / engine.argtopk_units);
  return seconds(drive.pipeline_time) + tail + std::max(first_page + lookups, busy) + kernel + argtopk;
}

ScheduledTimes between(const ScheduledTimes& a, const ScheduledTimes& b, double share) {
  return {a.end + share * (b.end - a.end), a.link_idle + share * (b.link_idle - a.link_idle)};
}

}  // namespace

AttentionTimes::AttentionTimes(const DriveConfig& drive) : drive_(drive) {
  if (PageSchedule::covers(drive_)) schedule_.emplace(drive_);
}

double AttentionTimes::operator()(const AttentionShape& asked) {
  AttentionShape shape = asked;
  if (shape.read.value > 0) return by_schedule_or_rates(shape, 0);
  const double idle = std::exchange(shape.queries_after, 0), time = by_schedule_or_rates(shape, idle);
  if (!drive_.peer_reads || shape.tokens <= 0 || shape.sparse) return time;
  // One layer follows another: the internal link carries the pages and the tails of each, also while the drive is idle.
  const JobWork job = work_of(drive_, shape);
  const double bytes = double(shape.heads) * shape.sequences * (job.pages * page_bytes(drive_) + job.tail_bytes);
  return std::max(time, bytes / per_second(drive_.peer_reads->bandwidth) - idle);
}

double AttentionTimes::by_schedule_or_rates(const AttentionShape& shape, double idle) {
  // Beyond as many pages, one page more or less in a plane does not matter: between these two, both count.
  constexpr double kFew = 1024, kMany = 2048;
  const double blocks = std::ceil(static_cast<double>(shape.read.value) / page_bytes(drive_));
  const JobWork job = work_of(drive_, shape);
  const double jobs = double(shape.heads) * shape.sequences, pages = jobs * job.pages + blocks;
  if (!schedule_ || shape.sparse) return attention_by_rates(drive_, shape);
  const double share = std::clamp((kMany - pages) / (kMany - kFew), 0.0, 1.0);
  const double one_by_one = share > 0 ? share * scheduled(shape, blocks, drive_.peer_reads ? idle : 0) : 0;
  return share < 1 ? one_by_one + (1 - share) * of_many_pages(shape, job.groups, idle) : one_by_one;
}

double AttentionTimes::of_many_pages(const AttentionShape& shape, double groups, double idle) {
  // Jobs with few pages wait for each other's planes, even where there are many jobs.
  constexpr double kFewOfJob = 8, kManyOfJob = 16;
  const double share = std::clamp((kManyOfJob - groups) / (kManyOfJob - kFewOfJob), 0.0, 1.0);
  const bool follows = share > 0 && shape.read.value == 0 && shape.tokens > 0;
  const double by_rates = !follows || share < 1 ? attention_by_rates(drive_, shape) : 0;
  if (!follows) return by_rates;
  const auto whole = static_cast<std::uint32_t>(groups);
  const double above = groups - whole;
  ScheduledTimes times = of_many_jobs(shape, whole);
  if (above > 0) times = between(times, of_many_jobs(shape, whole + 1), above);
  if (drive_.peer_reads) {
    // Rows that fill no page cross the internal link before the queries arrive, in the time in which the link is idle.
    const double bytes = double(shape.heads) * shape.sequences * work_of(drive_, shape).tail_bytes;
    times.end += std::max(0.0, bytes / per_second(drive_.peer_reads->bandwidth) - idle - times.link_idle);
  }
  return share * (times.end + programming(drive_, shape)) + (1 - share) * by_rates;
}

ScheduledTimes AttentionTimes::of_many_jobs(const AttentionShape& shape, std::uint32_t groups) {
  const auto at = [&](double tokens) {
    const Asked asked{
        double(shape.head_dim), double(shape.group),   double(shape.heads),    double(shape.sequences), tokens,
        double(groups),         double(shape.kv.bits), double(shape.kv.group), double(shape.layers)};
    const auto [found, added] = of_many_jobs_.try_emplace(asked);
    if (!added) return found->second;
    AttentionShape of_kernel = shape;
    of_kernel.tokens = std::max(1.0, tokens), of_kernel.grown = 0;
    const double cycles = work_of(drive_, of_kernel).kernel_cycles;
    const ScheduledAttention work{.heads = shape.heads,
                                  .sequences = shape.sequences,
                                  .groups = groups,
                                  .kernel = cycles / static_cast<double>(drive_.engine.clock.hertz),
                                  .layers = shape.layers};
    return found->second = schedule_->of_many(work, shape.head_dim);
  };
  // The kernel's time grows with the tokens, whose number is any: from page to page.
  const double rows = std::max(1.0, std::floor(page_bytes(drive_) / row_bytes(shape)));
  const double pages = shape.tokens / rows, below = std::floor(pages);
  const ScheduledTimes times = at(below * rows);
  return pages > below ? between(times, at((below + 1) * rows), pages - below) : times;
}

double AttentionTimes::scheduled(const AttentionShape& shape, double blocks, double idle) {
  const JobWork job = work_of(drive_, shape);
  const auto whole = static_cast<std::uint32_t>(job.groups);
  const Asked asked{double(shape.head_dim),     double(shape.group),    double(shape.heads),
                    double(shape.sequences),    shape.tokens,           shape.grown,
                    double(shape.kv.bits),      double(shape.kv.group), blocks,
                    shape.queries_after + idle, double(shape.layers),   shape.way};
  const auto [at, added] = scheduled_.try_emplace(asked, 0.0);
  if (!added) return at->second + programming(drive_, shape);
  ScheduledAttention work{
      .heads = shape.tokens > 0 ? shape.heads : 0,
      .sequences = shape.sequences,
      .tail_bytes = double(shape.heads) * shape.sequences * job.tail_bytes,
      .kernel = job.kernel_cycles / static_cast<double>(drive_.engine.clock.hertz),
      .blocks = static_cast<std::uint64_t>(blocks),
      .queries_after = shape.queries_after + idle,
      .way = shape.way,
      .layers = shape.layers,
  };
  for (const std::uint32_t groups : {whole, whole + 1}) {
    const double weight = groups == whole ? 1 - (job.groups - whole) : job.groups - whole;
    if (weight <= 0) continue;
    work.groups = groups;
    at->second += weight * (schedule_->end(work, shape.head_dim) - idle);
  }
  return at->second + programming(drive_, shape);
}

double attention_time(const DriveConfig& drive, const AttentionShape& shape) { return AttentionTimes(drive)(shape); }

}  // namespace csdsim::csd_model

#include "experiment/memory/kv_format.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "experiment/memory/attention_job.h"

namespace csdsim::experiment {

namespace {

ftl::KvShape shape_of(const GenerationSetup& setup, const host::KvDivision& division, bool component_major) {
  const host::ModelShape& model = setup.plan.model;
  return {.layers = model.layers,
          .kv_heads = division.most_heads(),
          .head_dim = model.head_dim,
          .max_tokens = division.most_tokens(static_cast<std::uint32_t>(setup.plan.workload.longest_sequence())),
          .component_major = component_major,
          .format = setup.system->traits().kv_format};
}

host::KvGrouping grouping_of(const ftl::KvLayout& layout, const ftl::KvFtlConfig& kv) {
  if (!layout.component_major) return {.page_tokens = layout.group_tokens};
  const std::uint32_t rewrites = kv.tail == ftl::TailPolicy::partial_program ? kv.tail_rewrites : 0;
  return {.page_tokens = layout.group_tokens,
          .window_tokens = layout.window_tokens,
          .windowed = [layout, rewrites](std::uint64_t tokens) { return layout.windowed(tokens, rewrites); }};
}

/// A head has one of `engine.jobs_in_flight`, and its part of `engine.buffer`.
std::function<double(std::uint32_t, std::uint32_t)> share_of_engine(const GenerationSetup& setup,
                                                                    const ftl::KvLayout& layout) {
  const engine::EngineConfig& engine = setup.platform.drive.engine;
  return [system = setup.system, model = setup.plan.model, layout, buffer = engine.buffer,
          most = std::uint64_t{engine.jobs_in_flight}](std::uint32_t tokens, std::uint32_t context) {
    const engine::KvHeadView view{
        .tokens = tokens, .head_dim = layout.head_dim, .tokens_per_page = layout.fetch_tokens()};
    const Bytes each = engine::job_footprint(attention_job(*system, model, context), view);
    return 1.0 / static_cast<double>(std::clamp<std::uint64_t>(buffer.value / each.value, 1, most));
  };
}

std::unique_ptr<host::Planner> plan_from(const GenerationSetup& setup, std::uint32_t step) {
  host::PlannerInputs inputs = setup.plan;
  inputs.span = {.prefill = false, .first_step = step, .decode_steps = 0};
  inputs.drives = setup.platform.drives;
  return setup.system->plan(inputs);
}

/// Bytes of whole chunks of files that the steps before have used.
double used_bytes(const host::Planner& planner, std::uint64_t chunk) {
  std::uint64_t chunks = 0;
  for (const host::PlannedFile& file : planner.files()) {
    std::vector<host::FileRange> ranges = file.written;
    std::ranges::sort(ranges);
    std::uint64_t next = 0;  // first chunk that is not counted yet
    for (const host::FileRange& range : ranges) {
      const std::uint64_t end = (range.offset.value + range.size.value + chunk - 1) / chunk;
      const std::uint64_t first = std::max(next, range.offset.value / chunk);
      if (end > first) chunks += end - first;
      next = std::max(next, end);
    }
  }
  return double(chunks * chunk);
}

/// Bytes that a page cache needs to find what it held before step `step`.
double bytes_to_cache(const GenerationSetup& setup, std::uint32_t step) {
  const std::unique_ptr<host::Planner> planner = plan_from(setup, step);
  return planner->reuse_distance() * used_bytes(*planner, setup.file->io_size.value);
}

/// The last decode step, in which all sequences are still there.
std::uint32_t last_step(const GenerationSetup& setup) { return std::max(1U, setup.plan.workload.decode_steps()) - 1; }

/// The decode step from which on a scan of all files exceeds the page cache, where one in the run does.
std::vector<std::uint32_t> steps_that_exceed_page_cache(const GenerationSetup& setup) {
  if (!setup.file || setup.file->access != host::FileAccess::cached) return {};
  if (setup.plan.workload.own_outputs()) return {};  // simulated whole
  const auto exceeds = [&](std::uint32_t step) {
    return bytes_to_cache(setup, step) > double(setup.file->page_cache.value);
  };
  std::uint32_t first = 0, end = last_step(setup);
  if (end == 0 || exceeds(0) || !exceeds(end)) return {};
  while (end - first > 1) {
    const std::uint32_t middle = first + (end - first) / 2;
    (exceeds(middle) ? end : first) = middle;
  }
  return {end};
}

}  // namespace

KvFormat::KvFormat(const GenerationSetup& setup) {
  const host::SystemNeeds needs = setup.system->needs({.model = setup.plan.model, .workload = setup.plan.workload});
  in_drives = needs.kv == host::Place::drive_kv();
  shard = needs.shard;
  component_major = in_drives && setup.component_major.value_or(needs.component_major);
  division = kv_division(setup);
  shape = shape_of(setup, division, component_major);
  if (!in_drives) {
    grouping = {.page_tokens = needs.written_tokens, .breaks = steps_that_exceed_page_cache(setup)};
    for (const auto& feature : setup.system->features(setup.plan))
      if (std::vector<std::uint32_t> breaks = feature->breaks(setup.plan.workload.decode_steps()); !breaks.empty())
        grouping.breaks = std::move(breaks);
    return;
  }
  policy = csd_model::make_mapping(setup.platform.drive);
  layout = policy->layout(shape, setup.platform.drive.geometry.page_size, setup.platform.drive.kv.layout);
  grouping = grouping_of(layout, setup.platform.drive.kv);
  if (!setup.system->traits().chooses_tokens) grouping.engine_share = share_of_engine(setup, layout);
  if (setup.system->traits().method.sparse_budget(setup.plan.model, 1))
    grouping.newest = [system = setup.system, model = setup.plan.model](std::uint32_t context) {
      return system->traits().method.sparse_budget(model, context)->local;
    };
  grouping.division = division;
}

bool page_cache_holds_all(const GenerationSetup& setup, std::uint32_t step) {
  const std::uint32_t last = std::min(step, last_step(setup));
  return used_bytes(*plan_from(setup, last), setup.file->io_size.value) <= double(setup.file->page_cache.value);
}

host::KvDivision kv_division(const GenerationSetup& setup) {
  const host::SystemNeeds needs = setup.system->needs({.model = setup.plan.model, .workload = setup.plan.workload});
  const std::uint32_t drives = needs.kv == host::Place::drive_kv() ? setup.platform.drives : 1;
  if (needs.shares) return {*needs.shares, setup.plan.model.kv_heads, drives};
  return {needs.shard, setup.plan.model.kv_heads, drives};
}

}  // namespace csdsim::experiment

#include "experiment/generation/check_drive_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attention_engine/core/head_job.h"
#include "base/error.h"
#include "base/quantity.h"
#include "experiment/assemble.h"
#include "experiment/memory/attention_job.h"
#include "experiment/memory/flash_division.h"
#include "experiment/memory/kv_cache.h"
#include "host_runtime/core/sampling/sampling_plan.h"
#include "host_runtime/sysc/file_backend.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::experiment {

using scenario::Checker;
using scenario::Scenario;

void check_sampled_heads(Checker& c, const GenerationWorkload& work, bool has_model) {
  const Scenario& s = c.scenario();
  const std::uint32_t heads = s.simulation.sampling->heads.value_or(0);
  if (heads == 0) return;
  c.require(heads >= host::kLeastHeads, {"simulation.sampling.heads"},
            fmt::format("simulation.sampling.heads: {} show no error: use 0 (all), or at least {}", heads,
                        host::kLeastHeads));
  const csd_model::DeviceConfig& device = s.platform.device;
  c.require(device.fidelity == csd_model::Fidelity::fast && !device.engine.behind_switch(),
            {"simulation.sampling.heads", "platform.device.fidelity"},
            "simulation.sampling.heads: attention passes over heads only with fidelity: fast and an engine beside the "
            "flash controllers; use 0 (all)");
  if (has_model)
    c.require(
        s.system->needs({.model = s.model.shape(), .workload = work.lengths()}).parts_of_steps,
        {"simulation.sampling.heads", "system.kind"},
        fmt::format("simulation.sampling.heads: {} keeps more than K and V in drives from step to step, or none, so "
                    "that no heads are passed over; use 0 (all)",
                    s.system.kind()));
}

void check_sampled_layers(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  host::PlannerInputs run = planned_run(s, work.lengths());
  run.mini_batches = work.mini_batches_of(s, run.workload.batch());
  const std::string why = s.system->features(run).layers_differ();
  c.require(
      why.empty() || *s.simulation.sampling->layers >= s.model.layers,
      {"simulation.sampling.layers", "system.resident_share", "system.predictor_rank"},
      fmt::format("simulation.sampling.layers: {}: use {} (all), or leave layers and steps out", why, s.model.layers));
  const std::string why_all = s.system->needs(run).why_all_steps;
  c.require(why_all.empty(), {"simulation.sampling.steps", "workload.mini_batches"},
            fmt::format("simulation.sampling.steps: steps of {} cannot stand for others: {}; use one mini-batch, or "
                        "sampling: off",
                        s.system.kind(), why_all));
}

void check_neurons(Checker& c, const GenerationWorkload& work, bool has_model) {
  constexpr std::string_view kHere = "simulation.neurons";
  Scenario& s = c.scenario();
  if (s.simulation.data == ftl::DataMode::carried)
    return c.refuse_unused(kHere, "simulation.data", "runs that carry data compute which neurons are active");
  if (!has_model) return;
  const host::RunFeatures features = s.system->features(planned_run(s, work.lengths()));
  if (std::ranges::none_of(features, [](const auto& feature) { return feature->takes_neurons(); }))
    return c.refuse_unused(kHere, "system.kind", "the system does not choose neurons");
  for (const char* const of_model : {"system.active_share", "system.concentration", "system.persistence"})
    c.refuse_unused(of_model, kHere, "the neurons are recorded");
  c.resolve(*s.simulation.neurons, kHere, "file");
}

void check_tokens(Checker& c) {
  constexpr std::string_view kHere = "simulation.tokens";
  Scenario& s = c.scenario();
  if (s.simulation.data == ftl::DataMode::carried)
    return c.refuse_unused(kHere, "simulation.data", "runs that carry data compute which tokens matter");
  if (!s.system->traits().chooses_tokens)
    return c.refuse_unused(kHere, "system.kind", "the system moves no chosen tokens");
  auto* const recorded = std::get_if<scenario::RecordedTokensConfig>(&s.simulation.tokens);
  if (recorded == nullptr || !c.readable({kHere})) return;
  if (recorded->file.given.empty())
    c.error_at(kHere, "simulation.tokens: kind recorded needs the file that was recorded");
  else
    c.resolve(recorded->file, "simulation.tokens.file", "file");
}

void check_file_space(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  const auto path = work.file_path(s);
  if (!path || work.prompts) return;
  const platform::HostConfig& host = s.platform.host;
  const bool swap = *path == host::FilePath::swap;
  const std::uint64_t io = (swap ? host.swap.io_size : host.file.io_size).value;
  host::PlannerInputs run = planned_run(s, work.lengths());
  run.mini_batches = work.mini_batches_of(s, run.workload.batch());
  run.gpus = s.platform.gpu.count;
  std::vector<std::uint64_t> bytes(run.drives);
  try {
    for (const host::PlannedFile& file : s.system->plan(run)->files())
      bytes[file.drive.value] += (file.size.value + io - 1) / io * io;
  } catch (const UserError&) {
    return;  // the system's own check says why there is no plan
  }
  const std::uint64_t most = std::ranges::max(bytes);
  const std::string at = swap ? "platform.host.swap.io_size" : "platform.host.file.io_size";
  if (const std::optional<Bytes> exported = exported_capacity_if_any(s))
    c.require(most <= exported->value,
              {at, "system.written_tokens", "platform.device.flash.blocks_per_plane", "workload.batch", "system.kind"},
              fmt::format("{}: files of whole I/Os of {} take {:.3g} GiB of a drive, which has {:.3g} GiB", at,
                          format_quantity(Bytes{io}), double(most) / (1 << 30), double(exported->value) / (1 << 30)));
  if (!swap && host.file.access == host::FileAccess::direct) return;
  // Each I/O in flight has a buffer, whose size is rounded up to a power of two; there are no more I/Os than the files
  // have.
  const std::uint32_t threads = swap ? host.swap.threads : host.file.threads;
  const std::uint64_t all = std::reduce(bytes.begin(), bytes.end()) / io;
  const std::uint64_t in_flight = std::min<std::uint64_t>(all, threads + host::FileBackend::kWriteBackDepth);
  const Bytes buffers{in_flight * std::bit_ceil(io)};
  c.require(buffers <= host.memory,
            {at, swap ? "platform.host.swap.threads" : "platform.host.file.threads", "platform.host.memory"},
            fmt::format("{}: {} I/Os of {} may be in flight, whose buffers take {:.3g} MiB of host memory, which has "
                        "{:.3g} MiB: use smaller I/Os, or fewer threads",
                        at, in_flight, format_quantity(Bytes{io}), double(buffers.value) / (1 << 20),
                        double(host.memory.value) / (1 << 20)));
}

void check_query_groups(Checker& c) {
  const Scenario& s = c.scenario();
  constexpr std::uint32_t kMost = std::numeric_limits<decltype(nvme::KvAttend::group)>::max();
  const std::uint32_t group = s.model.heads / s.model.kv_heads;
  c.require(group <= kMost, {"model.heads", "model.kv_heads"},
            fmt::format("model.heads: {} heads share K and V of a KV head; a command to a drive has at most {} of them",
                        group, kMost));
}

void check_job_size(Checker& c, const GenerationWorkload& work, const ftl::KvLayout& layout) {
  constexpr std::string_view kHere = "platform.device.engine.buffer";
  const Scenario& s = c.scenario();
  // How many tokens are scored at a time is up to the planner; the length of prompts is not known yet.
  if (s.system->traits().chooses_tokens || work.prompts || !c.readable({kHere})) return;
  const auto context = static_cast<std::uint32_t>(longest_sequence(s) - 1);  // the last token is not fed
  const engine::KvHeadView view{.tokens = kv_division(s).most_tokens(context),
                                .head_dim = s.model.head_dim,
                                .tokens_per_page = layout.fetch_tokens()};
  const engine::HeadJob job = attention_job(*s.system, s.model.shape(), context);
  const Bytes need = engine::job_footprint(job, view), buffer = s.platform.device.engine.buffer;
  c.require(need <= buffer, {kHere, "workload.input_tokens", "workload.output_tokens", "workload.requests"},
            fmt::format("{}: {} do not hold a head of {} tokens, which needs {} B", kHere, format_quantity(buffer),
                        view.tokens, need.value));
}

void check_comparison(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  struct Use {
    bool files, blocks, kv;
  };
  const auto use_of = [&](const host::OffloadSystem& system) {
    const host::SystemNeeds needs = system.needs({.model = s.model.shape(), .workload = work.lengths()});
    return Use{needs.files.has_value(), keeps_blocks(needs), needs.kv == host::Place::drive_kv()};
  };
  const Use own = use_of(*s.system);
  for (const std::string& other : s.simulation.compare) {
    if (other == scenario::kHostComparison || other == s.system.kind()) continue;
    const Use use = use_of(*s.system.kinds().make(other));
    c.require(
        !own.files && !use.files, {"simulation.compare", "system.kind"},
        fmt::format("simulation.compare: {} and {} need different drives, because one keeps data in files: run them "
                    "one after another",
                    s.system.kind(), other));
    c.require(
        own.files || use.files || ((own.blocks || !use.blocks) && (own.kv || !use.kv)),
        {"simulation.compare", "system.kind"},
        fmt::format("simulation.compare: {} and {} need different drives, because one keeps weights in blocks and "
                    "not K and V: run them one after another",
                    s.system.kind(), other));
  }
}

}  // namespace csdsim::experiment

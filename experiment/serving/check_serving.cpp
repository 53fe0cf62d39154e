#include "experiment/serving/check_serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/block_io/check_blocks.h"
#include "experiment/serving/hit_rates.h"
#include "experiment/serving/serving_trace_source.h"

namespace csdsim::experiment {

using scenario::Checker;

namespace {

/// Makes the policies once, so that a name or a setting that is wrong is told where it stands.
void check_policies(Checker& c, const TierConfig& tier, const std::string& path) {
  const auto check = [&](const std::string& key, const std::string& text, const auto& registry) {
    try {
      const CachePolicyChoice choice = cache_policy_choice(text);
      registry.at(choice.name)(host::CachePolicyContext{.capacity = 1000, .settings = choice.settings});
    } catch (const UserError& e) {
      c.error_at(path + "." + key, fmt::format("{}.{}: {}", path, key, e.what()));
    }
  };
  check("eviction", tier.eviction, host::builtin_eviction_policies());
  check("admission", tier.admission, host::builtin_admission_policies());
}

void check_blocks(Checker& c, const ServingWorkload& work) {
  const std::uint32_t gpu = work.engine.block_tokens;
  constexpr std::string_view kTier = "workload.tiers.block_tokens", kGpu = "workload.engine.block_tokens";
  c.require(work.tier_block_tokens() % gpu == 0, {kTier, kGpu},
            fmt::format("{}: {} tokens are not whole blocks of the GPU of {} tokens ({})", kTier,
                        work.tier_block_tokens(), gpu, kGpu));
  if (work.trace && work.trace->block_tokens)
    c.require(*work.trace->block_tokens % gpu == 0, {kGpu, "workload.requests"},
              fmt::format("{}: the trace has blocks of {} tokens, which are not whole blocks of {}", kGpu,
                          *work.trace->block_tokens, gpu));
}

void check_memory(Checker& c, const ServingWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  const host::ServingEngine::Config config = work.engine_config(s);
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 30); };
  constexpr std::string_view kShare = "workload.engine.gpu_memory_share";
  c.require(config.engine.gpu_blocks > 0, {kShare, "platform.gpu.memory", "model"},
            fmt::format("{}: {} of {:.1f} GiB do not hold weights of {:.1f} GiB, {:.1f} GiB of the runtime and a KV "
                        "block",
                        kShare, format_quantity(work.engine.gpu_memory_share), gib(s.platform.gpu.memory),
                        gib(s.model.weight_bytes()), gib(work.engine.runtime_memory)));
  Bytes host;
  if (work.tiers.host) host += work.tiers.host->capacity;
  if (work.tiers.drives) host += work.tiers.drives->staging;
  if (work.has_files()) host += work.tiers.drives->files->metadata_cache * s.platform.device.count;
  if (work.engine.preemption == host::Preemption::swap) host += work.engine.swap_space * work.engine.instances;
  c.require(host <= s.platform.host.memory,
            {"workload.tiers.host.capacity", "workload.tiers.drives.staging", "platform.host.memory"},
            fmt::format(
                "workload.tiers.host.capacity: KV blocks, staging, metadata of files and swap space take {:.1f} GiB of "
                "host memory, which has {:.1f} GiB",
                gib(host), gib(s.platform.host.memory)));
  if (!work.trace || config.engine.gpu_blocks == 0) return;
  for (const host::TracedRequest& r : work.trace->requests) {
    const std::uint64_t tokens = std::uint64_t{r.prompt} + r.output;
    const std::uint64_t holds = config.engine.gpu_blocks * config.engine.block_tokens;
    if (tokens <= holds && (work.engine.chunked_prefill || tokens <= work.engine.step_tokens)) continue;
    if (tokens > holds)
      c.require(false, {kShare, "platform.gpu.memory"},
                fmt::format("{}: the request of line {} has {} tokens; a GPU of {:.0f} GiB holds K and V of {} "
                            "beside the weights: more platform.gpu.memory, a smaller model, or a trace without it",
                            kShare, r.line, tokens, gib(s.platform.gpu.memory), holds));
    else
      c.require(false, {"workload.engine.step_tokens", "workload.engine.chunked_prefill"},
                fmt::format("workload.engine.step_tokens: the request of line {} has {} tokens; without chunked "
                            "prefill a step of {} does not take it",
                            r.line, tokens, work.engine.step_tokens));
    return;
  }
}

void check_files(Checker& c, const ServingWorkload& work, Bytes usable) {
  const scenario::Scenario& s = c.scenario();
  const DriveTierConfig& drives = *work.tiers.drives;
  const host::FileConfig& io = s.platform.host.file;
  constexpr std::string_view kFiles = "workload.tiers.drives.files", kAccess = "platform.host.file.access",
                             kSize = "platform.host.file.io_size", kCapacity = "workload.tiers.drives.capacity";
  if (io.access == host::FileAccess::cached)
    c.error_at(
        c.given(kAccess) ? kAccess : kFiles,
        fmt::format("{}: files of a tier are read and written past the page cache (direct: O_DIRECT), or through "
                    "I/O buffers (bounce); say which with {}",
                    kAccess, kAccess));
  c.require(
      io.access != host::FileAccess::bounce || drives.path == host::DrivePath::staged,
      {"workload.tiers.drives.path", kAccess},
      fmt::format("workload.tiers.drives.path: with {}: bounce threads copy to and from host memory only", kAccess));
  const Bytes logical = s.platform.device.nvme.block_size;
  c.require(io.io_size.value % logical.value == 0, {kSize, "platform.device.nvme.block_size"},
            fmt::format("{}: {} are not whole logical blocks", kSize, format_quantity(io.io_size)));
  c.require(logical.value <= host::FileSystemLayout::kBlock, {kFiles, "platform.device.nvme.block_size"},
            fmt::format("{}: a file system has blocks of 4 KiB, the drive logical ones of {}", kFiles,
                        format_quantity(logical)));
  const auto& flash = s.platform.device.flash;
  if (flash.reliability && flash.geometry.page_size.value > host::FileSystemLayout::kBlock)
    c.note_at(kFiles,
              fmt::format("{}: metadata is written in parts of pages, the rest of which is read: where that cannot "
                          "be read back (platform.device.flash.reliability), the run ends with an error",
                          kFiles));
  if (drives.request)
    c.refuse_unused("workload.tiers.drives.request", kFiles, fmt::format("{} is the size of an I/O", kSize));
  const Bytes capacity = drives.capacity.value_or(usable), block = work.tiers_config(s).whole_block();
  const host::FileSystemLayout layout(*drives.files, capacity, block);
  c.require(
      layout.files > 0, {kCapacity, "workload.tiers.drives.files.journal", "workload.tiers.drives.files.directories"},
      fmt::format("{}: a file system of {:.4g} GB does not hold two files of {} beside {:.4g} GB of journal, inodes "
                  "and directories ({}.journal, {}.directories)",
                  kCapacity, double(capacity.value) / 1e9, format_quantity(block), double(layout.data.value) / 1e9,
                  kFiles, kFiles));
}

void check_tiers(Checker& c, const ServingWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  const Bytes block = work.kv_token(s) * work.tier_block_tokens();
  if (work.tiers.host) {
    check_policies(c, *work.tiers.host, "workload.tiers.host");
    c.require(work.tiers.host->capacity >= block, {"workload.tiers.host.capacity", "workload.tiers.block_tokens"},
              fmt::format("workload.tiers.host.capacity: {} do not hold a KV block of {}",
                          format_quantity(work.tiers.host->capacity), format_quantity(block)));
  }
  if (!work.tiers.drives) return;
  const DriveTierConfig& drives = *work.tiers.drives;
  constexpr std::string_view kCapacity = "workload.tiers.drives.capacity";
  check_policies(c, drives, "workload.tiers.drives");
  if (const std::optional<Bytes> exported = exported_capacity_if_any(s)) {
    c.require(drives.capacity.value_or(*exported) <= *exported, {kCapacity, "platform.device.capacity"},
              fmt::format("{}: {} are more than a drive exports, {:.4g} GB", kCapacity,
                          format_quantity(drives.capacity.value_or(*exported)), double(exported->value) / 1e9));
    if (drives.files)
      check_files(c, work, *exported);
    else
      c.require(work.drive_blocks(s, *exported) > 0, {kCapacity, "workload.tiers.block_tokens"},
                fmt::format("{}: a drive does not hold a KV block of {}", kCapacity, format_quantity(block)));
  }
  if (drives.path == host::DrivePath::direct && drives.fills_staging_once)
    c.error_at("workload.tiers.drives.fills_staging_once",
               "workload.tiers.drives.fills_staging_once: with path: direct blocks pass through no staging buffer");
  if (drives.path == host::DrivePath::staged)
    c.require(drives.staging >= work.tiers_config(s).whole_block(),
              {"workload.tiers.drives.staging", "workload.tiers.block_tokens"},
              fmt::format("workload.tiers.drives.staging: {} do not hold a KV block of {}",
                          format_quantity(drives.staging), format_quantity(block)));
  if (drives.request)
    c.require(drives.request->value % s.platform.device.nvme.block_size.value == 0,
              {"workload.tiers.drives.request", "platform.device.nvme.block_size"},
              fmt::format("workload.tiers.drives.request: {} are not whole logical blocks",
                          format_quantity(*drives.request)));
}

/// Promotions take the place of the staging buffer, and of what is known of loads.
void check_promotion(Checker& c, const ServingWorkload& work) {
  constexpr std::string_view kPromotion = "workload.tiers.promotion";
  const TiersConfig& tiers = work.tiers;
  if (tiers.promotion == host::PromotionPolicy::with_load) return;
  const auto require = [&](bool ok, std::string_view path, std::string_view why) {
    c.require(ok, {path, kPromotion}, fmt::format("{}: with {}: at_lookup {}", path, kPromotion, why));
  };
  require(tiers.host.has_value(), "workload.tiers.host", "blocks of drives pass the tier in host memory");
  require(tiers.drives.has_value(), "workload.tiers.drives", "there must be drives that blocks come from");
  if (!tiers.host || !tiers.drives) return;
  require(tiers.host->admission == "always", "workload.tiers.host.admission", "host memory takes every block");
  require(tiers.drives->path == host::DrivePath::staged, "workload.tiers.drives.path", "blocks pass host memory");
  require(!tiers.drives->fills_staging_once, "workload.tiers.drives.fills_staging_once",
          "loads pass no staging buffer");
  require(tiers.retrieval != host::RetrievalPolicy::cheaper_of_both, "workload.tiers.retrieval",
          "the rate of loads from drives is not known");
}

void check_carried(Checker& c, const ServingWorkload& work) {
  c.require(c.scenario().model.path.has_value(), {"simulation.data", "model.preset"},
            "simulation.data: carried data needs weights: name a checkpoint with model: {path: DIR}");
  c.require(work.engine.kv_element_bytes == 2, {"workload.engine.kv_element_bytes", "simulation.data"},
            "workload.engine.kv_element_bytes: runs that carry data keep K and V in 2 bytes");
}

}  // namespace

void check_serving(Checker& c, ServingWorkload& work) {
  work.trace.reset();
  if (!c.readable({"workload", "workload.requests", "workload.generate"})) return;
  if (!scenario::check_model(c)) return;
  const scenario::Scenario& s = c.scenario();
  for (const std::string_view path : {"system", "simulation.selection", "simulation.sampling"})
    if (c.given(path)) c.note_at(path, fmt::format("{} has no effect in a {} workload", path, ServingWorkload::kKind));
  if (s.simulation.data == ftl::DataMode::carried) check_carried(c, work);
  c.require(s.platform.gpu.count == 1, {"platform.gpu.count"},
            "platform.gpu.count: workload.engine.instances says how many GPUs there are");
  c.require(work.requests.has_value() != work.generate.has_value(), {"workload.requests", "workload.generate"},
            "workload.requests: give a trace, or generate one (workload.generate)");
  if (work.requests.has_value() == work.generate.has_value()) return;
  if (work.generate && work.first_requests)
    c.error_at("workload.first_requests",
               "workload.first_requests: workload.generate.requests says how many there are");
  if (work.interarrival) c.refuse_unused("workload.speed", "workload.interarrival", "interarrival draws the times");
  work.trace = serving_trace(c, work);
  if (work.trace && work.first_requests && *work.first_requests > work.trace->requests.size())
    c.note_at("workload.first_requests",
              fmt::format("workload.first_requests: the trace has {} requests", work.trace->requests.size()));
  constexpr std::size_t kMany = 2000;
  if (work.trace && work.trace->requests.size() > kMany && work.tiers.drives &&
      work.tiers.drives->model == DriveModel::simulated)
    c.note_at("workload.requests",
              fmt::format("workload.requests: {} requests with every page of the drives simulated may take long; "
                          "workload.first_requests takes a part of them, workload.tiers.drives.model: rates takes "
                          "seconds (without collection and wear)",
                          work.trace->requests.size()));
  if (work.trace && !work.trace->block_tokens)
    c.note_at("workload.requests",
              "workload.requests: the trace has lengths only: no request finds a block of another one");
  if (work.trace)
    c.require(
        work.warmup_requests < work.trace->requests.size(), {"workload.warmup_requests"},
        fmt::format("workload.warmup_requests: {} of {} requests", work.warmup_requests, work.trace->requests.size()));
  if (work.trace && work.engine.order == host::AdmissionOrder::priority &&
      std::ranges::all_of(work.trace->requests, [](const host::TracedRequest& r) { return r.priority == 0; }))
    c.note_at("workload.engine.order",
              "workload.engine.order: the trace states no priorities: the order is that of arrival");
  const auto& slo = work.slo;
  c.require(!slo || slo->ttft || slo->tpot || slo->latency,
            {"workload.slo", "workload.slo.ttft", "workload.slo.tpot", "workload.slo.latency"},
            "workload.slo: give ttft, tpot or latency");
  if (const auto& pressure = work.tiers.back_pressure)
    c.require(pressure->off <= pressure->on, {"workload.tiers.back_pressure.off", "workload.tiers.back_pressure.on"},
              "workload.tiers.back_pressure.off: is above on");
  check_blocks(c, work);
  check_memory(c, work);
  check_tiers(c, work);
  check_promotion(c, work);
  check_blocks_and_queues(c);
}

}  // namespace csdsim::experiment

#include "experiment/serving/serving_workload.h"

#include <algorithm>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/serving/check_serving.h"
#include "experiment/serving/serving_result.h"
#include "host_runtime/core/plan/system.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

using scenario::Scenario;

void describe(ParamVisitor& v, GenerateConfig& c) {
  constexpr std::uint32_t kMost = 16'777'216;
  constexpr SimTime kDay = SimTime::milliseconds(86'400'000);
  v.param("kind", c.kind, "Kind of trace, as of csdsim make-trace.", assumed("the most frequent kind with a KV tier"));
  v.optional("requests", c.requests, "auto", {1, 10'000'000}, "Number of requests.", assumed("that of the kind"));
  v.optional("input_tokens", c.input_tokens, "auto", {1, kMost},
             "Mean number of tokens that a user or tool adds to the prompt.", assumed("that of the kind"));
  v.optional("output_tokens", c.output_tokens, "auto", {1, kMost}, "Mean number of tokens of an answer.",
             assumed("that of the kind"));
  v.optional("prefixes", c.prefixes, "auto", {1, kMost}, "Texts of which every session begins with one.",
             assumed("that of the kind"));
  v.optional("prefix_tokens", c.prefix_tokens, "auto", {0, kMost}, "Tokens of each of them.",
             assumed("that of the kind"));
  v.optional("most_tokens", c.most_tokens, "auto", {1, kMost},
             "A session ends before a prompt and its answer have more tokens.", assumed("that of the kind"));
  v.optional("clients", c.clients, "auto", {1, 1'000'000}, "Requests at a time in a closed loop.",
             assumed("that of the kind"));
  v.optional("block_tokens", c.block_tokens, "auto", {1, 65'536}, "Tokens of a block that requests can share.",
             assumed("that of the kind"));
  v.optional("gap", c.gap, "auto", {SimTime::nanoseconds(1), kDay}, "Mean time between requests of all sessions.",
             assumed("that of the kind"));
  v.optional("delay", c.delay, "auto", {SimTime{}, kDay},
             "Mean time from an answer to the next request of its session.", assumed("that of the kind"));
  v.optional("turns", c.turns, "auto", {Ratio{1, 1}, Ratio{100'000, 1}}, "Mean number of requests of a session.",
             assumed("that of the kind"));
  v.optional("burst", c.burst, "auto", {Ratio{1, 1}, Ratio{100'000, 1}},
             "Mean number of requests that arrive together.", assumed("that of the kind"));
}

void describe(ParamVisitor& v, ServingEngineConfig& c) {
  v.param("instances", c.instances, {1, 64}, "Engines, of one GPU each, that share host memory and drives.",
          assumed("one GPU"));
  v.param("routing", c.routing, "Which engine a request goes to.", assumed("the simplest"));
  v.param("gpu_memory_share", c.gpu_memory_share, {Ratio::of(1, 1000), Ratio{1, 1}},
          "Share of the GPU's memory that the engine takes, for weights, runtime and KV blocks.",
          datasheet("vLLM, gpu_memory_utilization: 0.9"));
  v.param("runtime_memory", c.runtime_memory, {Bytes{}, Bytes::gib(64)},
          "What the engine takes beside weights and KV blocks: context, activations, graphs.",
          assumed("vLLM measures it; 1 to 3 GiB for models of 1 to 32 billion parameters"));
  v.param("block_tokens", c.block_tokens, {1, 65'536}, "Tokens of a KV block of the GPU.",
          datasheet("vLLM: 16 tokens"));
  v.param("kv_element_bytes", c.kv_element_bytes, {1, 2}, "Bytes of an element of K and V, in all tiers.",
          datasheet("vLLM, kv_cache_dtype: that of the model, 2 bytes; fp8: 1"));
  v.param("prefix_caching", c.prefix_caching, "Blocks of ended requests stay in the GPU while there is room.",
          datasheet("vLLM, enable_prefix_caching: on"));
  v.param("most_running", c.most_running, {1, 65'536}, "Requests that run at a time.",
          datasheet("vLLM, max_num_seqs: 256"));
  v.param("step_tokens", c.step_tokens, {1, 16'777'216}, "Most tokens of a step.",
          datasheet("vLLM, max_num_batched_tokens: 8192 for servers"));
  v.param("chunked_prefill", c.chunked_prefill, "A prompt may be computed in several steps.", datasheet("vLLM: on"));
  v.param("order", c.order, "Which of the waiting requests is next.", datasheet("vLLM, scheduling_policy: fcfs"));
  v.param("preemption", c.preemption, "What becomes of the last request when blocks run out.",
          datasheet("vLLM: recomputed"));
  v.param("swap_space", c.swap_space, {Bytes{}, Bytes::gib(65'536)},
          "Host memory of each engine for preempted requests, with preemption: swap.",
          datasheet("vLLM (V0), swap_space: 4 GiB"));
  v.param("granularity", c.granularity, "How a step occupies the GPU.", assumed("times add up to the same"));
  v.param("step_overhead", c.step_overhead, {SimTime{}, SimTime::milliseconds(1000)},
          "Time of a step in which the GPU waits for the engine's own code.",
          assumed("with asynchronous scheduling little is left of the 2 to 5 ms that a step of vLLM takes on the CPU"));
  v.param("unified_memory", c.unified_memory,
          "GPU and host have one memory, as in a DGX Spark: a copy between them takes its bandwidth twice.",
          assumed("a GPU with memory of its own"));
}

namespace {

void describe_policies(ParamVisitor& v, TierConfig& c) {
  v.param("eviction", c.eviction,
          "Which block leaves a full tier: a policy of csdsim list evictions, with its settings as in "
          "NAME:setting=value.",
          datasheet("vLLM, LMCache: lru"));
  v.param("admission", c.admission,
          "Which blocks are stored at all: always, nth_sighting:n=2 or frequency, written likewise.",
          datasheet("vLLM: all"));
}

}  // namespace

void describe(ParamVisitor& v, HostTierConfig& c) {
  v.param("capacity", c.capacity, {Bytes::kib(4), Bytes::gib(1'048'576)}, "Host memory for KV blocks.",
          assumed("a part of a server's memory"));
  describe_policies(v, c);
}

void describe(ParamVisitor& v, DriveTierConfig& c) {
  v.optional("capacity", c.capacity, "all", {Bytes::kib(4), Bytes::gib(1'048'576)},
             "Range of each drive for KV blocks, which fill it from the beginning.", assumed("the drive is for this"));
  describe_policies(v, c);
  v.param("path", c.path, "How blocks pass between drive and GPU.", datasheet("vLLM, LMCache: through host memory"));
  v.param("staging", c.staging, {Bytes::kib(4), Bytes::gib(65'536)},
          "Host memory for blocks on their way from and to drives.", assumed("enough to keep several drives busy"));
  v.param("fills_staging_once", c.fills_staging_once,
          "A request loads no more than the staging buffer holds, and computes the rest; otherwise blocks pass through "
          "it in turn.",
          assumed("in turn; SGLang 40193 reports an engine that fills it once"));
  v.param("in_flight", c.in_flight, {1, 1024}, "Reads, and as many writes, of KV blocks that a drive has at a time.",
          assumed("threads of a file tier"));
  v.optional("request", c.request, "all", {Bytes::kib(4), Bytes::gib(1)},
             "Largest request: a KV block is read or written in requests of this size, all at once.",
             assumed("one request; the driver cuts it into commands"));
  v.optional_section(
      "files", c.files, "off",
      "A file per KV block on a journalling file system; otherwise blocks lie in a raw range of the drive, "
      "or in one file that is allocated as a whole.",
      assumed("LMCache and Mooncake have large files; vLLM and SGLang have one per block"));
  v.param("model", c.model, "How the drives are modelled.", assumed("the purpose of a simulation"));
}

void describe(ParamVisitor& v, BackPressureConfig& c) {
  v.param("on", c.on, {SimTime::nanoseconds(1), SimTime::milliseconds(10'000'000)},
          "Stores are dropped once their mean latency is above this.", datasheet("vLLM: 1.0 s"));
  v.param("off", c.off, {SimTime::nanoseconds(1), SimTime::milliseconds(10'000'000)},
          "Stores are let through again once it is below this.", datasheet("vLLM: 0.5 s"));
}

void describe(ParamVisitor& v, TiersConfig& c) {
  v.optional("block_tokens", c.block_tokens, "auto", {1, 16'777'216},
             "Tokens of a KV block of the tiers: whole blocks of the GPU; auto: those of the trace, or of 16 GPU "
             "blocks.",
             assumed("what the trace says is shared"));
  v.param("store", c.store, "When blocks go to the tiers.", assumed("every tier has what was computed"));
  v.param("load", c.load, "When blocks of the tiers come to the GPU.", datasheet("vLLM: asynchronously"));
  v.param("retrieval", c.retrieval, "Whether blocks that a tier has are read.", datasheet("vLLM: always"));
  v.param("promotion", c.promotion, "When blocks of drives come to host memory.",
          assumed("no request takes host memory before it is its turn; vLLM: at_lookup"));
  v.param("wait_for_pending", c.wait_for_pending,
          "A request waits for a block that is being written to a tier; otherwise it computes it.",
          assumed("it is computed"));
  v.param("lookup_steps", c.lookup_steps, {0, 1000},
          "Steps of the scheduler from the arrival of a request until the tiers have answered.",
          assumed("none; vLLM needs 1 for files"));
  v.param("waits_for_stores", c.waits_for_stores,
          "The next step waits until the blocks that were offered to the tiers have been copied out of the GPU.",
          assumed("copies go on beside steps, as in vLLM; LMCache's layer-wise stores wait"));
  v.optional_section("host", c.host, "off", "Host memory as a tier.", assumed("engines that have drives have it too"));
  v.optional_section("drives", c.drives, "off", "The drives as a tier behind it.", assumed("what is to be found out"));
  v.optional_section("back_pressure", c.back_pressure, "off", "Drops stores while they take long.",
                     assumed("every block is stored"));
}

void describe(ParamVisitor& v, SloConfig& c) {
  constexpr Range<SimTime> kRange{SimTime::nanoseconds(1), SimTime::milliseconds(10'000'000)};
  v.optional("ttft", c.ttft, "none", kRange, "Most time from the arrival to the first token.", assumed("no limit"));
  v.optional("tpot", c.tpot, "none", kRange, "Most time per further token, on average.", assumed("no limit"));
  v.optional("latency", c.latency, "none", kRange, "Most time from the arrival to the last token.",
             assumed("no limit"));
}

void ServingWorkload::describe(ParamVisitor& v) {
  v.optional("requests", requests, "none",
             "Trace of requests in a format of docs/traces.md; this or generate is required.",
             assumed("there is no usual trace"));
  v.optional_section("generate", generate, "none", "A trace that is made by the seed, in place of a file.",
                     assumed("a trace is given"));
  v.optional("first_requests", first_requests, "all", {1, 100'000'000}, "Requests of the file that are used.",
             assumed("the whole file"));
  v.optional("interarrival", interarrival, "none", {SimTime::nanoseconds(1), SimTime::milliseconds(10'000'000)},
             "Mean time between requests that arrive in a Poisson process, drawn by the seed; replaces their times.",
             assumed("as recorded"));
  v.param("speed", speed, {Ratio::of(1, 1'000'000), Ratio{1'000'000, 1}},
          "Speed relative to the recording: 2 halves the times between requests.", assumed("as recorded"));
  v.param("warmup_requests", warmup_requests, {0, 100'000'000},
          "First requests that are served, but left out of the metrics of requests. Rates count all that end after the "
          "arrival of the first one that counts.",
          assumed("all count"));
  v.section("engine", engine, "The serving engines.");
  v.section("tiers", tiers, "What keeps KV blocks behind the GPUs.");
  v.optional_section("slo", slo, "none", "What makes a request good (goodput).", assumed("nothing is promised"));
}

void ServingWorkload::prune(nlohmann::ordered_json& config, const Scenario&) const {
  for (const char* const unused : {"system", "simulation.selection", "simulation.tokens", "simulation.neurons",
                                   "simulation.sampling", "platform.device.energy.mac", "platform.gpu.count",
                                   "platform.gpu.link.peer_to_peer", "platform.root_complex", "platform.switch"})
    scenario::erase_path(config, unused);
  if (!requests) scenario::erase_path(config, "workload.first_requests");
  if (engine.preemption != host::Preemption::swap) scenario::erase_path(config, "workload.engine.swap_space");
  if (engine.instances == 1) scenario::erase_path(config, "workload.engine.routing");
  if (!tiers.drives) scenario::erase_path(config, "platform.device");
  if (has_files())
    for (const char* const unused : {"threads", "page_cache", "dirty_ratio", "write_back_size"})
      scenario::erase_path(config, std::string("platform.host.file.") + unused);
}

bool ServingWorkload::ends_early(const Scenario& s) const { return s.simulation.data != ftl::DataMode::carried; }

std::uint32_t ServingWorkload::tier_block_tokens() const {
  if (tiers.block_tokens) return *tiers.block_tokens;
  if (trace && trace->block_tokens && *trace->block_tokens >= engine.block_tokens) return *trace->block_tokens;
  return engine.block_tokens * 16;
}

Bytes ServingWorkload::kv_token(const Scenario& s) const {
  const host::ModelShape model = s.model.shape();
  return Bytes{model.kv_bytes_per_token().value / model.element_bytes * engine.kv_element_bytes};
}

host::ServingEngine::Config ServingWorkload::engine_config(const Scenario& s) const {
  const host::StoreTraits store = host::traits_of(tiers.store);
  const Bytes block = kv_token(s) * engine.block_tokens;
  const std::uint64_t memory = engine.gpu_memory_share.floor_of(s.platform.gpu.memory.value);
  const std::uint64_t others = s.model.weight_bytes().value + engine.runtime_memory.value;
  return {.engine = {.block_tokens = engine.block_tokens,
                     .gpu_blocks = memory > others ? (memory - others) / block.value : 0,
                     .block_bytes = block,
                     .factor = tier_block_tokens() / engine.block_tokens,
                     .prefix_caching = engine.prefix_caching,
                     .most_running = engine.most_running,
                     .step_tokens = engine.step_tokens,
                     .chunked_prefill = engine.chunked_prefill,
                     .order = engine.order,
                     .preemption = engine.preemption,
                     .swap_space = engine.swap_space,
                     .load = tiers.load,
                     .retrieval = tiers.retrieval,
                     .promotion = tiers.promotion,
                     .wait_for_pending = tiers.wait_for_pending,
                     .lookup_steps = tiers.lookup_steps,
                     .evicts_to_tiers = !store.when_computed,
                     .stores_answers = store.answers,
                     .waits_for_stores = tiers.waits_for_stores,
                     .granularity = engine.granularity,
                     .step_overhead = engine.step_overhead,
                     .gpu_memory = s.platform.gpu.memory_bandwidth,
                     .unified_memory = engine.unified_memory},
          .instances = engine.instances,
          .routing = engine.routing};
}

host::KvTiersConfig ServingWorkload::tiers_config(const Scenario& s) const {
  const bool by_layer = tiers.load == host::LoadPolicy::by_layer && engine.granularity == host::StepGranularity::layer;
  host::KvTiersConfig config{.block_bytes = kv_token(s) * tier_block_tokens(),
                             .parts = by_layer ? s.model.shape().layers : 1,
                             .part_alignment = Bytes{1},
                             .store = host::traits_of(tiers.store),
                             .staging = {},
                             .back_pressure = {}};
  if (tiers.drives) {
    config.part_alignment = s.platform.device.nvme.block_size;
    config.path = tiers.drives->path;
    config.drives = s.platform.device.count;
    config.staging = tiers.drives->staging;
    config.fills_staging_once = tiers.drives->fills_staging_once;
    if (const auto& files = tiers.drives->files)
      config.files =
          host::KvFiles::Config{.files = *files,
                                .io = s.platform.host.file.params(Bytes{}),
                                .capacity = tiers.drives->capacity ? *tiers.drives->capacity : exported_capacity(s),
                                .threads = tiers.drives->in_flight};
  }
  if (tiers.back_pressure)
    config.back_pressure = host::BackPressure::Config{.on = tiers.back_pressure->on, .off = tiers.back_pressure->off};
  return config;
}

std::optional<host::FilePath> ServingWorkload::file_path(const Scenario&) const {
  return has_files() ? std::optional(host::FilePath::file_system) : std::nullopt;
}

std::uint64_t ServingWorkload::drive_blocks(const Scenario& s, Bytes exported) const {
  const Bytes each = tiers.drives->capacity.value_or(exported), block = tiers_config(s).whole_block();
  const std::uint64_t blocks =
      tiers.drives->files ? host::FileSystemLayout(*tiers.drives->files, each, block).files : each.value / block.value;
  return blocks * s.platform.device.count;
}

void ServingWorkload::check(scenario::Checker& c) { check_serving(c, *this); }

scenario::RunResult ServingWorkload::run(const Scenario& s, const scenario::RunOptions& options) const {
  const WallClock clock;
  return serving_result(s, *this, run_serving(s, *this, options), clock);
}

std::vector<MetricInfo> ServingWorkload::metrics(const scenario::Registries&) const { return serving_metric_infos(); }

nlohmann::ordered_json ServingWorkload::planned(const Scenario& s) const {
  const host::ServingEngine::Config config = engine_config(s);
  nlohmann::ordered_json stats;
  stats["gpu_kv_tokens"] = config.engine.gpu_blocks * config.engine.block_tokens;
  stats["kv_bytes_per_token"] = kv_token(s).value;
  stats["tier_block_bytes"] = (kv_token(s) * tier_block_tokens()).value;
  return {{"metrics", nlohmann::ordered_json::object()}, {"stats", std::move(stats)}};
}

}  // namespace csdsim::experiment

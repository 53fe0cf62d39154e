// Systems that keep K and V on the GPU or in host memory, in simulated time: closed forms, conservation, monotony.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "experiment/generation/generation_run.h"
#include "host_runtime/core/systems/host_kv/host_kv.h"
#include "host_runtime/core/systems/systems.h"

namespace test_places_of_kv {

using namespace csdsim;

namespace {

experiment::GenerationSetup setup_of(const std::string& system) {
  experiment::GenerationSetup setup;
  setup.platform.drive.geometry = {.channels = 2,
                                   .dies_per_channel = 2,
                                   .planes_per_die = 1,
                                   .blocks_per_plane = 32,
                                   .pages_per_block = 32,
                                   .page_size = Bytes::kib(4)};
  setup.platform.drive.data = ftl::DataMode::timing;
  setup.platform.host_memory = Bytes::gib(16);
  setup.platform.gpu_memory = Bytes::gib(16);
  setup.gpu_link = {.bandwidth = Bandwidth{20'000'000'000}, .latency = SimTime::microseconds(1)};
  setup.host = {.cores = 8, .core_flops = 100'000'000'000, .memory = Bandwidth{100'000'000'000}};
  setup.system = host::builtin_systems().make(system);
  host::ModelShape& model = setup.plan.model;
  model.layers = 6;
  model.width = 512;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_dim = 64;
  model.ffn = 2048;
  model.vocab = 8000;
  model.positions = 4096;
  setup.plan.workload.set_prompts({700, 650, 512, 300});
  setup.plan.workload.output_tokens = 9;
  setup.plan.mini_batches = 2;
  setup.sampling.off = true;
  return setup;
}

void attend_at_host(experiment::GenerationSetup& setup) {
  auto system = std::make_shared<host::HostKv>();
  system->attention = host::AttentionAt::host;
  setup.system = system;
}

/// Tokens in the cache before decode step s, of all sequences.
std::uint64_t context(const host::BatchLengths& lengths, std::uint32_t step) {
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : lengths.prompts()) tokens += prompt + step;
  return tokens;
}

}  // namespace

TEST_CASE("gpu-only: nothing crosses a link and no page is touched") {
  const experiment::GenerationOutcome out = experiment::run_generation(setup_of("gpu-only"));
  CHECK(out.prefill.gpu_link_bytes + out.decode.gpu_link_bytes == 0);
  CHECK(out.simulated_page_ops == 0);
  CHECK(out.prefill.link_bytes + out.decode.link_bytes == 0);
  CHECK(out.decode.of(host::ResourceKind::gpu).busy_s ==
        Approx(out.times.decode_s).epsilon(1e-9));  // one processor, never idle
}

TEST_CASE("host-kv: the link carries K and V once down, and their copies up") {
  experiment::GenerationSetup setup = setup_of("host-kv");
  const host::ModelShape& model = setup.plan.model;
  const host::BatchLengths& lengths = setup.plan.workload;
  const std::uint64_t token = model.kv_bytes_per_token().value;
  const std::uint64_t query = model.query_bytes({KvHead{0}, model.kv_heads}).value * model.layers;
  std::uint64_t copies = 0;
  for (std::uint32_t s = 0; s < lengths.decode_steps(); ++s) copies += context(lengths, s);
  const std::uint64_t made = 4 * lengths.decode_steps();  // new tokens of the decode steps

  const experiment::GenerationOutcome at_gpu = experiment::run_generation(setup);
  CHECK(at_gpu.prefill.gpu_link_bytes + at_gpu.decode.gpu_link_bytes ==
        double((context(lengths, 0) + made + copies) * token));
  CHECK(at_gpu.decode.of(host::ResourceKind::host).busy_s == 0);

  attend_at_host(setup);
  const experiment::GenerationOutcome at_host = experiment::run_generation(setup);
  CHECK(at_host.prefill.gpu_link_bytes + at_host.decode.gpu_link_bytes ==
        double((context(lengths, 0) + made) * token + 2 * made * query));
  CHECK(at_host.decode.of(host::ResourceKind::host).busy_s > 0);
  for (const auto* out : {&at_gpu, &at_host})
    for (const double busy :
         {out->decode.of(host::ResourceKind::gpu).busy_s, out->decode.of(host::ResourceKind::host).busy_s,
          out->decode.of(host::ResourceKind::host_to_gpu).busy_s,
          out->decode.of(host::ResourceKind::gpu_to_host).busy_s})
      CHECK(busy <= out->times.decode_s * (1 + 1e-9));
}

TEST_CASE("host-kv with a slow link: a decode step takes what copying K and V takes") {
  experiment::GenerationSetup setup = setup_of("host-kv");
  setup.gpu_link = {.bandwidth = Bandwidth{200'000'000}, .latency = {}};
  const experiment::GenerationOutcome out = experiment::run_generation(setup);
  double copies = 0;
  for (std::uint32_t s = 0; s < setup.plan.workload.decode_steps(); ++s)
    copies += double(context(setup.plan.workload, s) * setup.plan.model.kv_bytes_per_token().value) / 200e6;
  CHECK(out.times.decode_s == Approx(copies).epsilon(0.05));
  CHECK(out.decode.of(host::ResourceKind::host_to_gpu).busy_s == Approx(copies).epsilon(0.05));
}

TEST_CASE("copies of K and V run ahead by the buffers there are") {
  // While the attention of a layer computes, at most `kv_buffers` layers of a mini-batch lie on the GPU.
  for (const std::uint32_t buffers : {1U, 2U, 3U}) {
    experiment::GenerationSetup setup = setup_of("host-kv");
    setup.plan.mini_batches = 1;
    auto system = std::make_shared<host::HostKv>();
    system->kv_buffers = buffers;
    setup.system = system;
    std::map<SimTime, int> change;
    experiment::GenerationHooks hooks;
    hooks.operation = [&](const host::OperationRecord& r) {
      if (r.tag.phase != host::Phase::decode) return;
      if (r.kind == host::OpKind::transfer && r.resource.kind == host::ResourceKind::host_to_gpu) ++change[r.start];
      if (r.kind == host::OpKind::attention) --change[r.end];
    };
    experiment::run_generation(setup, hooks);
    int held = 0, most = 0;
    for (const auto& [at, by] : change) most = std::max(most, held += by);
    CHECK(held == 0);
    CHECK(most == static_cast<int>(buffers));
  }
}

TEST_CASE("a longer context, a slower link or a slower processor never makes a run faster") {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 12; ++trial) {
    CAPTURE(trial);
    experiment::GenerationSetup setup = setup_of(trial % 3 == 0 ? "gpu-only" : "host-kv");
    if (trial % 3 == 2) attend_at_host(setup);
    setup.plan.mini_batches = 1 + static_cast<std::uint32_t>(rng() % 3);
    setup.gpu_link.bandwidth = Bandwidth{1'000'000'000 + rng() % 30'000'000'000};
    for (host::Request& request : setup.plan.workload.requests)
      request.prompt = 100 + static_cast<std::uint32_t>(rng() % 900);
    const auto seconds = [](const experiment::GenerationSetup& s) {
      const experiment::GenerationOutcome out = experiment::run_generation(s);
      return out.times.ttft_s + out.times.decode_s;
    };
    const double base = seconds(setup);
    auto longer = setup;
    longer.plan.workload.requests[rng() % 4].prompt += 200;
    CHECK(seconds(longer) > base);
    auto slower_link = setup;
    slower_link.gpu_link.bandwidth = Bandwidth{setup.gpu_link.bandwidth.bytes_per_second / 3};
    CHECK(seconds(slower_link) >= base);
    auto slower_host = setup;
    slower_host.host.memory = Bandwidth{setup.host.memory.bytes_per_second / 4};
    CHECK(seconds(slower_host) >= base);
    auto slower_gpu = setup;
    slower_gpu.gpu.memory_bandwidth = Bandwidth{setup.gpu.memory_bandwidth.bytes_per_second / 4};
    CHECK(seconds(slower_gpu) > base);
  }
}

TEST_CASE("K and V that exceed memory during a run are an error that names the place") {
  experiment::GenerationSetup setup = setup_of("gpu-only");
  setup.platform.gpu_memory = setup.plan.model.weight_bytes() + Bytes::mib(4);
  CHECK_THROWS_WITH(experiment::run_generation(setup), Catch::Contains("platform.gpu.memory"));
  setup = setup_of("host-kv");
  setup.platform.host_memory = Bytes::mib(4);
  CHECK_THROWS_WITH(experiment::run_generation(setup), Catch::Contains("platform.host.memory"));
}

}  // namespace test_places_of_kv

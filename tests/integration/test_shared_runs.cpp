// Whole generation runs on platforms with shared links.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"

namespace test_shared_runs {

using namespace csdsim;
using Catch::Contains;

namespace {

/// Drives whose flash takes 5.5 GB/s, 4 of them, and a model whose K and V of a token take 32 KiB.
scenario::Scenario timing(const std::vector<std::string>& sets) {
  return experiment::load_scenario_text(
             "csdsim: 1\nname: shared\nplatform:\n  gpu: {preset: a6000}\n  host: {preset: xeon-5320}\n"
             "  device:\n    count: 4\n    link: {generation: 3, lanes: 4}\n"
             "    flash: {channels: 8, channel_bandwidth: 2.4 GB/s, dies_per_channel: 4, planes_per_die: 4, "
             "blocks_per_plane: 48, pages_per_block: 32, page_size: 16 KiB, program_latency: 100 us}\n"
             "    dram: {capacity: 512 MiB}\n"
             "model: {layers: 4, heads: 16, kv_heads: 16, head_dim: 128, hidden_size: 2048, ffn_size: 2048, "
             "vocab_size: 1000, max_positions: 4096}\n"
             "system: {kind: instinfer-dense}\n"
             "workload: {kind: generation, batch: 4, input_tokens: 512, output_tokens: 4}\n"
             "simulation: {sampling: off}\n",
             "shared.yaml", CSDSIM_SOURCE_DIR, sets)
      .base.scenario;
}

experiment::GenerationSetup setup_of(const scenario::Scenario& s) {
  const auto& workload = experiment::generation_of(s);
  return experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
}

struct Run {
  experiment::GenerationOutcome out;
  double append_s = 0;  ///< from the first append of the prefill to the end of the last one
  std::vector<std::string> trace;
};

Run run(const std::vector<std::string>& sets) {
  Run result;
  SimTime first = SimTime::max(), last;
  experiment::GenerationHooks hooks;
  hooks.operation = [&](const host::OperationRecord& r) {
    if (r.kind != host::OpKind::append_kv) return;
    first = std::min(first, r.start);
    last = std::max(last, r.end);
  };
  hooks.shared_link = [&](const nvme::SharedLink& link, const nvme::SharedLink::Period& period) {
    CHECK(period.end > period.start);
    CHECK(period.bytes > 0);
    if (std::find(result.trace.begin(), result.trace.end(), link.name()) == result.trace.end())
      result.trace.push_back(link.name());
  };
  result.out = experiment::run_generation(setup_of(timing(sets)), hooks);
  result.append_s = (last - first).seconds();
  return result;
}

double seconds(const Run& r) { return r.out.times.ttft_s + r.out.times.decode_s; }
double bytes(const Run& r, platform::SharedLinkKind kind) {
  return r.out.prefill.of(kind).bytes + r.out.decode.of(kind).bytes;
}
double gpu_link_bytes(const Run& r) { return r.out.prefill.gpu_link_bytes + r.out.decode.gpu_link_bytes; }

const double kPromptKv = 4.0 * 512 * 4 * 16 * 128 * 4;  // sequences x tokens x layers x heads x (K and V of a head)

}  // namespace

TEST_CASE("the prefill's K and V reach the drives at the rate of the GPU's link, or of the switch") {
  const Run link = run({"platform.gpu.link.peer_to_peer=1 GB/s"});
  CHECK(link.append_s == Approx(kPromptKv / 1e9).epsilon(0.015));
  CHECK(link.trace == std::vector<std::string>{"shared link to gpu", "shared link from gpu"});
  // K and V of prompts and new tokens, queries, and 32 B of every sequence of an attend command.
  const double new_kv = kPromptKv / 512 * 3;
  CHECK(bytes(link, platform::SharedLinkKind::gpu_out) ==
        Approx(kPromptKv + 1.5 * new_kv + 3.0 * 4 * 4 * 4 * 32).epsilon(1e-9));
  CHECK(bytes(link, platform::SharedLinkKind::gpu_in) == Approx(0.5 * new_kv).epsilon(1e-9));
  const Run upstream = run({"platform.switch.bandwidth=1 GB/s"});
  CHECK(upstream.append_s == Approx(kPromptKv / 1e9).epsilon(0.015));
  CHECK(bytes(upstream, platform::SharedLinkKind::switch_down) > kPromptKv);
  // With the GPU behind it as well, K and V do not cross the upstream link: only commands do.
  const Run inside = run({"platform.switch={bandwidth: 1 GB/s, gpus: 1}"});
  CHECK(bytes(inside, platform::SharedLinkKind::switch_down) < 0.01 * kPromptKv);
  CHECK(inside.append_s < 0.5 * upstream.append_s);
}

TEST_CASE("time that K and V wait for a shared link counts as access to K and V") {
  const auto share = [](const Run& r) { return host::generation_metrics(r.out.times).kv_access_share.value(); };
  CHECK(share(run({"platform.gpu.link.peer_to_peer=10 TB/s"})) < 0.8);
  CHECK(share(run({"platform.gpu.link.peer_to_peer=20 MB/s"})) > 0.95);
}

TEST_CASE("limits that cannot bind change nothing") {
  const Run free = run({"platform.gpu.link.peer_to_peer=10 TB/s"});
  for (const std::string& loose :
       {std::string("platform.gpu.link.peer_to_peer=14.3 GB/s"), std::string("platform.root_complex.bandwidth=57 GB/s"),
        std::string("platform.switch={bandwidth: 28.6 GB/s}"), std::string("platform.gpu.link.peer_to_peer=1 TB/s")}) {
    CAPTURE(loose);
    const Run same = run({loose});
    CHECK(same.out.times.ttft_s == free.out.times.ttft_s);
    CHECK(same.out.times.decode_s == free.out.times.decode_s);
    CHECK(same.trace.empty());
    // What passes is counted all the same.
    CHECK(bytes(same, platform::SharedLinkKind::gpu_out) == bytes(free, platform::SharedLinkKind::gpu_out));
  }
}

TEST_CASE("copies of the GPUs and transfers of the drives meet in the root complex") {
  const std::vector<std::string> through_host{"platform.device.nvme.transfer=host"};
  auto limited = through_host;
  limited.emplace_back("platform.root_complex.bandwidth=1 GB/s");
  const Run free = run(through_host), slow = run(limited);
  // K and V come from the GPU (in) and go to the drives (out).
  CHECK(slow.append_s >= kPromptKv / 1e9 * 0.95);
  CHECK(bytes(slow, platform::SharedLinkKind::root_in) >= kPromptKv);
  CHECK(bytes(slow, platform::SharedLinkKind::root_out) >= kPromptKv);
  CHECK(gpu_link_bytes(slow) == Approx(gpu_link_bytes(free)).epsilon(1e-9));
  CHECK(seconds(slow) > seconds(free));
}

TEST_CASE("two GPUs that copy K and V through one root complex are no faster than one") {
  const std::vector<std::string> copies{"system.kind=host-kv", "platform.root_complex.bandwidth=20 GB/s",
                                        "workload.input_tokens=2000", "workload.mini_batches=4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), copies.begin(), copies.end());
    return run(more);
  };
  const Run one = with({}), two = with({"platform.gpu.count=2"});
  CHECK(two.out.times.decode_s > 0.97 * one.out.times.decode_s);
  CHECK(two.out.times.decode_s < 1.03 * one.out.times.decode_s);
  const Run free = with({"platform.gpu.count=2", "platform.root_complex.bandwidth=1 TB/s"});
  CHECK(free.out.times.decode_s < 0.75 * one.out.times.decode_s);
}

TEST_CASE("random platforms: busy times fit into the run, faster links are not slower") {
  Rng rng(23, "shared_runs");
  const std::vector<std::string> systems{"system.kind=instinfer-dense", "system.kind=host-kv",
                                         "system={kind: flexgen-ssd, policy: given, kv_on_gpu: 50 %}"};
  for (int round = 0; round < 10; ++round) {
    const auto gpus = 1 + rng.below(2);
    std::vector<std::string> sets{systems[rng.below(systems.size())],
                                  "workload.input_tokens=128",
                                  fmt::format("platform.gpu.count={}", gpus),
                                  fmt::format("platform.device.nvme.transfer={}", rng.below(2) == 0 ? "p2p" : "host"),
                                  fmt::format("platform.switch={{bandwidth: {} GB/s, drives: {}, gpus: {}}}",
                                              1 + rng.below(20), 1 + rng.below(4), rng.below(gpus + 1)),
                                  fmt::format("platform.gpu.link.peer_to_peer={} GB/s", 1 + rng.below(20))};
    const std::uint64_t root = 1 + rng.below(40);
    CAPTURE(round, sets, root);
    auto slow = sets, fast = sets;
    slow.push_back(fmt::format("platform.root_complex.bandwidth={} GB/s", root));
    fast.push_back(fmt::format("platform.root_complex.bandwidth={} GB/s", 4 * root));
    const Run a = run(slow), b = run(fast);
    CHECK(seconds(b) <= 1.01 * seconds(a));
    for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind) {
      const double links = kind < 2 ? double(gpus) : 1;
      CHECK(a.out.prefill.shared[kind].busy_s + a.out.decode.shared[kind].busy_s <= seconds(a) * links * (1 + 1e-6));
    }
  }
}

TEST_CASE("carried runs make the same tokens on platforms with shared links") {
  for (const char* const system : {"instinfer-dense", "instinfer-sparf", "host-kv", "deepspeed-host"}) {
    CAPTURE(system);
    const scenario::Scenario s =
        experiment::load_scenario_text(
            "csdsim: 1\nname: shared\nplatform:\n  gpu: {preset: a6000, count: 2, link: {peer_to_peer: 1 GB/s}}\n"
            "  host: {preset: xeon-5320}\n  root_complex: {bandwidth: 2 GB/s}\n"
            "  switch: {bandwidth: 1.5 GB/s, drives: 1, gpus: 1}\n"
            "  device: {count: 2, dram: {capacity: 64 MiB}, flash: {channels: 4, dies_per_channel: 2, "
            "planes_per_die: 2, blocks_per_plane: 96, pages_per_block: 32, page_size: 4 KiB}}\n"
            "model: {path: models/opt-6m}\nsystem: {kind: " +
                std::string(system) +
                "}\nworkload: {kind: generation, batch: 3, input_tokens: 40, output_tokens: 5}\n"
                "simulation: {data: carried, compare: [host]}\n",
            "shared.yaml", CSDSIM_SOURCE_DIR, {})
            .base.scenario;
    const scenario::RunResult result = experiment::run_scenario(s);
    CHECK(result.failure.empty());
    CHECK(result.document["comparison"]["host"]["tokens_equal"] == 15);
    for (const auto& [name, share] : result.document["breakdown"]["decode"]["utilization"].items()) {
      CAPTURE(name);
      CHECK(share.get<double>() <= 1 + 1e-9);
    }
    // Where no drive reads GPU memory, the links of the GPUs are not shared.
    CHECK(result.document["stats"]["shared_links"].size() == (std::string(system).starts_with("instinfer") ? 8 : 4));
  }
}

TEST_CASE("a switch without drives, with too many, and links without bandwidth are refused") {
  CHECK_THROWS_WITH(timing({"platform.switch.drives=0"}),
                    Contains("platform.switch.drives") && Contains("out of range"));
  CHECK_THROWS_WITH(timing({"platform.switch.drives=5"}), Contains("platform.switch.drives: 5 of the 4 drives"));
  CHECK_THROWS_WITH(timing({"platform.switch.gpus=2"}), Contains("platform.switch.gpus: 2 of the 1 GPUs"));
  CHECK_THROWS_WITH(timing({"platform.switch.bandwidth=0 B/s"}), Contains("platform.switch.bandwidth"));
  CHECK_THROWS_WITH(timing({"platform.root_complex.bandwidth=0 B/s"}), Contains("platform.root_complex.bandwidth"));
  CHECK_THROWS_WITH(timing({"platform.gpu.link.peer_to_peer=0 B/s"}), Contains("platform.gpu.link.peer_to_peer"));
}

}  // namespace test_shared_runs

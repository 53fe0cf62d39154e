// Platforms on which one resource alone binds: a decode step takes its closed form, bound_by names it, and making it
// faster gains most.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "experiment/sensitivity.h"

namespace test_bottlenecks {

using namespace csdsim;
using nlohmann::ordered_json;

namespace {

using Sets = std::vector<std::string>;

constexpr double kLayers = 2, kHeads = 32;  // heads of all sequences
constexpr double kDim = 64, kPrompt = 512;
constexpr double kPages = kHeads * 2 * kPrompt / 32;  // per layer: 32 tokens of a head's K, or of its V, fill a page
constexpr double kChannels = 4, kPlanes = 16;
constexpr int kTokens = 9;
constexpr double kContext = kPrompt + kTokens - 1;  // in the last step
// Bytes of an attend command: descriptors, q, k and v of the new token; the outputs.
constexpr double kToDrive = 4 * 32 + kHeads * 3 * kDim * 2, kToHost = kHeads * kDim * 2;
constexpr double kEntries = 64 + 16;                 // submission and completion
constexpr double kTail = kHeads * 8 * 2 * kDim * 2;  // rows of the last 8 tokens, which are in no page yet

/// Everything is so fast that it hardly counts.
scenario::Scenario scenario_of(const Sets& sets, int tokens) {
  Sets all = sets;
  all.push_back("workload.output_tokens=" + std::to_string(tokens));
  return experiment::load_scenario_text(R"(csdsim: 1
name: bottleneck
platform:
  gpu: {preset: a6000, fp16_rate: 100000 TFLOPS, memory_bandwidth: 9 TB/s, kernel_launch: 0 us}
  host: {preset: xeon-5320}
  device:
    link: {bandwidth: 100 GB/s}
    flash: {channels: 4, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 96, pages_per_block: 32, page_size: 4 KiB,
            read_latency: 1 us, program_latency: 10 us, command_time: 0 us, data_out_setup: 0 us, channel_bandwidth: 100 GB/s}
    engine: {kernels: 1, macs_per_cycle: 1048576, softmax_per_cycle: 1048576, argtopk_per_cycle: 1048576, clock: 1 GHz,
             jobs_in_flight: 64}
    dram: {capacity: 64 MiB}
model: {layers: 2, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 512, vocab_size: 1000, max_positions: 2048}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 4, input_tokens: 512, output_tokens: 9, mini_batches: 1}
simulation: {sampling: off}
)",
                                        "bottleneck.yaml", CSDSIM_SOURCE_DIR, all)
      .base.scenario;
}

ordered_json run(const Sets& sets, int tokens = kTokens) {
  return experiment::run_scenario(scenario_of(sets, tokens)).document;
}

struct Case {
  std::string bound;
  Sets sets;
  double layer_s;  ///< time of a layer in the last step
};

const Case kCases[] = {
    {"gpu", {"platform.gpu.kernel_launch=1 ms"}, 11.5e-3},  // 23 launches per step
    {"host_io",
     {"platform.device.nvme.granularity=head", "platform.host.io_overhead=100 us", "platform.host.io_cores=1"},
     100e-6 * kHeads},
    {"controller",
     {"platform.device.nvme.granularity=head", "platform.device.nvme.firmware_time=100 us"},
     100e-6 * kHeads},
    {"controller", {"platform.device.nvme.pipeline_time=10 ms"}, 10e-3},
    {"link_to_drive", {"platform.device.link.bandwidth=1 MB/s"}, 1e-6 * (kToDrive + kToHost + kEntries)},
    {"lookup_cores", {"platform.device.ftl.lookup_time=10 us"}, 10e-6 * kPages},
    // Inputs and outputs, a burst per lookup, the rows that are in no page yet, and twice what the engine keeps.
    {"dram",
     {"platform.device.dram.bandwidth=10 MB/s", "platform.device.engine.buffer_memory=dram"},
     1e-7 * (kToDrive + kToHost + 64 * kPages + kTail + 2 * kHeads * (4 * kContext + 8 * kDim))},
    // A page holds its buffer while it is sensed, with intake page, and while it crosses the channel.
    {"page_buffers",
     {"platform.device.flash.page_buffers=1", "platform.device.engine.intake=page",
      "platform.device.flash.read_latency=25 us", "platform.device.flash.channel_bandwidth=204.8 MB/s"},
     (25e-6 + 20e-6) * kPages / kChannels},
    {"flash_arrays", {"platform.device.flash.read_latency=500 us"}, 500e-6 * kPages / kPlanes},
    {"flash_channels", {"platform.device.flash.channel_bandwidth=50 MB/s"}, 4096 / 50e6 * kPages / kChannels},
    {"filters", {"platform.device.flash.filter_bandwidth=50 MB/s"}, 4096 / 50e6 * kPages / kChannels},
    {"kernels", {"platform.device.engine.macs_per_cycle=1"}, 1e-9 * kHeads * 2 * kContext* kDim},
    {"softmax",
     {"platform.device.engine.softmax_per_cycle=1", "platform.device.engine.clock=1 MHz"},
     1e-6 * kHeads* kContext},
    {"argtopk",
     {"system.kind=instinfer-sparf", "platform.device.engine.argtopk_per_cycle=1",
      "platform.device.engine.clock=1 MHz"},
     1e-6 * kHeads*(kDim + kContext)},
    // Keys of all tokens, of which a lane takes one component per cycle.
    {"scoring",
     {"system={kind: hillinfer, prefetch: false, host_share: 0, pinned: 0, kept_hot: 0}",
      "platform.device.engine.scoring={fp16_lanes: 1}", "platform.device.engine.clock=100 MHz"},
     1e-8 * kHeads* kContext* kDim},
    // Only what the drive reads: the host hears of the end of a command before its outputs have passed the GPU's link.
    {"gpu_link", {"platform.gpu.link.peer_to_peer=1 MB/s"}, 1e-6 * kToDrive},
    {"root_complex", {"platform.root_complex.bandwidth=1 MB/s"}, 1e-6 * (kToDrive + kToHost + kEntries)},
    {"switch", {"platform.switch.bandwidth=1 MB/s"}, 1e-6 * (kToDrive + kEntries)},
    {"from_controller",
     {"platform.device.engine.placement={kind: switch, bandwidth: 50 MB/s, request_bandwidth: 50 MB/s, "
      "dram_bandwidth: 1 TB/s, command_time: 0 us}"},
     (4096 * kPages + kTail) / 50e6},
    {"fpga_dram",
     {"platform.device.engine.placement={kind: switch, bandwidth: 1 TB/s, request_bandwidth: 1 TB/s, "
      "dram_bandwidth: 50 MB/s, command_time: 0 us}"},
     2 * 4096 * kPages / 50e6},
    {"lookup_cores", {"platform.device.ftl.firmware.append=1 ms"}, 1e-3 * kHeads},
    // K and V of all tokens before the new one, which the GPU has; the host reads them at 80 % of its bandwidth.
    {"host_to_gpu",
     {"system.kind=host-kv", "platform.gpu.link.bandwidth=10 MB/s"},
     kHeads * 2 * (kContext - 1) * kDim * 2 / 10e6},
    {"host",
     {"system={kind: host-kv, attention: host}", "platform.host.memory_bandwidth=1 GB/s"},
     kHeads * 2 * kContext* kDim * 2 / 0.8e9},
    // Down q, k and v of the new token, up the outputs; before them, the copies that are left of the prefill.
    {"gpu_to_host",
     {"system={kind: host-kv, attention: host}", "platform.gpu.link.bandwidth=1 MB/s"},
     kHeads * 4 * kDim * 2 / 1e6},
    // Two threads copy K and V of all tokens out of the page cache.
    {"files",
     {"system={kind: flexgen-ssd, policy: given}", "platform.host.file.copy_bandwidth=10 MB/s",
      "platform.host.file.threads=2"},
     kHeads * 2 * kContext* kDim * 2 / (2 * 10e6)},
    // The weights of a layer, six matrices and vectors, fill 24 reads and a part of one more; a page cache of 8 reads
    // never has the next one.
    {"link_to_host",
     {"system={kind: flexgen-ssd, policy: given, weights_in_files: 1, kv_on_gpu: 1}",
      "platform.host.file.page_cache=1 MiB", "platform.device.link.bandwidth=10 MB/s"},
     25 * 131072 / 10e6},
};

/// What a run with one more token takes in addition.
double last_step(const Sets& sets) {
  const auto decode_s = [&](int tokens) { return run(sets, tokens)["breakdown"]["decode"]["seconds"].get<double>(); };
  return decode_s(kTokens) - decode_s(kTokens - 1);
}

/// Names in a row of the table of sensitivities: "a, b".
bool names(const std::string& row, const std::string& name) {
  return (", " + row + ",").find(", " + name + ",") != std::string::npos;
}

}  // namespace

TEST_CASE("where one resource alone binds, a step takes its closed form and bound_by names it") {
  for (const Case& c : kCases) {
    CAPTURE(c.bound, c.sets);
    CHECK(last_step(c.sets) == Approx(kLayers * c.layer_s).epsilon(0.015));
    const ordered_json decode = run(c.sets)["breakdown"]["decode"];
    CHECK(decode["bound_by"] == c.bound);
    CHECK(decode["resources"][c.bound]["path_share"] > 0.5);
    double shares = 0;
    for (const auto& [name, use] : decode["resources"].items()) {
      CAPTURE(name);
      shares += use["path_share"].get<double>();
      CHECK(use["utilization"] <= 1 + 1e-9);
      CHECK(use["path_share"] >= 0);
      CHECK(use["waited_s"] >= 0);
    }
    CHECK(shares == Approx(1).epsilon(1e-9));
  }
}

TEST_CASE("what the cores did for the prompts does not make them the bound of decode") {
  // Half as long as the channels per page in decode; 140 ms for the pages of the prompts.
  const ordered_json decode =
      run({"platform.device.flash.channel_bandwidth=50 MB/s", "platform.device.ftl.lookup_time=10 us",
           "platform.device.ftl.firmware.flush=70 us"})["breakdown"]["decode"];
  CHECK(decode["bound_by"] == "flash_channels");
  CHECK(decode["resources"]["flash_channels"]["path_share"] > 0.5);
}

TEST_CASE("the link to the SSD controller binds while the prompt is stored, behind an engine that reads little") {
  const double bandwidth = 10e6, stored = kLayers * kHeads * 2 * kPrompt * kDim * 2;
  const ordered_json decode = run({"platform.device.engine.placement={kind: switch, bandwidth: 10 MB/s, "
                                   "request_bandwidth: 10 MB/s, dram_bandwidth: 1 TB/s, command_time: 0 us}",
                                   "system={kind: instinfer-sparf, r: 1, k: 32, l: 0}"},
                                  2)["breakdown"]["decode"];
  // The first step waits for K and V of the prompt, then pages come the other way.
  const double bytes = decode["bytes_internal_link"];
  CHECK(decode["bound_by"] == "to_controller");
  CHECK(decode["seconds"] == Approx(bytes / bandwidth).epsilon(0.015));
  CHECK(decode["resources"]["to_controller"]["path_share"] == Approx(stored / bytes).epsilon(0.015));
  CHECK(stored / bytes > 0.7);
}

TEST_CASE("making the resource that binds faster gains most") {
  for (const Case& c : kCases) {
    CAPTURE(c.bound, c.sets);
    const scenario::RunResult result = experiment::run_with_sensitivity(scenario_of(c.sets, 3));
    const ordered_json& rows = result.document["tables"]["sensitivity"];
    CHECK(names(rows[0]["resource"], c.bound));
    const double gain = rows[0]["gain of 10 % more speed, %"];
    CHECK(gain > 5);
    CHECK(gain < 10.5);
    // A page holds its buffer for the time of array and channel, so that these shorten what binds, too.
    if (c.bound != "page_buffers") CHECK(rows[1]["gain of 10 % more speed, %"] < 0.6 * gain);
    CHECK(result.meaning.find("most of the critical path is its time, too") != std::string::npos);
  }
}

TEST_CASE("the share of decode time that is access to K and V is what it was before time was divided by station") {
  const std::string device = "platform.device.";
  // A drive of ordinary speeds, on which several resources matter.
  const Sets ordinary = {
      device + "flash.read_latency=50 us", device + "flash.channel_bandwidth=1.4 GB/s",
      device + "engine={macs_per_cycle: 128, softmax_per_cycle: 8, argtopk_per_cycle: 1, clock: 285 MHz, kernels: 2}"};
  const auto with = [&](const std::string& set) {
    Sets sets = ordinary;
    sets.push_back(set);
    return sets;
  };
  const std::pair<Sets, double> pinned[] = {
      {{}, 0.873359},
      {ordinary, 0.990595},
      {with("system.kind=instinfer-sparf"), 0.977307},
      {kCases[1].sets, 0.019691},
      {kCases[2].sets, 0.026095},
      {kCases[3].sets, 0.008475},
      {kCases[4].sets, 0.637067},
      {kCases[5].sets, 0.998159},
      {kCases[6].sets, 0.049387},
      {{device + "flash={page_buffers: 1, read_latency: 50 us}", device + "engine.intake=page"}, 0.998531},
      {kCases[9].sets, 0.945345},
      {kCases[11].sets, 0.059342},
      {kCases[13].sets, 0.008795},
      {kCases[15].sets, 0.999541},
      {kCases[19].sets, 0.999887}};
  for (const auto& [sets, share] : pinned) {
    CAPTURE(sets);
    CHECK(run(sets)["metrics"]["kv_access_share"] == Approx(share).margin(1e-6));
  }
}

}  // namespace test_bottlenecks

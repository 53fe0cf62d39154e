// Feed-forward networks in a drive as operations of a plan: the records of a directory, in any layout.
#include <catch2/catch.hpp>
#include <numeric>

#include "attention_engine/core/feed_forward.h"
#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/neurons/model/neuron_runs.h"
#include "host_runtime/sysc/drive_feed_forward.h"
#include "tests/host_sysc/drive_rig.h"
#include "tests/support/resolver.h"

namespace test_neuron_operations {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::OpKind;

namespace {

constexpr std::uint32_t kWidth = 96, kNeurons = 200;

/// A drive that holds the records of two layers.
struct Records {
  DriveRig rig;
  host::RecordDirectory directory;
  std::uint64_t seed;

  Records(const host::RecordFormat& format, std::uint64_t s, bool carried = true,
          const csd_model::DriveConfig& drive = tiny_drive())
      : rig(carried, drive), directory(format), seed(s) {
    const host::Extent all{format.first_block, directory.blocks()};
    rig.data.blocks = {image()};
    rig.run({{OpKind::write_blocks, kBlocks, host::BlockWork{.extents = {all}, .memory = host::Place::host()}}});
    rig.data.x.resize(3 * kWidth);
    for (std::size_t i = 0; i < rig.data.x.size(); ++i) rig.data.x[i] = value(99, 0, 0, i, 1.0);
    rig.data.bias.resize(kNeurons);
    for (std::size_t i = 0; i < kNeurons; ++i) rig.data.bias[i] = value(98, 0, 0, i, 0.5);
  }

  static host::RecordFormat format(host::RecordLayout layout, bool aligned, std::uint32_t matrices = 2) {
    return {.layers = 2,
            .neurons = kNeurons,
            .matrices = matrices,
            .row = Bytes{kWidth * 2},
            .layout = layout,
            .aligned = aligned,
            .block_size = Bytes::kib(4),
            .first_block = 3};
  }
  Half value(std::uint64_t layer, std::uint64_t neuron, std::uint64_t matrix, std::uint64_t i, double scale) const {
    const std::uint64_t bits = counter_random(seed, ((layer * 1009 + neuron) * 5 + matrix) * 4096 + i);
    return float_to_half(static_cast<float>((2 * (static_cast<double>(bits >> 11) * 0x1p-53) - 1) * scale));
  }
  std::vector<std::byte> image() const {
    const host::RecordFormat& f = directory.format();
    std::vector<std::byte> bytes((f.block_size * directory.blocks()).value);
    for (std::uint32_t layer = 0; layer < f.layers; ++layer)
      for (std::uint32_t n = 0; n < f.neurons; ++n)
        for (std::uint32_t m = 0; m < f.matrices; ++m)
          for (std::uint32_t i = 0; i < kWidth; ++i) {
            const Half h = value(layer, n, m, i, 0.3);
            const Bytes at = directory.address(LayerId{layer}, n, m) - f.block_size * f.first_block;
            std::memcpy(bytes.data() + at.value + i * sizeof(Half), &h, sizeof(Half));
          }
    return bytes;
  }
  host::NeuronWork work(std::uint32_t layer, const std::vector<std::uint32_t>& neurons, std::uint32_t tokens) const {
    const bool gated = directory.format().matrices == 3;
    return {.runs = host::neuron_runs(directory, LayerId{layer}, neurons),
            .tokens = tokens,
            .width = kWidth,
            .activation = gated ? host::NeuronActivation::silu : host::NeuronActivation::relu,
            .gated = gated,
            .bias = !gated,
            .threshold = gated ? 0.01f : 0.0f};
  }
  /// With the sums cut after `cut` neurons, as the commands of an operation are.
  std::vector<float> expected(std::uint32_t layer, const std::vector<std::uint32_t>& neurons, std::uint32_t tokens,
                              std::size_t cut = ~std::size_t{0}) const {
    const host::NeuronWork w = work(layer, neurons, tokens);
    const engine::FeedForwardShape shape{.tokens = tokens,
                                         .width = kWidth,
                                         .activation = w.gated ? engine::Activation::silu : engine::Activation::relu,
                                         .gated = w.gated,
                                         .threshold = w.threshold};
    const std::span<const Half> x(rig.data.x.data(), std::size_t{tokens} * kWidth);
    std::vector<float> y(x.size());
    for (std::size_t first = 0; first < neurons.size(); first += std::min(cut, neurons.size() - first)) {
      std::vector<Half> rows, bias;
      for (std::size_t n = first; n < neurons.size() && n - first < cut; ++n) {
        for (std::uint32_t m = 0; m < shape.matrices(); ++m)
          for (std::uint32_t i = 0; i < kWidth; ++i) rows.push_back(value(layer, neurons[n], m, i, 0.3));
        if (w.bias) bias.push_back(rig.data.bias[n]);
      }
      std::vector<float> part(y.size());
      engine::feed_forward(shape, x, rows, bias, part);
      if (first == 0)
        y = part;
      else
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += part[i];
    }
    return y;
  }
  host::ExecutionReport run(const host::NeuronWork& w) { return rig.run({{OpKind::feed_forward, kBlocks, w}}); }
};

std::vector<std::uint32_t> every(std::uint32_t step) {
  std::vector<std::uint32_t> neurons;
  for (std::uint32_t n = 1; n < kNeurons; n += step) neurons.push_back(n);
  return neurons;
}

std::vector<std::uint32_t> random_neurons(std::uint64_t seed) {
  Rng rng(seed, "neurons");
  std::vector<std::uint32_t> neurons;
  for (std::uint32_t n = 0; n < kNeurons; ++n)
    if (rng.below(3) == 0) neurons.push_back(n);
  return neurons;
}

}  // namespace

TEST_CASE("neurons side by side are one run, and slices of runs are the runs of slices") {
  for (const auto layout : {host::RecordLayout::rows, host::RecordLayout::bundled})
    for (const bool aligned : {true, false})
      for (const std::uint32_t matrices : {2u, 3u}) {
        const host::RecordDirectory directory(Records::format(layout, aligned, matrices));
        const std::vector<std::uint32_t> neurons = {3, 4, 5, 9, 11, 12, 199};
        const auto rows = host::neuron_runs(directory, LayerId{1}, neurons);
        CHECK(rows.size() == 4);
        CHECK(host::neuron_count(rows) == neurons.size());
        std::size_t at = 0;
        for (const host::NeuronRun& run : rows)
          for (std::uint32_t i = 0; i < run.count; ++i, ++at) {
            CHECK(run.up + run.stride * i == directory.address(LayerId{1}, neurons[at], 0));
            CHECK(run.down + run.stride * i == directory.address(LayerId{1}, neurons[at], matrices - 1));
            if (matrices == 3) CHECK(run.gate + run.stride * i == directory.address(LayerId{1}, neurons[at], 1));
          }
        for (std::uint32_t first = 0; first < neurons.size(); ++first)
          for (std::uint32_t count = 1; first + count <= neurons.size(); ++count) {
            auto slice = host::neuron_slice(rows, first, count);
            auto own = host::neuron_runs(directory, LayerId{1}, std::span(neurons).subspan(first, count));
            for (auto* list : {&slice, &own})
              for (host::NeuronRun& run : *list)
                if (run.count == 1) run.stride = {};
            CHECK(slice == own);
          }
      }
}

TEST_CASE("a layer's neurons, chosen anyhow, from any layout, into host or GPU memory") {
  const auto layout = GENERATE(host::RecordLayout::rows, host::RecordLayout::bundled);
  const bool aligned = GENERATE(true, false);
  const std::uint32_t matrices = GENERATE(2u, 3u);
  auto drive = tiny_drive();
  if (aligned) drive.geometry.blocks_per_plane = 128;
  Records r(Records::format(layout, aligned, matrices), 7, true, drive);
  for (const std::uint32_t layer : {0u, 1u})
    for (const auto& neurons : {every(1), every(7), std::vector<std::uint32_t>{42}})
      for (const auto memory : {host::Place::host(), host::Place::gpu()}) {
        host::NeuronWork work = r.work(layer, neurons, 3);
        work.memory = memory;
        r.run(work);
        CHECK(r.rig.data.y == r.expected(layer, neurons, 3));
      }
}

TEST_CASE("random neurons: the host's bits, the closed form of the bytes on the link, all multiply-accumulates") {
  WARN("seeds 1 .. 20");
  Records r(Records::format(host::RecordLayout::bundled, false), 11);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const std::vector<std::uint32_t> neurons = random_neurons(seed);
    const std::uint32_t tokens = static_cast<std::uint32_t>(1 + seed % 3);
    const host::NeuronWork work = r.work(0, neurons, tokens);
    const nvme::RegionTraffic before = r.rig.gpu_traffic();
    const std::uint64_t macs = r.rig.platform.drive(0).engine_stats()->macs;
    r.run(work);
    CHECK(r.rig.data.y == r.expected(0, neurons, tokens));
    const auto padded = [](std::uint64_t bytes) { return (bytes + 63) / 64 * 64; };
    const nvme::RegionTraffic after = r.rig.gpu_traffic();
    CHECK(after.bytes_from_region - before.bytes_from_region ==
          work.runs.size() * 32 + padded(2 * neurons.size()) + padded(2ull * tokens * kWidth));
    CHECK(after.bytes_to_region - before.bytes_to_region == padded(4ull * tokens * kWidth));
    CHECK(r.rig.platform.drive(0).engine_stats()->macs - macs == 2ull * kWidth * tokens * neurons.size());
  }
}

TEST_CASE("a list beyond mdts is cut, and the parts are added in order") {
  auto drive = tiny_drive();
  drive.nvme.controller.mdts = Bytes::kib(4);
  Records r(Records::format(host::RecordLayout::bundled, false), 3, true, drive);
  const std::vector<std::uint32_t> neurons = every(2);
  const host::NeuronWork work = r.work(1, neurons, 2);
  // x and y take 384 + 768 bytes, a neuron 32 + 2.
  const auto commands = host::feed_forward_commands(work, drive.nvme.controller.mdts);
  REQUIRE(commands.size() == 2);
  const std::size_t first = host::neuron_count(commands[0]);
  CHECK(first + host::neuron_count(commands[1]) == neurons.size());
  CHECK(first == 86);
  r.run(work);
  CHECK(r.rig.data.y == r.expected(1, neurons, 2, first));
  CHECK_THROWS_WITH(host::feed_forward_commands(work, Bytes{1024}), Contains("platform.device.nvme.mdts"));
}

TEST_CASE("no neuron gives zeros in no time, and neurons that depend on data are set when the operation starts") {
  Records r(Records::format(host::RecordLayout::bundled, true), 5);
  const host::ExecutionReport none = r.run(r.work(0, {}, 2));
  CHECK(none.kind_time[static_cast<std::size_t>(OpKind::feed_forward)] == SimTime{});
  CHECK(r.rig.data.y == std::vector<float>(2 * kWidth));

  const host::RunFeatures features =
      csdsim::host::resolving([&](const host::Operation& op) -> std::optional<host::Work> {
        if (op.kind != OpKind::feed_forward) return std::nullopt;
        return r.work(1, {4, 5, 100}, 1);
      });
  r.rig.router.set_features(features);
  r.run(r.work(1, {}, 1));
  CHECK(r.rig.data.y == r.expected(1, {4, 5, 100}, 1));
}

TEST_CASE("records are read where they are, and x and y are in the memory of the buffer") {
  Records r(Records::format(host::RecordLayout::bundled, true), 5);
  const host::TensorName records = host::TensorName::kept(host::TensorClass::records, LayerId{0});
  const host::TensorName x = host::TensorName::kept(host::TensorClass::hidden, LayerId{0});
  const host::TensorName y = host::TensorName::kept(host::TensorClass::hidden, LayerId{1});
  r.rig.router.tensors().place({records, host::Place::drive_blocks(host::DriveIndex{0}), Bytes::mib(1)});
  r.rig.router.tensors().place({x, host::Place::gpu(), Bytes{192}});
  host::NeuronWork work = r.work(0, {1, 2, 3}, 1);
  const host::TensorUses uses{.reads = {records, x}, .writes = {{y, Bytes{384}}}};
  r.rig.run({{OpKind::feed_forward, kBlocks, work, uses}});
  CHECK(r.rig.router.tensors().footprint(host::Place::gpu()).now == Bytes{192 + 384});
  work.memory = host::Place::host();
  CHECK_THROWS_WITH(r.rig.run({{OpKind::feed_forward, kBlocks, work, uses}}), Contains("hidden"));
}

TEST_CASE("a drive's refusal says what to change") {
  auto drive = tiny_drive();
  drive.engine.buffer = drive.geometry.page_size;  // the least that a drive may have
  REQUIRE(drive.engine.buffer >= Bytes{8 * kWidth});
  REQUIRE(drive.engine.buffer < Bytes{16 * kWidth});
  Records r(Records::format(host::RecordLayout::bundled, true), 5, true, drive);
  r.run(r.work(0, {1, 2, 3}, 1));
  CHECK_THROWS_WITH(r.run(r.work(0, {1, 2, 3}, 2)), Contains("engine_buffer_exceeded") && Contains("engine.buffer"));
}

TEST_CASE("timing runs take the time of carried runs") {
  SimTime taken[2];
  for (const bool carried : {false, true}) {
    Records r(Records::format(host::RecordLayout::bundled, false), 5, carried);
    taken[carried ? 1 : 0] = r.run(r.work(0, every(3), 2)).kind_time[static_cast<std::size_t>(OpKind::feed_forward)];
  }
  CHECK(taken[0] == taken[1]);
  CHECK(taken[0] > SimTime::microseconds(50));
}

TEST_CASE("the time of an operation divides into flash, engine and link") {
  Records r(Records::format(host::RecordLayout::bundled, false), 5, false);
  const host::ExecutionReport report = r.run(r.work(0, every(1), 3));
  const auto& path = report.steps[0].path;
  const auto part = [&](host::PathPart p) { return path.layered[static_cast<std::size_t>(p)]; };
  CHECK(part(host::PathPart::flash) > SimTime{});
  CHECK(part(host::PathPart::other_link) > SimTime{});
  CHECK(path.total() == report.end - report.start);
}

}  // namespace test_neuron_operations

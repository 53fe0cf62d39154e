// The arithmetic of feed-forward jobs against double precision, and when the scheduler runs them.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "attention_engine/core/head_scheduler.h"
#include "attention_engine/core/selection.h"
#include "base/error.h"
#include "base/rng.h"
#include "fake_flash.h"
#include "memory_kv_source.h"

namespace test_feed_forward {

using namespace csdsim;
using namespace csdsim::engine;
using namespace csdsim::engine::test;
using Catch::Matchers::Contains;

namespace {

std::vector<Half> random_halves(std::size_t n, std::uint64_t seed, double scale) {
  std::vector<Half> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double unit = static_cast<double>(counter_random(seed, i) >> 11) * 0x1p-53;
    out[i] = float_to_half(static_cast<float>((2 * unit - 1) * scale));
  }
  return out;
}

struct Network {
  FeedForwardShape shape;
  std::size_t neurons;
  std::vector<Half> x, rows, bias;
  Network(const FeedForwardShape& s, std::size_t n, std::uint64_t seed)
      : shape(s),
        neurons(n),
        x(random_halves(std::size_t{s.tokens} * s.width, seed, 1)),
        rows(random_halves(n * s.row_elements(), seed + 1, 0.3)),
        bias(random_halves(n, seed + 2, 0.5)) {}

  std::vector<float> y() const {
    std::vector<float> out(x.size());
    feed_forward(shape, x, rows, bias, out);
    return out;
  }
  double act(double v) const {
    const double a = shape.activation == Activation::silu ? v / (1 + std::exp(-v)) : std::max(v, 0.0);
    return a <= static_cast<double>(shape.threshold) ? 0 : a;
  }
  /// In double precision; `margin` becomes the smallest distance of an activation from the threshold.
  std::vector<double> expected(double& margin) const {
    const std::size_t w = shape.width;
    std::vector<double> out(x.size());
    for (std::size_t t = 0; t < shape.tokens; ++t)
      for (std::size_t r = 0; r < neurons; ++r) {
        const Half* up = rows.data() + r * shape.row_elements();
        const auto dot = [&](const Half* row) {
          double sum = 0;
          for (std::size_t i = 0; i < w; ++i) sum += double{half_to_float(x[t * w + i])} * half_to_float(row[i]);
          return sum;
        };
        const double before = dot(shape.gated ? up + w : up) + half_to_float(bias[r]);
        const double edge = shape.activation == Activation::silu ? before / (1 + std::exp(-before)) : before;
        margin = std::min(margin, std::abs(edge - static_cast<double>(shape.threshold)));
        const double h = act(before) * (shape.gated ? dot(up) : 1.0);
        const Half* down = up + (shape.matrices() - 1) * w;
        for (std::size_t i = 0; i < w; ++i) out[t * w + i] += h * half_to_float(down[i]);
      }
    return out;
  }
};

/// Records of `pages_per_neuron` pages each, all in flash.
struct PlainRecords final : NeuronSource {
  std::uint32_t pages_per_neuron = 1;
  std::uint32_t neurons_per_page = 1;
  std::uint64_t pages_per_channel = 0;  ///< pages alternate between two channels
  void plan_records(const NeuronJob& job, NeuronPages& out) override {
    for (std::uint32_t r = 0; r < job.neurons; ++r) {
      if (r % neurons_per_page == 0)
        for (std::uint32_t p = 0; p < pages_per_neuron; ++p)
          out.pages.push_back(
              {.ppa = {out.pages.size() % 2 * pages_per_channel + out.pages.size()}, .channel_bytes = 4096});
      out.needed.push_back(static_cast<std::uint32_t>(out.pages.size()));
    }
  }
};

/// Timing runs: no data.
struct Bench {
  explicit Bench(const EngineConfig& c, SimTime latency = SimTime::microseconds(50), SimTime per_page = {})
      : config(c), flash(latency, per_page, per_page.ps > 0), scheduler(c, source, work, flash) {}
  NeuronJob job(std::uint32_t neurons, FeedForwardShape shape) {
    return {.shape = shape, .neurons = neurons, .source = &records};
  }
  SimTime neuron_time(const FeedForwardShape& shape) const {
    return cycles_time((shape.macs() + config.macs_per_cycle - 1) / config.macs_per_cycle, config.clock);
  }

  EngineConfig config;
  MemoryKvSource source;
  ClusteredSelection selection{0.25, 1};
  TimingWork work{selection};
  PlainRecords records;
  FakeFlash flash;
  HeadScheduler scheduler;
};

constexpr FeedForwardShape kShape{.tokens = 2, .width = 1024};

}  // namespace

TEST_CASE("the sum over neurons equals double precision up to fp32 rounding") {
  const FeedForwardShape shape = GENERATE(
      FeedForwardShape{.tokens = 1, .width = 64}, FeedForwardShape{.tokens = 3, .width = 100},
      FeedForwardShape{.tokens = 2, .width = 257, .threshold = 0.2f},
      FeedForwardShape{.tokens = 2, .width = 96, .gated = true, .threshold = 0.1f},
      FeedForwardShape{.tokens = 2,
                       .width = 96,
                       .activation = Activation::silu,
                       .gated = true,
                       .threshold = -std::numeric_limits<float>::infinity()},
      FeedForwardShape{.tokens = 2, .width = 96, .activation = Activation::silu, .gated = true, .threshold = 0.05f});
  const Network network(shape, 200, 31);
  double margin = 1;
  const std::vector<double> expected = network.expected(margin);
  CAPTURE(margin);
  REQUIRE(margin > 1e-6);  // no activation is so near to the threshold that fp32 could decide otherwise
  const std::vector<float> y = network.y();
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(expected[i] - static_cast<double>(y[i])));
  }
  CHECK(largest > 0.1);
  CHECK(worst < 2e-6 * std::max(1.0, largest) * std::sqrt(static_cast<double>(network.neurons)));
}

TEST_CASE("a list that is cut into calls gives the same bits, and neurons that do not fire change none") {
  const Network network({.tokens = 2, .width = 96}, 40, 5);
  const std::vector<float> whole = network.y();
  std::vector<float> cut(whole.size());
  const std::size_t record = network.shape.row_elements();
  for (std::size_t r = 0; r < network.neurons; r += 7) {
    const std::size_t count = std::min<std::size_t>(7, network.neurons - r);
    feed_forward(network.shape, network.x, std::span(network.rows).subspan(r * record, count * record),
                 std::span(network.bias).subspan(r, count), cut);
  }
  CHECK(cut == whole);

  // Only the neurons that fire for some token.
  std::vector<float> active(whole.size());
  std::size_t left_out = 0;
  for (std::size_t r = 0; r < network.neurons; ++r) {
    std::vector<float> alone(whole.size());
    const auto row = std::span(network.rows).subspan(r * record, record);
    const auto bias = std::span(network.bias).subspan(r, 1);
    feed_forward(network.shape, network.x, row, bias, alone);
    if (std::ranges::all_of(alone, [](float v) { return v == 0; })) {
      ++left_out;
    } else {
      feed_forward(network.shape, network.x, row, bias, active);
    }
  }
  CHECK(left_out > 0);
  CHECK(active == whole);
}

TEST_CASE("sizes that disagree are an internal error") {
  Network network({.tokens = 1, .width = 64}, 4, 1);
  std::vector<float> y(64);
  network.rows.pop_back();
  CHECK_THROWS_AS(feed_forward(network.shape, network.x, network.rows, network.bias, y), InternalError);
}

TEST_CASE("a job that waits for nothing but its multiply-accumulates takes them over the kernels' rate") {
  EngineConfig config;
  config.kernels = GENERATE(1u, 2u, 5u);
  Bench b(config, SimTime::microseconds(50));
  constexpr std::uint32_t kNeurons = 100;
  const NeuronJob job = b.job(kNeurons, kShape);
  b.scheduler.submit_neurons(job, SimTime{});
  CHECK(b.flash.reads.size() == kNeurons);
  b.flash.run(b.scheduler);
  const std::int64_t rounds = (kNeurons + config.kernels - 1) / config.kernels;
  REQUIRE(b.flash.done.size() == 1);
  CHECK(b.flash.done[0].second == SimTime::microseconds(50) + b.neuron_time(kShape) * rounds);
  const EngineStats& s = b.scheduler.stats();
  CHECK(s.macs == 2ull * 1024 * 2 * kNeurons);
  CHECK(s.neuron_macs == s.macs);
  CHECK(s.kernel_busy == b.neuron_time(kShape) * kNeurons);
  CHECK(s.neuron_busy == s.kernel_busy);
  CHECK(s.record_bytes == Bytes{4096 * kNeurons});
  CHECK(s.engine_bytes == Bytes{2ull * 1024 * 2 * kNeurons});
  CHECK(b.scheduler.buffer_in_use() == Bytes{0});
  CHECK(b.scheduler.jobs_running() == 0);
}

TEST_CASE("a kernel starts on a neuron when its last page arrives, and not a picosecond earlier") {
  EngineConfig config;
  config.macs_per_cycle = 1;
  Bench b(config, SimTime::microseconds(10), SimTime::microseconds(3));
  b.records.pages_per_neuron = 2;
  const NeuronJob job = b.job(4, kShape);
  REQUIRE(b.neuron_time(kShape) > SimTime::microseconds(12));
  b.scheduler.submit_neurons(job, SimTime{});
  b.flash.run_until(b.scheduler, SimTime::microseconds(16));
  CHECK(b.scheduler.stats().macs == 0);
  b.flash.run_until(b.scheduler, SimTime::microseconds(16) + SimTime{1});
  CHECK(b.scheduler.stats().macs == kShape.macs());
  b.flash.run(b.scheduler);
  // Two kernels: the second record at 22 us, then each kernel takes one more.
  CHECK(b.flash.done[0].second == SimTime::microseconds(22) + b.neuron_time(kShape) * 2);
}

TEST_CASE("where flash is slower than the kernels, the job ends one neuron after its last page") {
  Bench b(EngineConfig{}, SimTime::microseconds(10), SimTime::microseconds(40));
  b.records.neurons_per_page = 2;
  const NeuronJob job = b.job(60, kShape);
  b.scheduler.submit_neurons(job, SimTime{});
  CHECK(b.flash.reads.size() == 30);
  b.flash.run(b.scheduler);
  CHECK(b.flash.done[0].second == SimTime::microseconds(10 + 40 * 30) + b.neuron_time(kShape));
}

TEST_CASE("heads and neurons share the kernels, and neither starves") {
  EngineConfig config;
  config.kernels = 1;
  Bench b(config, SimTime::microseconds(50));
  const HeadKey key{SequenceId{1}, LayerId{0}, KvHead{0}};
  b.source.add(key, {.tokens = 1000, .head_dim = 128}, 7);
  const NeuronJob neurons = b.job(300, kShape);
  std::vector<HeadJob> heads(2);
  for (HeadJob& h : heads) h.key = key;
  b.scheduler.submit_neurons(neurons, SimTime{});
  b.scheduler.submit(heads, SimTime::microseconds(1));
  const SimTime end = b.flash.run(b.scheduler);
  REQUIRE(b.flash.done.size() == 2);
  const EngineStats& s = b.scheduler.stats();
  // One kernel that never idles after the first page.
  CHECK(end == SimTime::microseconds(50) + s.kernel_busy);
  CHECK(s.kernel_busy - s.neuron_busy > SimTime{});
  // The heads do not wait until the neurons are done.
  CHECK(b.flash.done[0].first == TaskId{1});
  CHECK(b.flash.done[0].second <
        SimTime::microseconds(51) + (s.kernel_busy - s.neuron_busy) + b.neuron_time(kShape) * 2);
  CHECK(s.macs == s.neuron_macs + 2ull * 2 * 1000 * 128);
}

TEST_CASE("jobs start in order of age, and a job beyond the buffer is refused with its size") {
  EngineConfig config;
  config.buffer = Bytes{8 * 2 * 1024};
  Bench b(config);
  const NeuronJob first = b.job(10, kShape), second = b.job(10, kShape);
  b.scheduler.submit_neurons(first, SimTime{});
  b.scheduler.submit_neurons(second, SimTime{});
  CHECK(b.scheduler.jobs_running() == 1);
  CHECK(b.flash.reads.size() == 10);
  b.flash.run(b.scheduler);
  CHECK(b.flash.done.size() == 2);
  CHECK(b.scheduler.stats().peak_buffer == config.buffer);

  NeuronJob large = b.job(1, {.tokens = 2, .width = 1025});
  CHECK_THROWS_WITH(b.scheduler.submit_neurons(large, SimTime::milliseconds(9)),
                    Contains("16400") && Contains("engine.buffer"));
  CHECK_THROWS_AS(b.scheduler.submit_neurons(b.job(0, kShape), SimTime::milliseconds(9)), UserError);
  CHECK_THROWS_AS(b.scheduler.submit_neurons(b.job(1, {.tokens = 0, .width = 8}), SimTime::milliseconds(9)), UserError);
  CHECK_THROWS_AS(b.scheduler.submit_neurons(b.job(1, {.tokens = 1, .width = 0}), SimTime::milliseconds(9)), UserError);
}

TEST_CASE("in turns, kernels wait until all pages have arrived") {
  EngineConfig config;
  config.overlap_flash = false;
  Bench b(config, SimTime::microseconds(10), SimTime::microseconds(5));
  const NeuronJob job = b.job(20, kShape);
  b.scheduler.submit_neurons(job, SimTime{});
  b.flash.run(b.scheduler);
  CHECK(b.flash.done[0].second == SimTime::microseconds(10 + 5 * 20) + b.neuron_time(kShape) * 10);
}

TEST_CASE("one page buffer per channel is enough for records of several pages") {
  EngineConfig config;
  config.page_buffers = 1;
  config.intake = Intake::page;
  config.geometry = {.channels = 2,
                     .dies_per_channel = 1,
                     .planes_per_die = 1,
                     .blocks_per_plane = 64,
                     .pages_per_block = 64,
                     .page_size = Bytes::kib(4)};
  Bench b(config, SimTime::microseconds(10), SimTime::microseconds(1));
  b.records.pages_per_neuron = 3;
  b.records.pages_per_channel = 64 * 64;
  const NeuronJob first = b.job(30, kShape), second = b.job(30, kShape);
  b.scheduler.submit_neurons(first, SimTime{});
  b.scheduler.submit_neurons(second, SimTime{});
  b.flash.run(b.scheduler);
  CHECK(b.flash.done.size() == 2);
  CHECK(b.flash.reads.size() == 180);
  CHECK(b.flash.consumed.size() == 180);
  CHECK(b.scheduler.stats().peak_page_buffers == 1);
}

TEST_CASE("random mixes of jobs end, whatever the engine, with all their multiply-accumulates") {
  WARN("seeds 1 .. 40");
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "mix");
    EngineConfig config;
    config.kernels = static_cast<std::uint32_t>(1 + rng.below(4));
    config.jobs_in_flight = static_cast<std::uint32_t>(1 + rng.below(4));
    config.overlap_flash = rng.below(2) == 0;
    config.page_buffers = static_cast<std::uint32_t>(rng.below(3));
    config.geometry = {.channels = 2,
                       .dies_per_channel = 1,
                       .planes_per_die = 2,
                       .blocks_per_plane = 4096,
                       .pages_per_block = 4096,
                       .page_size = Bytes::kib(4)};
    if (config.page_buffers > 0) config.intake = Intake::page;
    Bench b(config, SimTime::microseconds(static_cast<std::int64_t>(rng.below(60))), SimTime::microseconds(1));
    b.records.pages_per_neuron = static_cast<std::uint32_t>(1 + rng.below(3));
    b.records.pages_per_channel = config.geometry.pages() / 2;
    const HeadKey key{SequenceId{1}, LayerId{0}, KvHead{0}};
    b.source.add(key, {.tokens = 300, .head_dim = 128}, 7);
    std::vector<HeadJob> heads(3);
    for (HeadJob& h : heads) h.key = key;
    std::vector<NeuronJob> jobs;
    std::uint64_t macs = 0, neurons = 0;
    for (int i = 0; i < 5; ++i) {
      FeedForwardShape shape{.tokens = static_cast<std::uint32_t>(1 + rng.below(3)), .width = 256, .gated = i % 2 == 1};
      jobs.push_back(b.job(static_cast<std::uint32_t>(1 + rng.below(30)), shape));
      macs += shape.macs() * jobs.back().neurons;
      neurons += jobs.back().neurons;
    }
    b.scheduler.submit_neurons(jobs[0], SimTime{});
    b.scheduler.submit(heads, SimTime{});
    for (int i = 1; i < 5; ++i) b.scheduler.submit_neurons(jobs[static_cast<std::size_t>(i)], SimTime{});
    b.flash.run(b.scheduler);
    CHECK(b.flash.done.size() == 6);
    CHECK(b.scheduler.stats().neuron_macs == macs);
    CHECK(b.scheduler.stats().neurons == neurons);
    CHECK(b.scheduler.stats().feed_forward_jobs == 5);
    CHECK(b.scheduler.buffer_in_use() == Bytes{0});
    CHECK(b.flash.outstanding() == 0);
  }
}

}  // namespace test_feed_forward

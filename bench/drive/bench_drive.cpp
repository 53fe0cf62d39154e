// Page operations per second of wall time through a whole drive, data off: host driver, doorbell, fetch of the entry,
// decoding, FTL, flash, DMA, completion, interrupt, and the next request. One core.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/rng.h"
#include "nvme_if/spec/command.h"
#include "platform/platform.h"
#include "simulation/simulation_context.h"

namespace csdsim::platform {
namespace {

using namespace csdsim;

struct Shape {
  std::uint32_t channels = 8;
  std::uint32_t dies = 8;  ///< per channel
  std::uint32_t planes = 1;
  std::uint32_t blocks_per_plane = 256;
  std::uint64_t request_pages = 1;
  std::uint32_t queue_depth = 1024;
  bool writes = false;
  csdsim::nvme::InterruptCoalescing coalescing{};
  std::uint64_t requests = 400'000;
};

/// The drive of scenarios/block_read.yaml, in the shape that is asked for.
PlatformParams platform_config(const Shape& shape) {
  PlatformParams config;
  config.drive.geometry = {.channels = shape.channels,
                           .dies_per_channel = shape.dies,
                           .planes_per_die = shape.planes,
                           .blocks_per_plane = shape.blocks_per_plane,
                           .pages_per_block = 256,
                           .page_size = Bytes::kib(4)};
  config.drive.flash.arbitration = nfc::BusArbitration::data_first;
  config.drive.link.bandwidth = Bandwidth{7'876'000'000};
  config.drive.kv_share = 0;
  config.drive.data = ftl::DataMode::timing;
  config.host_memory = Bytes::gib(1);
  config.gpu_memory = Bytes::gib(1);
  config.run_ahead = true;
  config.coalescing = shape.coalescing;
  return config;
}

/// Keeps the queue depth of random requests outstanding until `requests` are issued.
class ClosedLoop : private nvme::CompletionClient {
 public:
  ClosedLoop(const Shape& shape, Platform& platform) : shape_(shape), driver_(platform.driver(0)) {
    platform.drive(0).block_ftl().precondition(working_set(platform), 1);
    slots_ = working_set(platform).value / request_size().value;
    driver_.on_ready([this] {
      for (std::uint32_t i = 0; i < shape_.queue_depth; ++i) issue();
    });
  }

  std::uint64_t completed() const { return completed_; }

 private:
  static Bytes working_set(Platform& platform) { return {platform.drive(0).block_ftl().capacity().value / 5 * 4}; }
  Bytes request_size() const { return Bytes::kib(4) * shape_.request_pages; }

  void issue() {
    if (issued_ == shape_.requests) return;
    ++issued_;
    queue_ = queue_ == driver_.queues() ? 1 : queue_ + 1;
    const nvme::QueueId queue{static_cast<std::uint16_t>(queue_)};
    const nvme::Segment buffer{nvme::PhysicalAddress{Platform::kGpuBase}, request_size()};
    driver_.submit_block(queue, shape_.writes ? nvme::nvm_opcode::write : nvme::nvm_opcode::read,
                         nvme::Lba{rng_.below(slots_) * shape_.request_pages}, shape_.request_pages, {&buffer, 1},
                         *this, 0);
  }
  void completed(std::uint64_t /*tag*/, const nvme::CompletionEntry& entry, SimTime /*at*/) override {
    if (!entry.code().ok()) throw InternalError("a request failed");
    ++completed_;
    issue();
  }

  Shape shape_;
  nvme::NvmeDriver& driver_;
  Rng rng_{1, "bench_drive"};
  std::uint64_t slots_ = 0;
  std::uint64_t issued_ = 0;
  std::uint32_t queue_ = 0;
  std::uint64_t completed_ = 0;
};

/// Bytes of memory that the process holds now.
std::uint64_t resident_bytes() {
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void run(benchmark::State& state, const Shape& shape) {
  std::uint64_t pages = 0;
  for (auto _ : state) {
    state.PauseTiming();
    {
      const SimulationContext context;
      Platform platform(platform_config(shape));
      ClosedLoop loop(shape, platform);
      state.ResumeTiming();
      sc_core::sc_start();
      state.PauseTiming();
      if (loop.completed() != shape.requests) state.SkipWithError("requests are missing");
      pages += platform.drive(0).totals().page_ops;
    }
    state.ResumeTiming();
  }
  state.counters["page_ops/s"] = benchmark::Counter(static_cast<double>(pages), benchmark::Counter::kIsRate);
  state.counters["requests/s"] =
      benchmark::Counter(static_cast<double>(shape.requests), benchmark::Counter::kIsIterationInvariantRate);
}

/// 4 KiB reads at queue depth 1024 on 8 channels x 8 dies: the usual comparison of SSD simulators.
void random_read_4k(benchmark::State& state) { run(state, {}); }
BENCHMARK(random_read_4k)->Unit(benchmark::kMillisecond);

/// The same with one interrupt per 16 completions of a queue, or 100 us after the first of them.
void random_read_4k_coalesced(benchmark::State& state) { run(state, {.coalescing = {16, SimTime::microseconds(100)}}); }
BENCHMARK(random_read_4k_coalesced)->Unit(benchmark::kMillisecond);

void random_read_128k(benchmark::State& state) { run(state, {.request_pages = 32, .requests = 40'000}); }
BENCHMARK(random_read_128k)->Unit(benchmark::kMillisecond);

void random_write_4k(benchmark::State& state) { run(state, {.writes = true, .requests = 200'000}); }
BENCHMARK(random_write_4k)->Unit(benchmark::kMillisecond);

/// From 8 to 1,024 planes of the same size: the work per command should not depend on the size of the drive.
void random_read_4k_by_planes(benchmark::State& state) {
  const auto planes = static_cast<std::uint32_t>(state.range(0));
  const std::uint32_t channels = planes < 64 ? 8 : planes < 512 ? 16 : 32;
  run(state, {.channels = channels, .dies = planes / channels});
}
BENCHMARK(random_read_4k_by_planes)
    ->ArgName("planes")
    ->RangeMultiplier(2)
    ->Range(8, 1024)
    ->Unit(benchmark::kMillisecond);

/// Memory of a preconditioned drive of 256 GiB raw that has served random reads and writes, and what a request adds.
void memory_256_gib(benchmark::State& state) {
  const Shape shape{.dies = 8, .planes = 4, .blocks_per_plane = 1024, .writes = true, .requests = 100'000};
  for (auto _ : state) {
    const std::uint64_t before = resident_bytes();
    const SimulationContext context;
    Platform platform(platform_config(shape));
    ClosedLoop first(shape, platform);
    sc_core::sc_start();
    const std::uint64_t warm = resident_bytes();
    const double pages = static_cast<double>(platform.drive(0).config().geometry.pages());
    state.counters["raw_GiB"] = pages * 4096 / (1ULL << 30);
    state.counters["GiB"] = static_cast<double>(warm - before) / (1ULL << 30);
    state.counters["bytes/page"] = static_cast<double>(warm - before) / pages;
  }
}
BENCHMARK(memory_256_gib)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace csdsim::platform

int sc_main(int argc, char* argv[]) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

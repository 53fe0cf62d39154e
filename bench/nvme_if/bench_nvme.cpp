// Wall time of commands through driver, controller, DMA and back, with a medium that answers at once.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>

#include "tests/nvme_if/platform.h"

namespace csdsim::nvme {
namespace {

using test::kHostBase;
using test::Platform;
using test::PlatformParams;

/// Completes reads with zeros, or for timing only.
class NullHandler : public CommandHandler {
 public:
  explicit NullHandler(bool carried) : carried_(carried), zeros_(1 << 21) {}
  void execute(CommandPtr c) override {
    const Bytes size = c->io().data;
    const auto done = [c](Status s) { c->complete(s); };
    if (carried_)
      c->write_host(Bytes{0}, std::span<const std::byte>(zeros_).first(size.value), done);
    else
      c->write_host_timing(Bytes{0}, size, done);
  }

 private:
  bool carried_;
  std::vector<std::byte> zeros_;
};

struct BenchPlatform {
  csdsim::test::SyscFixture context;
  MemoryMap map;
  RegionId region = map.add({"host", kHostBase, test::kHostSize, RegionKind::host_dram});
  PhysicalMemory host{"host", test::kHostSize};
  PcieFabric fabric{"fabric", map};
  PcieDma dma;
  NullHandler handler;
  NvmeController controller;
  NvmeDriver driver;

  BenchPlatform(const PlatformParams& p, bool carried)
      : dma("dma", p.link, &map),
        handler(carried),
        controller("controller", p.controller, dma, handler),
        driver("driver", p.driver) {
    fabric.region(region).bind(host.target);
    dma.memory.bind(fabric.target);
    driver.bar.bind(controller.bar);
    driver.memory.bind(fabric.target);
    controller.interrupt.bind(driver);
  }
};

/// Random reads of `blocks` blocks at a queue depth over four queues; reports commands per second.
void random_reads(benchmark::State& state) {
  const auto blocks = static_cast<std::uint64_t>(state.range(0));
  const auto depth = static_cast<int>(state.range(1));
  const bool carried = state.range(2) != 0;
  constexpr std::uint64_t kCommands = 200'000;
  for (auto _ : state) {
    PlatformParams params;
    params.controller.controller.namespace_blocks = 1 << 20;
    BenchPlatform p(params, carried);
    std::mt19937_64 rng(1);
    std::uint64_t left = blocks > 8 ? kCommands / 50 : kCommands;
    const std::uint64_t total = left;
    std::function<void(std::uint32_t)> issue;
    struct Resubmit {
      std::function<void(std::uint32_t)>* issue;
      std::uint32_t lane;
      void operator()(const CompletionEntry&, SimTime) const { (*issue)(lane); }
    };
    issue = [&](std::uint32_t lane) {
      if (left == 0) return;
      --left;
      const Segment buffer{kHostBase + Bytes{lane * (blocks * 4096)}, Bytes{blocks * 4096}};
      p.driver.submit_block(QueueId{static_cast<std::uint16_t>(1 + lane % 4)}, nvm_opcode::read,
                            Lba{rng() % ((1 << 20) - blocks)}, blocks, {&buffer, 1}, Resubmit{&issue, lane});
    };
    p.driver.on_ready([&] {
      for (int i = 0; i < depth; ++i) issue(static_cast<std::uint32_t>(i));
    });
    sc_core::sc_start();
    if (p.driver.issued() != p.driver.completed()) state.SkipWithError("commands are missing");
    state.counters["commands/s"] =
        benchmark::Counter(static_cast<double>(total), benchmark::Counter::kIsIterationInvariantRate);
  }
}
BENCHMARK(random_reads)
    ->ArgNames({"blocks", "depth", "carried"})
    ->Args({1, 1, 1})
    ->Args({1, 32, 1})
    ->Args({1, 256, 1})
    ->Args({1, 256, 0})
    ->Args({256, 16, 1})
    ->Args({256, 16, 0})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace csdsim::nvme

int sc_main(int argc, char* argv[]) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

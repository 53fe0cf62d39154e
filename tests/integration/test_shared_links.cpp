// Links that drives and GPUs share: closed forms of what each sender gets, what passes which link, and whole runs.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <systemc>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/sysc/copy_backend.h"
#include "nvme_if/sysc/pcie_dma.h"
#include "simulation/failure.h"
#include "simulation/simulation_context.h"

namespace test_shared_links {

using namespace csdsim;
using Catch::Contains;
using nvme::LinkDirection;
using platform::SharedLinkKind;

namespace {

constexpr std::uint64_t kGiga = 1'000'000'000;
constexpr Bandwidth gbps(double rate) { return {static_cast<std::uint64_t>(rate * 1e9)}; }

class AtStart : public sc_core::sc_module {
 public:
  AtStart(const sc_core::sc_module_name& name, std::function<void()> f) : sc_module(name), f_(std::move(f)) {
    SC_METHOD(go);
  }

 private:
  SC_HAS_PROCESS(AtStart);
  void go() { f_(); }
  std::function<void()> f_;
};

/// The parameters with defaults, for designated initializers.
struct Limits {
  std::optional<Bandwidth> gpu_link = {};
  std::optional<Bandwidth> root_complex = {};
  std::optional<platform::SwitchParams> upstream = {};
  std::optional<Bandwidth> copies = {};

  platform::SharedLinksParams params() const {
    platform::SharedLinksParams params;
    params.gpu_link = gpu_link;
    params.root_complex = root_complex;
    params.upstream = upstream;
    params.copies = copies;
    return params;
  }
};

/// The DMA engines of drives that reach host memory and GPUs over shared links; timing only.
class Rig {
 public:
  Rig(const Limits& limits, std::uint32_t drives, Bandwidth drive_rate, std::uint32_t gpus = 1)
      : links(limits.params(), drives, drive_rate, gpus) {
    for (std::uint32_t i = 0; i < drives; ++i) {
      auto& map = *maps_.emplace_back(std::make_unique<nvme::MemoryMap>());
      const nvme::RegionId host = map.add({"host", host_at(0), Bytes::gib(16), nvme::RegionKind::host_dram});
      std::vector<nvme::RegionId> regions;
      for (std::uint32_t gpu = 0; gpu < gpus; ++gpu)
        regions.push_back(
            map.add({fmt::format("gpu{}", gpu), gpu_at(gpu), Bytes::gib(16), nvme::RegionKind::gpu_memory}));
      links.add_drive(i, map, host, regions);
      dmas_.push_back(std::make_unique<nvme::PcieDma>(fmt::format("dma{}", i).c_str(),
                                                      nvme::LinkConfig{.bandwidth = drive_rate}, &map));
      dmas_.back()->memory.bind(
          sockets_.emplace_back(std::make_unique<Nowhere>(fmt::format("m{}", i).c_str()))->target);
      ended.emplace_back();
    }
  }
  static nvme::PhysicalAddress host_at(std::uint64_t offset) { return nvme::PhysicalAddress{offset}; }
  static nvme::PhysicalAddress gpu_at(std::uint32_t gpu) {
    return nvme::PhysicalAddress{(gpu + std::uint64_t{1}) << 40};
  }
  /// A transfer of a drive that starts with the simulation.
  void transfer(std::uint32_t drive, LinkDirection direction, nvme::PhysicalAddress at, Bytes size, SimTime when = {}) {
    todo_.push_back({drive, direction, {at, size}, when});
  }
  void run() {
    AtStart start("start", [this] {
      for (const Todo& t : todo_) {
        if (t.when == SimTime{})
          submit(t);
        else
          later_.push_back(std::make_unique<Alarm>(AlarmRank::host, [this, &t] { submit(t); })),
              later_.back()->set(t.when);
      }
    });
    run_kernel();
  }
  double last() const {
    SimTime most;
    for (const auto& times : ended)
      for (const SimTime t : times) most = std::max(most, t);
    return most.seconds();
  }

  platform::SharedLinks links;
  std::vector<std::vector<SimTime>> ended;  ///< [drive] ends of its transfers

 private:
  struct Nowhere : sc_core::sc_module {
    tlm_utils::simple_target_socket<Nowhere> target{"target"};
    explicit Nowhere(const sc_core::sc_module_name& name) : sc_module(name) {}
  };
  struct Todo {
    std::uint32_t drive;
    LinkDirection direction;
    nvme::Segment segment;
    SimTime when;
  };
  void submit(const Todo& t) {
    const auto done = [this, drive = t.drive](nvme::Status s) {
      CHECK(s.ok());
      ended[drive].push_back(sim_time_now());
    };
    nvme::PcieDma& dma = *dmas_[t.drive];
    if (t.direction == LinkDirection::to_host)
      dma.write(std::span(&t.segment, 1), Bytes{}, t.segment.length, nullptr, done);
    else
      dma.read(std::span(&t.segment, 1), Bytes{}, t.segment.length, nullptr, done);
  }

  std::vector<std::unique_ptr<nvme::MemoryMap>> maps_;
  std::vector<std::unique_ptr<Nowhere>> sockets_;
  std::vector<std::unique_ptr<nvme::PcieDma>> dmas_;
  std::vector<Todo> todo_;
  std::vector<std::unique_ptr<Alarm>> later_;
};

/// Seconds that `drives` drives take to move `each` bytes to or from a GPU.
double time_of(const Limits& params, std::uint32_t drives, LinkDirection direction, Bytes each,
               Bandwidth drive_rate = gbps(3.5)) {
  const SimulationContext context;
  Rig rig(params, drives, drive_rate);
  for (std::uint32_t i = 0; i < drives; ++i) rig.transfer(i, direction, Rig::gpu_at(0), each);
  rig.run();
  const auto into = direction == LinkDirection::to_host ? SharedLinkKind::gpu_in : SharedLinkKind::gpu_out;
  if (params.gpu_link) CHECK(rig.links.use(into).bytes == double(each.value) * drives);
  return rig.last();
}

}  // namespace

TEST_CASE("drives together reach a GPU no faster than its link, in each direction") {
  constexpr Bytes kEach = Bytes::mib(2);
  for (const LinkDirection direction : {LinkDirection::to_host, LinkDirection::to_drive})
    for (const std::uint32_t drives : {1U, 2U, 4U, 8U, 9U, 16U, 20U}) {
      CAPTURE(int(direction), drives);
      const double bytes = double(kEach.value);
      const double own = bytes / 3.5e9, shared = bytes * drives / 28e9;
      CHECK(time_of({.gpu_link = gbps(28)}, drives, direction, kEach) == Approx(std::max(own, shared)).epsilon(0.015));
      // Without a limit, and where the limit cannot bind, the time is that of the drive's own link to the picosecond.
      const double free = time_of({}, drives, direction, kEach);
      CHECK(free == Approx(own).epsilon(1e-9));
      if (drives <= 8) CHECK(time_of({.gpu_link = gbps(28)}, drives, direction, kEach) == free);
    }
}

TEST_CASE("a switch in front of the drives limits them to its upstream link, unless the GPU is behind it as well") {
  constexpr Bytes kEach = Bytes::mib(1);
  const double bytes = double(kEach.value);
  for (const LinkDirection direction : {LinkDirection::to_host, LinkDirection::to_drive})
    for (const std::uint32_t drives : {2U, 8U, 12U}) {
      CAPTURE(int(direction), drives);
      const platform::SwitchParams upstream{.bandwidth = gbps(14), .drives = drives, .gpus = 0};
      const double limited = std::max(bytes / 3.5e9, bytes * drives / 14e9);
      CHECK(time_of({.gpu_link = gbps(28), .upstream = upstream}, drives, direction, kEach) ==
            Approx(limited).epsilon(0.015));
      auto inside = upstream;
      inside.gpus = 1;
      const double by_gpu = std::max(bytes / 3.5e9, bytes * drives / 28e9);
      CHECK(time_of({.gpu_link = gbps(28), .root_complex = gbps(1), .upstream = inside}, drives, direction, kEach) ==
            Approx(by_gpu).epsilon(0.015));
    }
}

TEST_CASE("drives behind the switch share it, the others do not wait for them") {
  constexpr Bytes kEach = Bytes::mib(1);
  const SimulationContext context;
  Rig rig({.upstream = platform::SwitchParams{.bandwidth = gbps(3.5), .drives = 4, .gpus = 0}}, 6, gbps(3.5));
  for (std::uint32_t i = 0; i < 6; ++i) rig.transfer(i, LinkDirection::to_host, Rig::host_at(0), kEach);
  rig.run();
  const double own = double(kEach.value) / 3.5e9;
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(rig.ended[i].at(0).seconds() == Approx(4 * own).epsilon(0.015));
  for (std::uint32_t i = 4; i < 6; ++i) CHECK(rig.ended[i].at(0).seconds() == Approx(own).epsilon(1e-9));
}

TEST_CASE("a transfer between two devices passes the root complex in both directions, one to host memory in one") {
  constexpr Bytes kEach = Bytes::mib(1);
  const SimulationContext context;
  Rig rig({.root_complex = gbps(7)}, 4, gbps(3.5), 2);
  rig.transfer(0, LinkDirection::to_host, Rig::host_at(0), kEach);
  rig.transfer(1, LinkDirection::to_drive, Rig::host_at(0), kEach);
  rig.transfer(2, LinkDirection::to_host, Rig::gpu_at(0), kEach);
  rig.transfer(3, LinkDirection::to_drive, Rig::gpu_at(1), kEach);
  rig.run();
  const double bytes = double(kEach.value);
  CHECK(rig.links.use(SharedLinkKind::root_in).bytes == 3 * bytes);
  CHECK(rig.links.use(SharedLinkKind::root_out).bytes == 3 * bytes);
  CHECK(rig.links.use(SharedLinkKind::root_in).busy_s == Approx(3 * bytes / 7e9).epsilon(1e-4));
  CHECK(rig.last() == Approx(3 * bytes / 7e9).epsilon(0.015));
}

TEST_CASE("a small transfer waits for one piece of every other drive, not for their transfers") {
  const SimulationContext context;
  Rig rig({.gpu_link = gbps(4)}, 9, gbps(3.5));
  for (std::uint32_t i = 0; i < 8; ++i) rig.transfer(i, LinkDirection::to_drive, Rig::gpu_at(0), Bytes::mib(8));
  const SimTime when = SimTime::microseconds(500);
  rig.transfer(8, LinkDirection::to_drive, Rig::gpu_at(0), Bytes{64}, when);
  rig.run();
  const double waited = (rig.ended[8].at(0) - when).seconds();
  CHECK(waited <= 9 * 4096 / 4e9 + 1e-7);
  // All drives are served evenly.
  for (std::uint32_t i = 0; i < 8; ++i)
    CHECK(rig.ended[i].at(0).seconds() == Approx(8 * double(Bytes::mib(8).value) / 4e9).epsilon(0.01));
}

TEST_CASE("a drive that was held up does not make up for it faster than its own link") {
  const SimulationContext context;
  Rig rig({.gpu_link = gbps(6)}, 2, gbps(3.5));
  // Drive 1 takes its half of the link for a while; drive 0 then goes on at its own rate.
  rig.transfer(0, LinkDirection::to_host, Rig::gpu_at(0), Bytes{30'000'000});
  rig.transfer(1, LinkDirection::to_host, Rig::gpu_at(0), Bytes{6'000'000});
  rig.run();
  CHECK(rig.ended[1].at(0).seconds() == Approx(2e-3).epsilon(0.01));
  CHECK(rig.ended[0].at(0).seconds() == Approx(2e-3 + 24e6 / 3.5e9).epsilon(0.01));
}

TEST_CASE("random transfers: bytes are conserved, no link is busy all the time, faster links are never slower") {
  Rng rng(11, "shared_links");
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t drives = 1 + static_cast<std::uint32_t>(rng.below(12));
    const std::uint32_t gpus = 1 + static_cast<std::uint32_t>(rng.below(3));
    struct Transfer {
      std::uint32_t drive, memory;
      LinkDirection direction;
      Bytes size;
    };
    std::vector<Transfer> transfers;
    std::array<double, platform::kSharedLinkKinds> expected{};
    Limits params{.gpu_link = gbps(1 + double(rng.below(30))),
                  .root_complex = gbps(1 + double(rng.below(60))),
                  .upstream = platform::SwitchParams{.bandwidth = gbps(1 + double(rng.below(30))),
                                                     .drives = 1 + static_cast<std::uint32_t>(rng.below(drives)),
                                                     .gpus = static_cast<std::uint32_t>(rng.below(gpus + 1))}};
    for (std::uint32_t i = 0; i < drives * 3; ++i) {
      const Transfer t{i % drives, static_cast<std::uint32_t>(rng.below(gpus + 1)),
                       rng.below(2) == 0 ? LinkDirection::to_host : LinkDirection::to_drive,
                       Bytes{1 + rng.below(400'000)}};
      transfers.push_back(t);
      const bool to_memory = t.direction == LinkDirection::to_host, gpu = t.memory > 0;
      const bool drive_inside = t.drive < params.upstream->drives;
      const bool gpu_inside = gpu && t.memory - 1 < params.upstream->gpus;
      const auto add = [&](SharedLinkKind kind) { expected[std::size_t(kind)] += double(t.size.value); };
      if (gpu) add(to_memory ? SharedLinkKind::gpu_in : SharedLinkKind::gpu_out);
      if (drive_inside && gpu_inside) continue;
      if (to_memory || gpu) add(SharedLinkKind::root_in);
      if (!to_memory || gpu) add(SharedLinkKind::root_out);
      if (drive_inside) add(to_memory ? SharedLinkKind::switch_up : SharedLinkKind::switch_down);
      if (gpu_inside) add(to_memory ? SharedLinkKind::switch_down : SharedLinkKind::switch_up);
    }
    const auto run = [&](const Limits& with) {
      const SimulationContext context;
      Rig rig(with, drives, gbps(3.5), gpus);
      for (const Transfer& t : transfers)
        rig.transfer(t.drive, t.direction, t.memory == 0 ? Rig::host_at(0) : Rig::gpu_at(t.memory - 1), t.size);
      rig.run();
      for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind)
        if (rig.links.has(SharedLinkKind(kind))) CHECK(rig.links.use(SharedLinkKind(kind)).bytes == expected[kind]);
      for (const auto& link : rig.links.links()) CHECK(rig.links.use(*link).busy_s <= rig.last() * (1 + 1e-9));
      return rig.last();
    };
    CAPTURE(round, drives, gpus);
    const double slow = run(params);
    auto faster = params;
    faster.gpu_link->bytes_per_second *= 2;
    // A link that serves others sooner may put one transfer behind another by a few pieces.
    const double slack = 1.01 * slow + 20e-6;
    CHECK(run(faster) <= slack);
    faster.root_complex->bytes_per_second *= 2;
    faster.upstream->bandwidth.bytes_per_second *= 2;
    CHECK(run(faster) <= slack);
    CHECK(run({}) <= slow * (1 + 1e-9));
  }
}

TEST_CASE("copies between host and GPU share the root complex with the drives, each with its part") {
  const SimulationContext context;
  const Bytes copied = Bytes::mib(12), each = Bytes::mib(4);
  Rig rig({.root_complex = gbps(10), .copies = gbps(8)}, 3, gbps(3.5));
  host::Operation op;
  op.id = host::OperationId{5};
  op.kind = host::OpKind::transfer;
  op.resource = {host::ResourceKind::host_to_gpu, 0};
  op.work = host::LinkWork{copied, host::LinkPayload::weights};
  double copy_ended = 0;
  host::CopyBackend copies(rig.links, {.bandwidth = gbps(8), .latency = {}}, [&](host::OperationId id, SimTime at) {
    CHECK(id == op.id);
    copy_ended = at.seconds();
  });
  for (std::uint32_t i = 0; i < 3; ++i) rig.transfer(i, LinkDirection::to_drive, Rig::host_at(0), each);
  AtStart start("copy", [&] { CHECK_FALSE(copies.start(op, SimTime{}).has_value()); });
  rig.run();
  const double piece_share = 10e9 / 4;  // four senders take turns until the drives are done
  const double drives_done = double(each.value) / piece_share;
  CHECK(rig.last() == Approx(drives_done).epsilon(0.015));
  const double rest = double(copied.value) - double(each.value);
  CHECK(copy_ended == Approx(drives_done + rest / 8e9).epsilon(0.015));
  const platform::LinkUse use = rig.links.use(SharedLinkKind::root_out);
  CHECK(use.bytes == double(copied.value) + 3 * double(each.value));
  CHECK(use.busy_s == Approx(use.bytes / 10e9).epsilon(1e-4));
  CHECK(rig.links.use(SharedLinkKind::root_in).bytes == 0);
}

TEST_CASE("all uses of host memory are slowed down by what they ask for too much") {
  const SimulationContext context;
  std::vector<std::pair<std::uint64_t, double>> ended;
  host::SharedMemory memory(gbps(10),
                            [&](host::OperationId id, SimTime at) { ended.emplace_back(id.value, at.seconds()); });
  const auto bytes = [](double megabytes) { return Bytes{static_cast<std::uint64_t>(megabytes * 1e6)}; };
  const SimTime ms = SimTime::milliseconds(1);
  Alarm later(AlarmRank::host, [&] { CHECK_FALSE(memory.run(host::OperationId{2}, ms, bytes(12)).has_value()); });
  AtStart start("uses", [&] {
    CHECK(memory.run(host::OperationId{0}, ms, Bytes{}) == ms);  // it uses no memory
    CHECK_FALSE(memory.run(host::OperationId{1}, ms, bytes(8)).has_value());
    CHECK(memory.slowdown() == 1);
    later.set(SimTime::microseconds(500));
  });
  run_kernel();
  // 8 GB/s for half of its time; then twice as long beside 12 GB/s, which has 1.2 times as long for its second half.
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].first == 1);
  CHECK(ended[0].second == Approx(1.5e-3).epsilon(1e-9));
  CHECK(ended[1].second == Approx(2.1e-3).epsilon(1e-9));
  CHECK(memory.slowdown() == 1);
}

TEST_CASE("a copy alone takes the time of its link, whether it goes in pieces or not") {
  for (const bool limited : {false, true}) {
    const SimulationContext context;
    // Two GPUs together are faster than this root complex, one is not.
    Rig rig({.root_complex = limited ? gbps(30) : gbps(80), .copies = gbps(20)}, 1, gbps(3.5), 2);
    host::Operation op;
    op.resource = {host::ResourceKind::gpu_to_host, 1};
    op.work = host::LinkWork{Bytes::mib(10), host::LinkPayload::kv};
    SimTime ended;
    host::CopyBackend copies(rig.links, {.bandwidth = gbps(20), .latency = SimTime::microseconds(2)},
                             [&](host::OperationId, SimTime at) { ended = at; });
    AtStart start("copy", [&] {
      const auto known = copies.start(op, SimTime{});
      CHECK(known.has_value() == !limited);
      if (known) ended = *known;
    });
    rig.run();
    CHECK(ended.seconds() == Approx(2e-6 + double(Bytes::mib(10).value) / 20e9).epsilon(1e-4));
    CHECK(rig.links.use(SharedLinkKind::root_in).bytes == double(Bytes::mib(10).value));
  }
}

}  // namespace test_shared_links

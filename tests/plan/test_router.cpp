// The router, the ledger of tensors, and the backends of processors and links, against closed forms.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/router.h"
#include "tests/support/planner_support.h"
#include "tests/support/resolver.h"

namespace test_router {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;
using Catch::Matchers::Contains;

namespace {

constexpr Resource kUp{ResourceKind::host_to_gpu, 0}, kDown{ResourceKind::gpu_to_host, 0};
const TensorName kWeights = TensorName::kept(TensorClass::weights, LayerId{3});
const TensorName kHidden = TensorName::of(TensorClass::hidden, {});

struct Emitted {
  OpKind kind;
  Resource resource;
  Work work;
  TensorUses tensors;
  std::vector<std::uint64_t> deps = {};
};

/// One step of the operations given, closed by a sample on the GPU.
class OneStep final : public Planner {
 public:
  OneStep(std::vector<Emitted> operations, std::vector<PlacedTensor> resident)
      : operations_(std::move(operations)), resident_(std::move(resident)) {}
  std::vector<PlacedTensor> resident() const override { return resident_; }
  bool next_step(OperationSink& sink) override {
    if (done_) return false;
    for (const Emitted& e : operations_) {
      std::vector<OperationId> deps;
      for (const std::uint64_t d : e.deps) deps.push_back(OperationId{d});
      sink.add(e.kind, e.resource, {}, e.work, deps, e.tensors);
    }
    sink.add(OpKind::sample, Resource::gpu(), {}, ComputeWork{.flops = 0, .launches = 0}, {});
    return done_ = true;
  }

 private:
  std::vector<Emitted> operations_;
  std::vector<PlacedTensor> resident_;
  bool done_ = false;
};

/// 1 GFLOP/s and 1 GB/s: an operation of n flops or bytes takes n ns.
GpuConfig round_gpu() {
  GpuConfig gpu;
  gpu.fp16_rate = ComputeRate{1'000'000'000};
  gpu.memory_bandwidth = {1'000'000'000};
  gpu.kernel_launch = {};
  gpu.efficiency = HostParameters{}.efficiency;
  return gpu;
}

HostParameters round_host(std::uint32_t cores, std::uint32_t slots) {
  HostParameters host{.cores = cores, .core_flops = 1'000'000'000, .memory = {4'000'000'000}, .slots = slots};
  return host;
}

struct Machine {
  Router router;
  GpuBackend gpu{GpuModel(round_gpu())};
  HostBackend host;
  LinkBackend link{{.bandwidth = {2'000'000'000}, .latency = SimTime::nanoseconds(7)}};
  ExecutorConfig config;

  explicit Machine(std::uint32_t cores = 4, std::uint32_t slots = 1) : host(round_host(cores, slots)) {
    config.slots[static_cast<std::size_t>(ResourceKind::host)] = slots;
    router.add(ResourceKind::gpu, gpu);
    router.add(ResourceKind::host, host);
    router.add(ResourceKind::host_to_gpu, link);
    router.add(ResourceKind::gpu_to_host, link);
  }
  ExecutionReport run(std::vector<Emitted> operations, std::vector<PlacedTensor> resident = {}) {
    OneStep planner(std::move(operations), std::move(resident));
    Executor executor(planner, router, config);
    host::test::run(executor);
    return executor.report();
  }
};

ComputeWork flops(std::uint64_t n) { return {.flops = n, .launches = 0}; }

}  // namespace

TEST_CASE("each resource has one backend") {
  Machine machine;
  CHECK_THROWS_WITH(machine.router.add(ResourceKind::gpu, machine.gpu), Contains("gpu has a backend already"));
  CHECK_THROWS_WITH(machine.run({{OpKind::read_blocks, Resource::drive_blocks(DriveIndex{1}), BlockWork{}, {}}}),
                    Contains("no backend serves drive 1 blocks"));
  CHECK_THROWS_AS(machine.run({{OpKind::embed, Resource::gpu(), LinkWork{}, {}}}), InternalError);
}

TEST_CASE("weights that arrive: both directions of a link, GPU and host work side by side") {
  Machine machine;
  const TensorUses up{.reads = {kWeights}, .writes = {{kWeights, Bytes{1000}}}};
  const TensorUses down{.reads = {kHidden}, .writes = {{kHidden, Bytes{400}}}};
  const ExecutionReport r =
      machine.run({{OpKind::transfer, kUp, LinkWork{Bytes{1000}, LinkPayload::weights}, up},
                   {OpKind::transfer, kDown, LinkWork{Bytes{400}}, down},
                   {OpKind::feed_forward, Resource::gpu(), flops(300), {.reads = {kWeights}}, {0}},
                   {OpKind::attention, Resource::host(), flops(4000), {.reads = {kHidden}}, {1}}},
                  {{kWeights, Place::host(), Bytes{1000}}, {kHidden, Place::gpu(), Bytes{400}}});
  CHECK(r.busy.at(kUp) == SimTime::nanoseconds(7 + 500));
  CHECK(r.busy.at(kDown) == SimTime::nanoseconds(7 + 200));
  CHECK(r.kind_time[static_cast<std::size_t>(OpKind::attention)] == SimTime::nanoseconds(1000));  // on four cores
  CHECK(r.end == SimTime::nanoseconds(207 + 1000));
  CHECK(machine.link.bytes(ResourceKind::host_to_gpu) == Bytes{1000});
  CHECK(machine.link.bytes(ResourceKind::gpu_to_host) == Bytes{400});
  CHECK(machine.router.tensors().footprint(Place::gpu()).peak == Bytes{1400});
  CHECK(machine.router.tensors().footprint(Place::host()).peak == Bytes{1400});
}

TEST_CASE("slots share out the host's cores and memory") {
  const ComputeWork compute = flops(4000), memory{.activations = Bytes{8000}, .launches = 0};
  for (const std::uint32_t slots : {1u, 2u, 4u}) {
    Machine machine(4, slots);
    const ExecutionReport r = machine.run({{OpKind::attention, Resource::host(), compute, {}},
                                           {OpKind::attention, Resource::host(), memory, {}},
                                           {OpKind::attention, Resource::host(), compute, {}},
                                           {OpKind::attention, Resource::host(), memory, {}}});
    // Alone a compute operation takes 1000 ns on all cores, a memory operation 2000 ns.
    const std::int64_t expected = slots == 1 ? 6000 : slots == 2 ? 2 * 4000 : 8000;
    CHECK(r.kind_time[static_cast<std::size_t>(OpKind::attention)] == SimTime::nanoseconds(slots * std::int64_t{6000}));
    if (slots != 2) CHECK(r.end == SimTime::nanoseconds(expected));
  }
  CHECK_THROWS_AS(HostBackend(round_host(2, 3)), UserError);
  CHECK_THROWS_AS(HostBackend(round_host(2, 0)), UserError);
}

TEST_CASE("an input that is not where the operation runs names both, in timing runs too") {
  Machine machine;
  const Emitted user{OpKind::feed_forward, Resource::gpu(), flops(1), {.reads = {kWeights}}};
  CHECK_THROWS_WITH(machine.run({user}), Contains("reads weights, layer 3") && Contains("it is nowhere"));
  CHECK_THROWS_WITH(machine.run({user}, {{kWeights, Place::host(), Bytes{8}}}), Contains("at gpu, but it is at host"));
}

TEST_CASE("a forgotten dependency is found where the tensor is still being written") {
  Machine machine;
  const Emitted transfer{OpKind::transfer, kUp, LinkWork{Bytes{8}}, {.reads = {kWeights}, .writes = {{kWeights, {8}}}}};
  const Emitted user{OpKind::feed_forward, Resource::gpu(), flops(1), {.reads = {kWeights}}};
  // The GPU comes to it when the transfer has begun.
  const Emitted first{OpKind::embed, Resource::gpu(), flops(1), {}};
  CHECK_THROWS_WITH(machine.run({transfer, first, user}, {{kWeights, Place::host(), Bytes{8}}}),
                    Contains("still being written"));
  Machine other;
  const Emitted second{OpKind::embed, Resource::gpu(), flops(1), {.writes = {{kWeights, {8}}}}};
  CHECK_THROWS_WITH(other.run({transfer, second}, {{kWeights, Place::host(), Bytes{8}}}),
                    Contains("dependency is missing"));
}

TEST_CASE("a transfer's time is that of its tensors' bytes") {
  Machine machine;
  const Emitted transfer{OpKind::transfer, kUp, LinkWork{Bytes{9}}, {.reads = {kWeights}, .writes = {{kWeights, {8}}}}};
  CHECK_THROWS_WITH(machine.run({transfer}, {{kWeights, Place::host(), Bytes{8}}}),
                    Contains("moves 9 B") && Contains("8 B"));
}

TEST_CASE("footprints: what is dropped gives its space back, and exceeding a capacity says what would fit") {
  const auto gpu_op = [](std::vector<SizedTensor> writes, std::vector<TensorAt> drops,
                         std::vector<std::uint64_t> deps) -> Emitted {
    return {OpKind::embed,
            Resource::gpu(),
            flops(1),
            {.writes = std::move(writes), .drops = std::move(drops)},
            std::move(deps)};
  };
  const TensorName cache = TensorName::kept(TensorClass::kv_cache, LayerId{0});
  const std::vector<Emitted> operations = {gpu_op({{kHidden, Bytes::mib(3)}}, {}, {}),
                                           gpu_op({{cache, Bytes::mib(2)}}, {{kHidden, Place::gpu()}}, {0}),
                                           gpu_op({{cache, Bytes::mib(4)}}, {}, {1})};
  const std::vector<PlacedTensor> resident = {{kWeights, Place::gpu(), Bytes::mib(10)}};
  {
    Machine machine;
    machine.router.tensors().set_capacity(Place::gpu(), Bytes::mib(15));
    machine.run(operations, resident);
    const Footprint f = machine.router.tensors().footprint(Place::gpu());
    CHECK(f.now == Bytes::mib(14));
    CHECK(f.peak == Bytes::mib(15));
    CHECK(f.of_class_at_peak[static_cast<std::size_t>(TensorClass::hidden)] == Bytes::mib(3));
    CHECK(f.of_class[static_cast<std::size_t>(TensorClass::kv_cache)] == Bytes::mib(4));
  }
  Machine machine;
  machine.router.tensors().set_capacity(Place::gpu(), Bytes::mib(14));
  CHECK_THROWS_AS(machine.run(operations, resident), UserError);
  Machine again;
  again.router.tensors().set_capacity(Place::gpu(), Bytes::mib(14));
  CHECK_THROWS_WITH(again.run(operations, resident), Contains("weights 10.0 MiB") && Contains("hidden 3.0 MiB") &&
                                                         Contains("up to 1.0 MiB of kv_cache"));
  Machine drops_twice;
  CHECK_THROWS_WITH(drops_twice.run({gpu_op({}, {{kHidden, Place::gpu()}}, {})}), Contains("where it is not"));
}

TEST_CASE("sizes that depend on data are settled when the operation starts") {
  Machine machine;
  int asked = 0;
  const host::RunFeatures features = csdsim::host::resolving([&](const Operation& op) -> std::optional<Work> {
    if (op.kind != OpKind::feed_forward) return std::nullopt;
    ++asked;
    return flops(500);
  });
  machine.router.set_features(features);
  const ExecutionReport r = machine.run(
      {{OpKind::feed_forward, Resource::gpu(), flops(9999), {}}, {OpKind::embed, Resource::gpu(), flops(3), {}}});
  CHECK(asked == 1);
  CHECK(r.end == SimTime::nanoseconds(503));

  // The ledger checks the settled size, not the planned one.
  Machine other;
  const host::RunFeatures features_3 = csdsim::host::resolving([](const Operation& op) -> std::optional<Work> {
    if (op.kind != OpKind::transfer) return std::nullopt;
    return LinkWork{Bytes{8}};
  });
  other.router.set_features(features_3);
  other.run({{OpKind::transfer, kUp, LinkWork{}, {.reads = {kWeights}, .writes = {{kWeights, {8}}}}}},
            {{kWeights, Place::host(), Bytes{8}}});
  CHECK(other.link.bytes(ResourceKind::host_to_gpu) == Bytes{8});
}

TEST_CASE("InstInfer through the router: every tensor is found, and only weights and K/V stay") {
  for (const bool through_host : {false, true})
    for (const std::uint32_t drives : {1u, 2u}) {
      PlannerInputs in = small_inputs(3, {20, 7, 12}, 6, 2);
      in.drives = drives;
      in.through_host = through_host;
      Machine machine;
      FunctionBackend kv(
          [](const Operation& op) { return SimTime::nanoseconds(op.kind == OpKind::append_kv ? 9000 : 40); });
      machine.router.add(ResourceKind::drive_kv, kv);
      auto planner = plan_of("instinfer-dense", in);
      Executor executor(*planner, machine.router, {});
      host::test::run(executor);
      const TensorLedger& tensors = machine.router.tensors();
      CHECK(tensors.footprint(Place::gpu()).now == in.model.weight_bytes());
      CHECK(tensors.footprint(Place::host()).now == Bytes{});
      CHECK((tensors.footprint(Place::host()).peak.value > 0) == through_host);
      Bytes kept;
      for (std::uint32_t d = 0; d < drives; ++d) kept += tensors.footprint(Place::drive_kv(DriveIndex{d})).now;
      CHECK(kept == in.model.kv_bytes_per_token() * (20 + 7 + 12 + 3 * 5));
      // Over the link: K and V of every token, q of every decoded one; and its attention output on the way back.
      const Bytes queries = in.model.query_bytes({KvHead{0}, in.model.kv_heads}) * (3 * 5 * in.model.layers);
      CHECK(machine.link.bytes(ResourceKind::gpu_to_host) == (through_host ? kept + queries : Bytes{}));
      CHECK(machine.link.bytes(ResourceKind::host_to_gpu) == (through_host ? queries : Bytes{}));
    }
}

}  // namespace test_router

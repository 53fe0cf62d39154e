// Page operations per second of wall time: the timeline core, the same behind its TLM socket, and the event-driven
// oracle. Random 4 KiB reads at saturation: eight reads per plane are in flight at any time, each completion submits
// the next.
#include <benchmark/benchmark.h>
#include <tlm_utils/simple_initiator_socket.h>

#include <memory>
#include <systemc>
#include <vector>

#include "nfc/core/flash_timeline.h"
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"

namespace csdsim::nfc {
namespace {

constexpr std::uint32_t kDepthPerPlane = 8;

/// xorshift64*: cheap enough not to show up beside the work.
struct Random {
  std::uint64_t state = 88172645463325252ULL;
  std::uint64_t operator()() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ULL;
  }
  PageOp read(std::uint64_t pages) {
    const auto page = static_cast<std::uint64_t>((static_cast<unsigned __int128>((*this)()) * pages) >> 64);
    return {{page}, PageOpKind::read, OpClass::host, 0, 4096};
  }
};

FlashGeometry geometry_of(const benchmark::State& state) {
  FlashGeometry geometry;
  geometry.channels = static_cast<std::uint32_t>(state.range(0));
  geometry.dies_per_channel = static_cast<std::uint32_t>(state.range(1));
  geometry.planes_per_die = static_cast<std::uint32_t>(state.range(2));
  return geometry;
}

void timeline(benchmark::State& state, FlashTiming timing) {
  const FlashGeometry geometry = geometry_of(state);
  const auto batch = static_cast<std::size_t>(state.range(3));
  FlashTimeline flash(geometry, timing);
  Random random;
  std::vector<PageOp> ops(batch);
  const auto submit = [&](SimTime at) {
    for (PageOp& op : ops) op = random.read(geometry.pages());
    flash.submit(ops, at);
  };
  for (std::size_t i = 0; i < kDepthPerPlane * geometry.planes(); i += batch) submit(SimTime{});
  std::vector<FlashCompletion> done;
  std::size_t completed = 0;
  for (auto _ : state) {
    const SimTime now = flash.run(SimTime::max());
    done.clear();
    flash.take_completions(now, done);
    for (std::size_t i = 0; i < done.size(); ++i) submit(now);
    completed += done.size() * batch;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(completed));
}

/// Keeps the reads in flight over TLM, until it has seen `total` batches.
class Initiator : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<Initiator> socket{"socket"};

  Initiator(const sc_core::sc_module_name& name, const FlashGeometry& geometry, std::size_t batch, std::uint64_t total)
      : sc_module(name),
        geometry_(geometry),
        ops_(batch),
        depth_(kDepthPerPlane * geometry.planes() / batch + 1),
        to_submit_(total) {
    socket.register_nb_transport_bw(this, &Initiator::nb_transport_bw);
    SC_METHOD(fill);
  }
  SC_HAS_PROCESS(Initiator);

 private:
  void fill() {
    for (std::size_t i = 0; i < depth_; ++i) submit();
  }
  void submit() {
    if (to_submit_ == 0) return;
    --to_submit_;
    for (PageOp& op : ops_) op = random_.read(geometry_.pages());
    tlm::tlm_generic_payload& payload = pool_.allocate(ops_);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    socket->nb_transport_fw(payload, phase, delay);
    payload.release();
  }
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) {
    submit();
    return tlm::TLM_COMPLETED;
  }

  FlashGeometry geometry_;
  std::vector<PageOp> ops_;
  std::size_t depth_;
  std::uint64_t to_submit_;
  Random random_;
  FlashPayloadPool pool_;
};

/// A new simulation per iteration, elaboration not counted.
template <class Flash>
void through_socket(benchmark::State& state, std::uint64_t ops_per_iteration) {
  const auto batch = static_cast<std::size_t>(state.range(3));
  std::uint64_t ops = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto* context = new sc_core::sc_simcontext;
    sc_core::sc_curr_simcontext = sc_core::sc_default_global_context = context;
    {
      Flash flash("flash", geometry_of(state), FlashTiming{});
      Initiator initiator("initiator", geometry_of(state), batch, ops_per_iteration / batch);
      initiator.socket.bind(flash.socket);
      sc_core::sc_start(sc_core::SC_ZERO_TIME);
      state.ResumeTiming();
      sc_core::sc_start();
      state.PauseTiming();
      ops += flash.statistics().total_ops();
    }
    delete context;
    state.ResumeTiming();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(ops));
}

void fast_flash(benchmark::State& state) { through_socket<FastFlash>(state, 1'000'000); }
void at_flash(benchmark::State& state) { through_socket<AtFlash>(state, 200'000); }

FlashTiming jittered() {
  FlashTiming timing;
  timing.read_jitter = SimTime::microseconds(10);
  return timing;
}

/// Everything that the general rules have, on.
FlashTiming general() {
  FlashTiming timing;
  timing.page_types.emplace().read_latency = {SimTime::microseconds(40), SimTime::microseconds(50),
                                              SimTime::microseconds(60)};
  timing.cache = CacheConfig{.program = false};
  timing.suspend = SuspendConfig{.latency = {}};
  timing.class_priority = {OpClass::host, OpClass::gc};
  timing.packages = PackagesConfig{.dies = 1};
  timing.ecc_bandwidth = Bandwidth{3'200'000'000};
  timing.page_buffers = 8;
  return timing;
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"channels", "dies", "planes", "batch"});
  b->Args({8, 8, 2, 1});
  b->Args({2, 2, 2, 1});    // 8 planes
  b->Args({4, 8, 2, 1});    // 64
  b->Args({8, 8, 4, 1});    // 256
  b->Args({16, 16, 4, 1});  // 1,024
  b->Args({1, 256, 4, 1});  // 1,024 on one channel
  b->Args({8, 8, 2, 32});
}

void socket_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"channels", "dies", "planes", "batch"})->Unit(benchmark::kMillisecond);
  b->Args({8, 8, 2, 1});
  b->Args({8, 8, 2, 32});
  b->Args({16, 16, 4, 1});
}

BENCHMARK_CAPTURE(timeline, constant, FlashTiming{})->Apply(shapes);
BENCHMARK_CAPTURE(timeline, jittered, jittered())->Args({8, 8, 2, 1});
BENCHMARK_CAPTURE(timeline, general, general())->Args({8, 8, 2, 1})->Args({8, 8, 2, 32})->Args({16, 16, 4, 1});
BENCHMARK(fast_flash)->Apply(socket_shapes);
BENCHMARK(at_flash)->Apply(socket_shapes);

}  // namespace
}  // namespace csdsim::nfc

/// SystemC owns main.
int sc_main(int argc, char* argv[]) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

// The attention engine behind its sockets, and an engine of somebody else's in its place.
#include <tlm_utils/peq_with_get.h>

#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/selection.h"
#include "attention_engine/sysc/attention_engine.h"
#include "base/error.h"
#include "memory_kv_source.h"
#include "nfc/sysc/fast_flash.h"
#include "nfc/sysc/sim_time.h"
#include "sysc_parts.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::engine::test {
namespace {

const SimTime kLatency = SimTime::microseconds(50);

/// Answers every batch after the same time.
class FixedFlash : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<FixedFlash> socket{"socket"};
  std::uint64_t pages = 0;

  explicit FixedFlash(const sc_core::sc_module_name& name) : sc_module(name) {
    socket.register_nb_transport_fw(this, &FixedFlash::fw);
    SC_METHOD(respond);
    sensitive << queue_.get_event();
    dont_initialize();
  }
  SC_HAS_PROCESS(FixedFlash);

 private:
  tlm::tlm_sync_enum fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
    payload.acquire();
    pages += payload.get_extension<nfc::FlashBatch>()->ops.size();
    queue_.notify(payload, to_sc_time(kLatency));
    phase = tlm::END_REQ;
    return tlm::TLM_UPDATED;
  }
  void respond() {
    while (auto* payload = queue_.get_next_transaction()) {
      tlm::tlm_phase phase = tlm::BEGIN_RESP;
      sc_core::sc_time delay;
      payload->set_response_status(tlm::TLM_OK_RESPONSE);
      socket->nb_transport_bw(*payload, phase, delay);
      payload->release();
    }
  }
  tlm_utils::peq_with_get<tlm::tlm_generic_payload> queue_{"queue"};
};

/// Another engine: it reads all of K and V of one head after another and needs no time to compute.
class SerialEngine : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<SerialEngine> attend_socket{"attend_socket"};
  tlm_utils::simple_initiator_socket<SerialEngine> flash_socket{"flash_socket"};

  SerialEngine(const sc_core::sc_module_name& name, KvSource& source) : sc_module(name), source_(source) {
    attend_socket.register_nb_transport_fw(this, &SerialEngine::attend_fw);
    flash_socket.register_nb_transport_bw(this, &SerialEngine::flash_bw);
  }

 private:
  tlm::tlm_sync_enum attend_fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
    payload.acquire();
    commands_.push_back(&payload);
    if (commands_.size() == 1) read();
    phase = tlm::END_REQ;
    return tlm::TLM_UPDATED;
  }
  const HeadJob& job() const { return commands_.front()->get_extension<AttendExtension>()->jobs[next_]; }
  void read() {
    ReadPlan plan;
    std::vector<std::uint32_t> groups(source_.view(job().key).flushed_groups());
    std::iota(groups.begin(), groups.end(), 0u);
    source_.plan_token_groups(job().key, KvRows::both, groups, {}, plan);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    flash_socket->nb_transport_fw(pool_.allocate(plan.ops), phase, delay);
  }
  tlm::tlm_sync_enum flash_bw(tlm::tlm_generic_payload& batch, tlm::tlm_phase&, sc_core::sc_time&) {
    batch.release();
    std::vector<float> q(job().group * kDim), out(q.size());
    halves_to_floats({job().q, q.size()}, q);
    DenseAttention().attend(source_, job().key, q, job().group, out);
    floats_to_halves(out, {job().out, out.size()});
    tlm::tlm_generic_payload& command = *commands_.front();
    if (++next_ == command.get_extension<AttendExtension>()->jobs.size()) {
      next_ = 0;
      commands_.pop_front();
      tlm::tlm_phase phase = tlm::BEGIN_RESP;
      sc_core::sc_time delay;
      command.set_response_status(tlm::TLM_OK_RESPONSE);
      attend_socket->nb_transport_bw(command, phase, delay);
      command.release();
    }
    if (!commands_.empty()) read();
    return tlm::TLM_COMPLETED;
  }

  KvSource& source_;
  nfc::FlashPayloadPool pool_;
  std::deque<tlm::tlm_generic_payload*> commands_;
  std::size_t next_ = 0;
};

using Done = std::vector<std::pair<std::uint64_t, std::int64_t>>;

SimTime dense_kernel(std::uint64_t tokens) {
  return cycles_time(2 * tokens * kDim / 128 + (tokens + 7) / 8, EngineConfig{}.clock);
}

/// An engine between a controller and flash, with K and V of some heads.
struct Bench {
  csdsim::test::SyscFixture context;
  Cache cache;
  CarriedWork work{cache.source, 16};
  AttentionEngine engine;
  FixedFlash flash{"flash"};
  Controller controller{"controller"};

  Bench(std::uint32_t heads, std::uint32_t tokens, const EngineConfig& config = {})
      : cache(heads, tokens), engine("engine", config, cache.source, work) {
    controller.socket.bind(engine.attend_socket);
    engine.flash_socket.bind(flash.socket);
  }
};

}  // namespace

TEST_CASE("a command through the sockets takes the flash latency and the kernel's cycles, and carries the answer") {
  Bench bench(2, 1000);
  const auto& cache = bench.cache;
  Controller& controller = bench.controller;
  controller.script = [&](Controller& c) {
    sc_core::wait(to_sc_time(SimTime::nanoseconds(3)));
    CHECK(c.submit(cache.jobs, 7));
  };
  sc_core::sc_start();
  CHECK(controller.done == Done{{7, (SimTime::nanoseconds(3) + kLatency + dense_kernel(1000)).ps}});
  CHECK(controller.pool.in_use() == 0);
  CHECK(bench.flash.pages == 2 * 2 * 62);
  CHECK(cache.out == cache.expected());
  CHECK(bench.engine.stats().tasks == 1);
}

TEST_CASE("several commands are outstanding, and a command may be submitted from within a response") {
  Bench bench(4, 500);
  const auto& cache = bench.cache;
  Controller& controller = bench.controller;
  const std::span<const HeadJob> jobs = cache.jobs;
  controller.script = [&](Controller& c) {
    c.submit(jobs.first(1), 0);
    c.submit(jobs.subspan(1, 1), 1);
    c.submit(jobs.subspan(2, 1), 2);
  };
  controller.on_response = [&](tlm::tlm_generic_payload& payload) {
    if (payload.get_extension<AttendExtension>()->tag == 0) controller.submit(jobs.last(1), 3);
    return tlm::TLM_COMPLETED;
  };
  sc_core::sc_start();
  const std::int64_t kernel = dense_kernel(500).ps, first = kLatency.ps + kernel;
  CHECK(controller.done == Done{{0, first}, {1, first}, {2, first + kernel}, {3, first + kLatency.ps + kernel}});
  CHECK(controller.pool.in_use() == 0);
  CHECK(cache.out == cache.expected());
}

TEST_CASE("an initiator that accepts a response holds back the next until it ends it") {
  Bench bench(2, 500);
  const auto& cache = bench.cache;
  Controller& controller = bench.controller;
  tlm::tlm_generic_payload* held = nullptr;
  const SimTime end = SimTime::milliseconds(1);
  controller.script = [&](Controller& c) {
    c.submit(std::span(cache.jobs).first(1), 0);
    c.submit(std::span(cache.jobs).last(1), 1);
    sc_core::wait(to_sc_time(end));
    tlm::tlm_phase phase = tlm::END_RESP;
    sc_core::sc_time delay;
    c.socket->nb_transport_fw(*held, phase, delay);
  };
  controller.on_response = [&](tlm::tlm_generic_payload& payload) {
    if (held != nullptr) return tlm::TLM_COMPLETED;
    held = &payload;
    return tlm::TLM_ACCEPTED;
  };
  sc_core::sc_start();
  CHECK(controller.done == Done{{0, (kLatency + dense_kernel(500)).ps}, {1, end.ps}});
  CHECK(controller.pool.in_use() == 0);
}

TEST_CASE("a command that cannot be is refused with a reason, and the engine goes on") {
  EngineConfig config;
  config.buffer = Bytes{4096};
  Bench bench(1, 500, config);
  const auto& cache = bench.cache;
  Controller& controller = bench.controller;
  controller.script = [&](Controller& c) {
    HeadJob large = cache.jobs[0];
    large.group = 4;
    CHECK_FALSE(c.submit({&large, 1}, 1));
    CHECK(c.error.find("engine.buffer is 4096 B") != std::string::npos);
    CHECK_FALSE(c.submit({}, 2));
    CHECK_FALSE(c.submit(cache.jobs, 3, SimTime{1}));
    CHECK(c.submit(cache.jobs, 4));
  };
  sc_core::sc_start();
  REQUIRE(controller.done.size() == 1);
  CHECK(controller.done[0].first == 4);
  CHECK(controller.pool.in_use() == 0);
}

TEST_CASE("another engine takes the place of ours and gives the same answer") {
  csdsim::test::SyscFixture context;
  Cache cache(3, 700);
  SerialEngine engine("engine", cache.source);
  FixedFlash flash("flash");
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(flash.socket);
  controller.script = [&](Controller& c) { c.submit(cache.jobs, 5); };
  sc_core::sc_start();
  CHECK(controller.done == Done{{5, 3 * kLatency.ps}});
  CHECK(controller.pool.in_use() == 0);
  CHECK(cache.out == cache.expected());
}

TEST_CASE("SparF through the flash model gives the same bits for any number of channels") {
  constexpr std::uint32_t kHeads = 6;
  std::vector<std::vector<Half>> outs;
  std::vector<std::int64_t> ends;
  for (std::uint32_t channels : {1u, 2u, 8u}) {
    csdsim::test::SyscFixture context;
    Cache cache(kHeads, 1500);
    for (HeadJob& job : cache.jobs) {
      job.method = Method::sparf;
      job.sparf = {.r = 16, .k = 190, .l = 48};
    }
    CarriedWork work(cache.source, 16);
    AttentionEngine engine("engine", {}, cache.source, work);
    // Each head's pages lie in one plane, the heads' planes 16 apart: with 8 channels every head has its own.
    FlashGeometry geometry;
    geometry.channels = channels;
    geometry.dies_per_channel = 32 / channels;
    geometry.blocks_per_plane = 1 << 20;
    geometry.pages_per_block = 1;
    nfc::FlashTiming timing;
    timing.read_latency = kLatency;
    timing.channel_bandwidth = {1'400'000'000};
    nfc::FastFlash flash("flash", geometry, timing);
    Controller controller("controller");
    controller.socket.bind(engine.attend_socket);
    engine.flash_socket.bind(flash.socket);
    controller.script = [&](Controller& c) { c.submit(cache.jobs, 0); };
    sc_core::sc_start();
    REQUIRE(controller.done.size() == 1);
    CHECK(engine.stats().sparf_jobs == kHeads);
    outs.push_back(cache.out);
    ends.push_back(controller.done[0].second);
  }
  CHECK(outs[0] == outs[1]);
  CHECK(outs[0] == outs[2]);
  CHECK(ends[0] != ends[2]);
  CHECK(std::any_of(outs[0].begin(), outs[0].end(), [](Half h) { return h != 0; }));
}

}  // namespace csdsim::engine::test

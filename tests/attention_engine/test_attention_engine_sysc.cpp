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
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "nfc/sysc/sim_time.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::engine::test {
namespace {

constexpr std::uint32_t kDim = 128;
constexpr unsigned kSeed = 4711;
const SimTime kLatency = SimTime::microseconds(50);

HeadKey head(std::uint32_t h) { return {SequenceId{1}, LayerId{0}, KvHead{h}}; }

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
    std::vector<PageOp> ops;
    std::vector<std::uint32_t> groups(source_.view(job().key).flushed_groups());
    std::iota(groups.begin(), groups.end(), 0u);
    source_.plan_token_groups(job().key, KvRows::both, groups, {}, ops);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    flash_socket->nb_transport_fw(pool_.allocate(ops), phase, delay);
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

/// Whoever executes attention commands in a drive.
class Controller : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<Controller> socket{"socket"};
  std::function<void(Controller&)> script;
  std::vector<std::pair<std::uint64_t, std::int64_t>> done;  ///< tag, ps
  /// What to do at BEGIN_RESP.
  std::function<tlm::tlm_sync_enum(tlm::tlm_generic_payload&)> on_response;
  AttendPayloadPool pool;
  std::string error;

  explicit Controller(const sc_core::sc_module_name& name) : sc_module(name) {
    socket.register_nb_transport_bw(this, &Controller::bw);
    SC_THREAD(run);
  }
  SC_HAS_PROCESS(Controller);

  bool submit(std::span<const HeadJob> jobs, std::uint64_t tag, SimTime annotated = {}) {
    auto& payload = pool.allocate(jobs, tag);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay = to_sc_time(annotated);
    const auto status = socket->nb_transport_fw(payload, phase, delay);
    error = payload.get_extension<AttendExtension>()->error;
    payload.release();
    return status == tlm::TLM_UPDATED && phase == tlm::END_REQ;
  }

 private:
  void run() { script(*this); }
  tlm::tlm_sync_enum bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase&, sc_core::sc_time&) {
    done.emplace_back(payload.get_extension<AttendExtension>()->tag, sim_time_now().ps);
    return on_response ? on_response(payload) : tlm::TLM_COMPLETED;
  }
};

using Done = std::vector<std::pair<std::uint64_t, std::int64_t>>;

struct Cache {
  explicit Cache(std::uint32_t heads, std::uint32_t tokens) : q(heads * kDim), out(q.size()), jobs(heads) {
    floats_to_halves(random_query(q.size(), kSeed), q);
    for (std::uint32_t h = 0; h < heads; ++h) {
      source.add(head(h), {.tokens = tokens, .head_dim = kDim, .embedding_group = 8}, kSeed + h);
      jobs[h].key = head(h);
      jobs[h].q = q.data() + h * kDim;
      jobs[h].out = out.data() + h * kDim;
    }
  }
  std::vector<Half> expected() const {
    std::vector<Half> all(q.size());
    for (std::size_t h = 0; h < jobs.size(); ++h) {
      std::vector<float> wide(kDim), result(kDim);
      halves_to_floats({jobs[h].q, kDim}, wide);
      DenseAttention().attend(source, jobs[h].key, wide, 1, result);
      floats_to_halves(result, {all.data() + h * kDim, kDim});
    }
    return all;
  }

  MemoryKvSource source;
  std::vector<Half> q, out;
  std::vector<HeadJob> jobs;
};

SimTime dense_kernel(std::uint64_t tokens) {
  return cycles_time(2 * tokens * kDim / 128 + (tokens + 7) / 8, EngineConfig{}.clock);
}

}  // namespace

TEST_CASE("a command through the sockets takes the flash latency and the kernel's cycles, and carries the answer") {
  csdsim::test::SyscFixture context;
  Cache cache(2, 1000);
  CarriedWork work(cache.source, 16);
  AttentionEngine engine("engine", {}, cache.source, work);
  FixedFlash flash("flash");
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(flash.socket);
  controller.script = [&](Controller& c) {
    sc_core::wait(to_sc_time(SimTime::nanoseconds(3)));
    CHECK(c.submit(cache.jobs, 7));
  };
  sc_core::sc_start();
  CHECK(controller.done == Done{{7, (SimTime::nanoseconds(3) + kLatency + dense_kernel(1000)).ps}});
  CHECK(controller.pool.in_use() == 0);
  CHECK(flash.pages == 2 * 2 * 62);
  CHECK(cache.out == cache.expected());
  CHECK(engine.stats().tasks == 1);
}

TEST_CASE("several commands are outstanding, and a command may be submitted from within a response") {
  csdsim::test::SyscFixture context;
  Cache cache(4, 500);
  CarriedWork work(cache.source, 16);
  AttentionEngine engine("engine", {}, cache.source, work);
  FixedFlash flash("flash");
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(flash.socket);
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
  csdsim::test::SyscFixture context;
  Cache cache(2, 500);
  CarriedWork work(cache.source, 16);
  AttentionEngine engine("engine", {}, cache.source, work);
  FixedFlash flash("flash");
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(flash.socket);
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
  csdsim::test::SyscFixture context;
  Cache cache(1, 500);
  CarriedWork work(cache.source, 16);
  EngineConfig config;
  config.buffer = Bytes{4096};
  AttentionEngine engine("engine", config, cache.source, work);
  FixedFlash flash("flash");
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(flash.socket);
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

TEST_CASE("pages of a slow engine keep their buffers, and those behind them wait on their channel") {
  // Six heads of one page each, every one in a plane of its own, on one channel.
  constexpr std::uint32_t kHeads = 6, kTokens = 16;
  const auto run = [&](bool at, std::uint32_t buffers, std::uint32_t kernels, Frequency clock) {
    csdsim::test::SyscFixture context;
    Cache cache(kHeads, kTokens);
    std::vector<std::vector<float>> scores(kHeads, std::vector<float>(kTokens));
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      cache.jobs[h].method = Method::score;
      cache.jobs[h].scores = scores[h].data();
    }
    CarriedWork work(cache.source, 16);
    EngineConfig config;
    config.clock = clock;
    config.kernels = kernels;
    config.hold_page_buffers = buffers > 0;
    AttentionEngine engine("engine", config, cache.source, work);
    FlashGeometry geometry;
    geometry.channels = 1;
    geometry.dies_per_channel = 8;
    geometry.blocks_per_plane = 1 << 20;
    geometry.pages_per_block = 16;
    nfc::FlashTiming timing;
    timing.page_buffers = buffers;
    std::unique_ptr<nfc::FlashTarget> flash;
    if (at) {
      flash = std::make_unique<nfc::AtFlash>("flash", geometry, timing);
    } else {
      flash = std::make_unique<nfc::FastFlash>("flash", geometry, timing);
    }
    Controller controller("controller");
    controller.socket.bind(engine.attend_socket);
    engine.flash_socket.bind(flash->socket);
    controller.script = [&](Controller& c) {
      for (std::uint32_t h = 0; h < kHeads; ++h) c.submit({&cache.jobs[h], 1}, h);
    };
    sc_core::sc_start();
    CHECK(flash->statistics().buffer_overflows == 0);
    std::vector<SimTime> done;
    for (const auto& [tag, ps] : controller.done) done.push_back(SimTime{ps});
    REQUIRE(done.size() == kHeads);
    return done;
  };
  const nfc::FlashTiming t;
  const SimTime sensed = t.command_time + t.read_latency;
  const SimTime transfer = t.data_out_setup + transfer_time(Bytes{4096}, t.channel_bandwidth);
  const Frequency slow{1'000'000};
  const SimTime kernel = cycles_time(kTokens * kDim / 128, slow);
  REQUIRE(kernel > transfer);
  for (const bool at : {false, true}) {
    const auto one = run(at, 1, 1, slow), two = run(at, 2, 2, slow), enough = run(at, 2, 1, slow);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      CHECK(one[h] == sensed + (transfer + kernel) * (h + 1));
      // Two at a time, one transfer apart.
      CHECK(two[h] == sensed + (transfer + kernel) * (h / 2 + 1) + transfer * (h % 2));
      // The next page arrives while the kernel works.
      CHECK(enough[h] == sensed + transfer + kernel * (h + 1));
    }
    CHECK(run(at, 1, 2, slow) == one);
    CHECK(run(at, 0, 1, slow) == enough);
    // A fast engine does not slow the channel.
    const Frequency fast{1'000'000'000};
    CHECK(run(at, 2, 1, fast) == run(at, 0, 1, fast));
  }
}

}  // namespace csdsim::engine::test

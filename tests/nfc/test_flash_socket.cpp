// The TLM-2.0 side of the flash modules: protocol, settling, lifetime, waveforms.
#include <tlm_utils/simple_initiator_socket.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "nfc/sysc/sim_time.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::test {
namespace {

using nfc::AtFlash;
using nfc::FastFlash;
using nfc::FlashBatch;
using nfc::FlashTarget;

constexpr std::int64_t kRead = 10 + 100 + 6 + 64;  ///< unloaded read, ps

FlashGeometry geometry() {
  FlashGeometry g;
  g.channels = 2;
  g.dies_per_channel = 2;
  g.planes_per_die = 2;
  g.blocks_per_plane = 8;
  g.pages_per_block = 1;
  g.page_size = Bytes{64};
  return g;
}

nfc::FlashTiming timing() {
  nfc::FlashTiming t;
  t.read_latency = SimTime{100};
  t.command_time = SimTime{10};
  t.data_out_setup = SimTime{6};
  t.channel_bandwidth = {1'000'000'000'000};
  return t;
}

PageOp read(std::uint32_t plane) {
  return {geometry().address(PlaneId{plane}, 0, 0), PageOpKind::read, OpClass::host, 0, 64};
}

/// An initiator whose thread runs `script`. `seen` has the tag and time of each response, and of each note.
class Probe : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<Probe> socket{"socket"};
  std::function<void(Probe&)> script;
  std::vector<std::pair<std::uint64_t, std::int64_t>> seen;
  /// What to return from BEGIN_RESP.
  std::function<tlm::tlm_sync_enum(tlm::tlm_generic_payload&, tlm::tlm_phase&)> on_response;
  nfc::FlashPayloadPool pool;

  explicit Probe(const sc_core::sc_module_name& name) : sc_module(name) {
    socket.register_nb_transport_bw(this, &Probe::nb_transport_bw);
    SC_THREAD(run);
  }
  SC_HAS_PROCESS(Probe);

  tlm::tlm_response_status submit(const std::vector<PageOp>& ops, std::uint64_t tag, SimTime annotated = {}) {
    auto& payload = pool.allocate(ops, tag);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay = to_sc_time(annotated);
    const auto status = socket->nb_transport_fw(payload, phase, delay);
    const auto response = payload.get_response_status();
    payload.release();
    const bool taken = status == tlm::TLM_UPDATED && phase == tlm::END_REQ;
    return taken ? tlm::TLM_OK_RESPONSE : response;
  }
  void note(std::uint64_t tag) { seen.emplace_back(tag, sim_time_now().ps); }
  void wait_ps(std::int64_t ps) { wait(to_sc_time(SimTime{ps})); }
  void wait_deltas(int n) {
    for (int i = 0; i < n; ++i) wait(sc_core::SC_ZERO_TIME);
  }

 private:
  void run() {
    if (script) script(*this);
  }
  tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
    note(payload.get_extension<FlashBatch>()->tag);
    return on_response ? on_response(payload, phase) : tlm::TLM_COMPLETED;
  }
};

using Seen = std::vector<std::pair<std::uint64_t, std::int64_t>>;

template <class Flash>
Seen play(std::function<void(Probe&)> script, nfc::FlashTiming t = timing()) {
  SyscFixture context;
  Flash flash("flash", geometry(), t);
  Probe probe("probe");
  probe.script = std::move(script);
  probe.socket.bind(flash.socket);
  sc_core::sc_start();
  CHECK(probe.pool.in_use() == 0);
  return probe.seen;
}

TEMPLATE_TEST_CASE("an unloaded read through the socket equals the closed form", "", FastFlash, AtFlash) {
  CHECK(play<TestType>([](Probe& p) {
          p.wait_ps(5);
          p.submit({read(0)}, 1);
          p.submit({read(4)}, 2, SimTime{3});
        }) == Seen{{1, 5 + kRead}, {2, 8 + kRead}});
}

TEMPLATE_TEST_CASE("what is submitted in a late delta cycle takes part in the decisions of its time", "", FastFlash,
                   AtFlash) {
  // Page of plane 0 ready at 110, bus free: only a command that asks at 110 can go before its data-out.
  for (const int deltas : {0, 1, 2, 7}) {
    CHECK(play<TestType>([deltas](Probe& p) {
            p.submit({read(0)}, 1);
            p.wait_ps(110);
            p.wait_deltas(deltas);
            p.submit({read(1)}, 2);
          }) == Seen{{1, kRead + 10}, {2, 110 + kRead}});
  }
}

TEMPLATE_TEST_CASE("responses come when all else at their time has settled", "", FastFlash, AtFlash) {
  CHECK(play<TestType>([](Probe& p) {
          p.submit({read(0)}, 1);
          p.wait_ps(kRead);
          p.wait_deltas(5);
          p.note(99);
        }) == Seen{{99, kRead}, {1, kRead}});
}

TEMPLATE_TEST_CASE("a bad batch is answered with a status and not submitted", "", FastFlash, AtFlash) {
  std::vector<tlm::tlm_response_status> status;
  const Seen seen = play<TestType>([&status](Probe& p) {
    status.push_back(p.submit({}, 1));
    status.push_back(p.submit({read(0), read(8)}, 2));
    PageOp too_long = read(0);
    too_long.channel_bytes = 65;
    status.push_back(p.submit({too_long}, 3));
    tlm::tlm_generic_payload bare;
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    status.push_back(p.socket->nb_transport_fw(bare, phase, delay) == tlm::TLM_COMPLETED ? bare.get_response_status()
                                                                                         : tlm::TLM_OK_RESPONSE);
    status.push_back(p.submit({read(0)}, 4));
  });
  CHECK(status == std::vector{tlm::TLM_GENERIC_ERROR_RESPONSE, tlm::TLM_ADDRESS_ERROR_RESPONSE,
                              tlm::TLM_ADDRESS_ERROR_RESPONSE, tlm::TLM_GENERIC_ERROR_RESPONSE, tlm::TLM_OK_RESPONSE});
  CHECK(seen == Seen{{4, kRead}});
}

TEST_CASE("a flash that stands still goes on where it was, and what comes meanwhile waits") {
  SyscFixture context;
  FastFlash flash("flash", geometry(), timing());
  Probe probe("probe");
  probe.socket.bind(flash.socket);
  probe.script = [&flash](Probe& p) {
    p.submit({read(0)}, 1);
    p.submit({read(0)}, 2);  // behind it, in the same plane
    p.wait_ps(50);
    flash.stand_still_until(SimTime{1050});
    CHECK(flash.own_time(SimTime{500}) == SimTime{50});
    p.wait_ps(400);
    p.submit({read(4)}, 3);  // on another channel, which is idle
    p.wait_ps(1500);
    CHECK(flash.own_time(sim_time_now()) == SimTime{950});
    CHECK(flash.statistics().total_ops() == 3);
    flash.stand_still_until(SimTime{3000});
    p.submit({read(4)}, 4);
  };
  sc_core::sc_start();
  CHECK(probe.seen == Seen{{1, 1000 + kRead}, {3, 1050 + kRead}, {2, 1000 + 2 * kRead}, {4, 3000 + kRead}});
  CHECK(probe.pool.in_use() == 0);
}

TEMPLATE_TEST_CASE("b_transport returns when the batch is complete", "", FastFlash, AtFlash) {
  CHECK(play<TestType>([](Probe& p) {
          for (int i = 0; i < 2; ++i) {
            const std::vector<PageOp> ops{read(0), read(4)};
            auto& payload = p.pool.allocate(ops);
            sc_core::sc_time delay;
            p.socket->b_transport(payload, delay);
            p.note(payload.get_response_status() == tlm::TLM_OK_RESPONSE ? 7 : 8);
            payload.release();
          }
        }) == Seen{{7, kRead}, {7, 2 * kRead}});
}

TEMPLATE_TEST_CASE("a response that is not ended holds back responses, not the flash", "", FastFlash, AtFlash) {
  SyscFixture context;
  TestType flash("flash", geometry(), timing());
  Probe probe("probe");
  probe.socket.bind(flash.socket);
  tlm::tlm_generic_payload* open = nullptr;
  probe.on_response = [&open](tlm::tlm_generic_payload& payload, tlm::tlm_phase&) {
    if (payload.get_extension<FlashBatch>()->tag != 1) return tlm::TLM_COMPLETED;
    open = &payload;
    return tlm::TLM_ACCEPTED;
  };
  probe.script = [&open](Probe& p) {
    p.submit({read(0)}, 1);
    p.submit({read(4)}, 2);  // complete with 1
    p.submit({read(0)}, 3);  // complete at 360
    p.wait_ps(300);
    p.note(open != nullptr ? 50 : 51);
    tlm::tlm_phase phase = tlm::END_RESP;
    sc_core::sc_time delay;
    p.socket->nb_transport_fw(*open, phase, delay);
  };
  sc_core::sc_start();
  CHECK(probe.seen == Seen{{1, kRead}, {50, 300}, {2, 300}, {3, 2 * kRead}});
  CHECK(probe.pool.in_use() == 0);
}

TEMPLATE_TEST_CASE("an initiator may end a response and submit from within it", "", FastFlash, AtFlash) {
  SyscFixture context;
  TestType flash("flash", geometry(), timing());
  Probe probe("probe");
  probe.socket.bind(flash.socket);
  probe.on_response = [&probe](tlm::tlm_generic_payload& payload, tlm::tlm_phase&) {
    if (probe.seen.size() < 4) probe.submit({read(0)}, probe.seen.size() + 1);
    tlm::tlm_phase phase = tlm::END_RESP;
    sc_core::sc_time delay;
    probe.socket->nb_transport_fw(payload, phase, delay);
    return tlm::TLM_ACCEPTED;
  };
  probe.script = [](Probe& p) { p.submit({read(0)}, 1); };
  sc_core::sc_start();
  CHECK(probe.seen == Seen{{1, kRead}, {2, 2 * kRead}, {3, 3 * kRead}, {4, 4 * kRead}});
  CHECK(probe.pool.in_use() == 0);
}

TEST_CASE("work from outside between two slices of sc_start is served from the front") {
  SyscFixture context;
  FastFlash flash("flash", geometry(), timing());
  Probe probe("probe");
  probe.socket.bind(flash.socket);
  probe.script = [](Probe& p) { p.submit({read(0)}, 1); };
  sc_core::sc_start(to_sc_time(SimTime{50}));
  CHECK(flash.timeline().front() == SimTime{110});  // its data-out is granted already
  probe.submit({read(1)}, 2);
  sc_core::sc_start();
  // The command of 2 asks at 110 and finds the bus given to the data-out until 180.
  CHECK(probe.seen == Seen{{1, kRead}, {2, 180 + kRead}});
}

TEST_CASE("a batch costs FastFlash a few delta cycles, however many pages it has") {
  SyscFixture context;
  FastFlash flash("flash", geometry(), timing());
  Probe probe("probe");
  probe.socket.bind(flash.socket);
  probe.script = [](Probe& p) { p.submit(std::vector<PageOp>(10'000, read(3)), 1); };
  sc_core::sc_start();
  CHECK(probe.seen == Seen{{1, 10'000 * kRead}});
  CHECK(sc_core::sc_delta_count() < 10);
  CHECK(flash.statistics().total_ops() == 10'000);
}

TEST_CASE("AtFlash shows buses and planes as waveforms") {
  const std::string base = "test_at_flash_waveform";
  {
    SyscFixture context;
    AtFlash flash("flash", geometry(), timing());
    Probe probe("probe");
    probe.socket.bind(flash.socket);
    probe.script = [](Probe& p) { p.submit({read(0)}, 1); };
    sc_core::sc_trace_file* file = sc_core::sc_create_vcd_trace_file(base.c_str());
    file->set_time_unit(1, sc_core::SC_PS);
    flash.trace(file);
    sc_core::sc_start();
    sc_core::sc_close_vcd_trace_file(file);
  }
  std::ifstream in(base + ".vcd");
  std::stringstream text;
  text << in.rdbuf();
  std::remove((base + ".vcd").c_str());
  CHECK_THAT(text.str(), Catch::Contains("channel1") && Catch::Contains("bus_state") && Catch::Contains("plane1"));
  for (const char* time : {"#10\n", "#110\n", "#180\n"}) CHECK_THAT(text.str(), Catch::Contains(time));
}

}  // namespace
}  // namespace csdsim::test

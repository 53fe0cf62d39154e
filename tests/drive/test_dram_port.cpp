// Controller DRAM and the firmware's cores: shared, first come first served.
#include <catch2/catch.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "simulation/sim_time.h"
#include "tests/support/sysc_fixture.h"

namespace test_dram_port {

using namespace csdsim;
using csd_model::DramPort;
using csd_model::DramTraffic;
using csd_model::FirmwareCores;

namespace {

/// Calls `start` once the simulation runs, and runs it to its end.
struct Program : sc_core::sc_module {
  explicit Program(std::function<void()> action)
      : sc_module(sc_core::sc_module_name("program")), start(std::move(action)) {
    SC_METHOD(run);
  }
  SC_HAS_PROCESS(Program);
  void run() { start(); }
  std::function<void()> start;
};

constexpr SimTime us(std::int64_t n) { return SimTime::microseconds(n); }

}  // namespace

TEST_CASE("what moves through DRAM takes its turn; what streams takes its share") {
  test::SyscFixture context;
  DramPort dram("dram", Bandwidth{1'000'000'000});  // 1 KB a microsecond
  std::vector<SimTime> ends;
  const auto note = [&] { ends.push_back(sim_time_now()); };
  Program program([&] {
    dram.move(DramTraffic::host_data, Bytes{2000}, note);
    dram.stream(DramTraffic::flash_data, Bytes{3000});
    dram.move(DramTraffic::map, Bytes{1000}, [&] {
      note();
      dram.move(DramTraffic::map, Bytes{0}, note);  // nothing to wait for any more
    });
    dram.move(DramTraffic::kv_tail, Bytes{0}, note);  // behind what was asked before
  });
  sc_core::sc_start();
  CHECK(ends == std::vector<SimTime>{us(2), us(6), us(6), us(6)});
  CHECK(dram.busy() == us(6));
  CHECK(dram.bytes(DramTraffic::host_data) == Bytes{2000});
  CHECK(dram.bytes(DramTraffic::flash_data) == Bytes{3000});
  CHECK(dram.bytes(DramTraffic::map) == Bytes{1000});
}

TEST_CASE("unlimited DRAM calls back at once and counts nothing") {
  test::SyscFixture context;
  DramPort dram("dram", std::nullopt);
  int calls = 0;
  dram.move(DramTraffic::host_data, Bytes{1 << 30}, [&] { ++calls; });
  dram.stream(DramTraffic::host_data, Bytes{1 << 30});
  CHECK(calls == 1);
  CHECK(dram.bytes(DramTraffic::host_data) == Bytes{});
}

TEST_CASE("firmware cores take work in order, each one piece at a time") {
  test::SyscFixture context;
  const std::uint32_t cores = GENERATE(1U, 2U, 3U);
  FirmwareCores firmware("cores", cores);
  std::vector<SimTime> ends;
  const auto note = [&] { ends.push_back(sim_time_now()); };
  Program program([&] {
    firmware.run({}, note);  // costs nothing, nobody works: at once
    for (const std::int64_t duration : {4, 1, 1, 3}) firmware.run(us(duration), note);
    firmware.run({}, note);  // behind the others on the core that is free first
  });
  sc_core::sc_start();
  const std::vector<std::vector<SimTime>> expected{{us(0), us(4), us(5), us(6), us(9), us(9)},
                                                   {us(0), us(1), us(2), us(4), us(4), us(5)},
                                                   {us(0), us(1), us(1), us(1), us(4), us(4)}};
  CHECK(ends == expected[cores - 1]);
  CHECK(firmware.busy() == us(9));
}

TEST_CASE("work that tells a client and work with a callback end in the order in which the cores got it") {
  test::SyscFixture context;
  FirmwareCores cores("cores", 2);
  std::vector<std::pair<std::uint64_t, SimTime>> ends;
  struct Client final : csd_model::WorkClient {
    std::vector<std::pair<std::uint64_t, SimTime>>& ends;
    explicit Client(std::vector<std::pair<std::uint64_t, SimTime>>& to) : ends(to) {}
    void work_due(std::uint64_t tag) override { ends.emplace_back(tag, sim_time_now()); }
  } client(ends);
  Program program([&] {
    cores.run(us(4), client, 1);
    cores.run(us(4), [&] {
      ends.emplace_back(2, sim_time_now());
      cores.run({}, client, 5);  // behind the next one, which has been given to the same core
    });
    cores.run(us(1), client, 3);
    cores.run(us(1), [&] { ends.emplace_back(4, sim_time_now()); });
  });
  sc_core::sc_start();
  CHECK(ends ==
        std::vector<std::pair<std::uint64_t, SimTime>>{{1, us(4)}, {2, us(4)}, {3, us(5)}, {4, us(5)}, {5, us(5)}});
  CHECK(cores.busy() == us(10));
}

TEST_CASE("cores that stand still are free meanwhile, and take up their work after that") {
  test::SyscFixture context;
  FirmwareCores cores("cores", 2);
  std::vector<std::pair<int, SimTime>> ends;
  const auto note = [&](int piece) { return [&ends, piece] { ends.emplace_back(piece, sim_time_now()); }; };
  csd_model::TimedWork later;
  Program program([&] {
    cores.run(us(10), note(1));
    later.at(us(4), [&] {
      cores.stand_still_for(us(100));  // 6 us are left of the first piece
      CHECK(cores.busy_until(us(4)) == us(4));
      cores.run(us(3), note(2));
    });
    later.at(us(102), [&] {
      cores.run(us(20), note(3));
      cores.run(us(30), note(4));
    });
    later.at(us(105), [&] { cores.run(us(5), note(5)); });
  });
  sc_core::sc_start();
  // The first core has 6 us left at 104, behind what it was given at 102; the other one ends that at 132.
  CHECK(ends ==
        std::vector<std::pair<int, SimTime>>{{2, us(7)}, {1, us(110)}, {3, us(122)}, {4, us(132)}, {5, us(133)}});
  CHECK(cores.busy() == us(68));
}

}  // namespace test_dram_port

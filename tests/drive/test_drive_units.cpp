// Units of a drive as modules: a user's own units in place of the model's, and waveforms.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "simulation/failure.h"
#include "tests/drive/drive_host.h"

namespace test_drive_units {

using namespace csdsim;
using namespace csdsim::test;
using csd_model::DriveUnit;

namespace {

constexpr std::uint32_t kTokens = 300;

/// Works `numerator` / `denominator` picoseconds per unit of amount, rounded up.
class OwnUnit : public UnitModule {
 public:
  OwnUnit(const sc_core::sc_module_name& name, std::uint64_t numerator, std::uint64_t denominator)
      : UnitModule(name), numerator_(numerator), denominator_(denominator) {}

 protected:
  SimTime time_of(std::uint64_t size, std::uint32_t of_kind) const override {
    REQUIRE(of_kind > 0);
    return SimTime{static_cast<std::int64_t>((size * numerator_ + denominator_ - 1) / denominator_)};
  }

 private:
  std::uint64_t numerator_, denominator_;
};

/// A drive in which nothing overlaps: one head at a time, and each phase after the one before.
platform::PlatformParams serial_drive() {
  platform::PlatformParams p{.drive = tiny_drive(),
                             .host_memory = Bytes::gib(1),
                             .gpu_memory = Bytes::gib(1),
                             .io_overhead = {},
                             .queue_depth = 64};
  p.drive.fidelity = csd_model::Fidelity::at;
  p.drive.engine.clock = Frequency{250'000'000};
  p.drive.engine.kernels = 1;
  p.drive.engine.jobs_in_flight = 1;
  p.drive.engine.macs_per_cycle = 8;
  p.drive.engine.intake = engine::Intake::phase;
  p.drive.engine.scoring.fp16_lanes = 2;
  p.drive.lookup_time = SimTime::microseconds(100);  // longer than the read of a page: reads do not hold up lookups
  p.drive.nvme.firmware_time = SimTime::nanoseconds(700);
  p.drive.dram_bandwidth = Bandwidth{1'000'000'000};
  p.drive.flash.filter_bandwidth = Bandwidth{1'000'000'000};
  return p;
}

struct Outcome {
  SimTime attend, score;  ///< latencies
  SimTime kernels, scoring, argtopk, cores, commands, dram, filters;
  std::vector<Half> out;
};

SimTime filters(const csd_model::Drive& drive) {
  SimTime sum;
  for (const SimTime busy : drive.flash_statistics().filter_busy) sum += busy;
  return sum;
}

Outcome play(const platform::PlatformParams& params) {
  DriveHost host(params);
  REQUIRE(host.create(1, 1, 2) == nvme::status::success);
  REQUIRE(host.append(1, 0, 0, kTokens, 0, 2) == nvme::status::success);
  const engine::EngineStats& e = *host.drive().engine_stats();
  csd_model::Drive& drive = host.drive();
  const SimTime cores = drive.lookup_cores().busy(), dram = drive.dram_port().busy();
  const SimTime commands = drive.controller().firmware_done();
  Outcome o;
  SimTime start = nvme::sim_now();
  const auto attend = host.attend(0, {sparse_heads_of(1, kTokens - 1, 0, 2, 6, 40, 10)}, nvme::AttendMethod::sparf);
  o.attend = attend.sent->at - start;
  o.out = host.output(attend);
  o.kernels = e.kernel_busy;
  o.argtopk = e.argtopk_busy;
  o.cores = drive.lookup_cores().busy() - cores;
  o.commands = drive.controller().firmware_done() - commands;
  o.dram = drive.dram_port().busy() - dram;
  o.filters = filters(drive);
  const nvme::KvScore c{LayerId{0}, 1, nvme::AttendMethod::dense, 1, 16, 2, 2 * kTokens};
  const nvme::Segment b = host.buffer(nvme::score_layout(c).size);
  host.put(b.address, std::vector{heads_of(1, kTokens - 1, 0, 2)});
  start = nvme::sim_now();
  const SentPtr score = host.send(nvme::encode(kNamespace, c), b);
  REQUIRE(host.run(score) == nvme::status::success);
  o.score = score->at - start;
  o.scoring = e.scoring_busy;
  REQUIRE(e.sparf_jobs == 2);
  REQUIRE(e.score_jobs == 2);
  return o;
}

/// Replaces units of one kind.
csd_model::DriveUnitFactory own(DriveUnit which, std::uint64_t numerator, std::uint64_t denominator = 1) {
  return [=](DriveUnit unit, std::uint32_t index) {
    if (unit != which) return UnitParts{};
    return parts_of(std::make_unique<OwnUnit>(("own" + std::to_string(index)).c_str(), numerator, denominator));
  };
}

}  // namespace

TEST_CASE(
    "a unit of a user: with the model's speed nothing changes, with half of it the run takes longer by the unit's "
    "time") {
  auto params = serial_drive();
  const Outcome model = play(params);
  CHECK(model.argtopk == 2 * SimTime::nanoseconds(4 * (16 + kTokens)));
  struct Case {
    DriveUnit unit;
    std::uint64_t ps;  ///< time of the model per unit of amount
    SimTime Outcome::*busy;
    SimTime Outcome::*latency;
  };
  for (const Case& c : {Case{DriveUnit::argtopk, 4000, &Outcome::argtopk, &Outcome::attend},
                        Case{DriveUnit::kernel, 4000, &Outcome::kernels, &Outcome::attend},
                        Case{DriveUnit::scoring, 4000, &Outcome::scoring, &Outcome::score},
                        Case{DriveUnit::lookup_core, 1, &Outcome::cores, &Outcome::attend},
                        Case{DriveUnit::command_core, 1, &Outcome::commands, &Outcome::attend},
                        Case{DriveUnit::dram_port, 1000, &Outcome::dram, &Outcome::attend},
                        Case{DriveUnit::filter, 1000, &Outcome::filters, &Outcome::attend}}) {
    INFO("unit " << static_cast<int>(c.unit));
    params.units = own(c.unit, c.ps);
    const Outcome same = play(params);
    CHECK(same.attend == model.attend);
    CHECK(same.score == model.score);
    CHECK(same.*c.busy == model.*c.busy);
    params.units = own(c.unit, 2 * c.ps);
    const Outcome slow = play(params);
    CHECK(slow.out == model.out);
    CHECK(slow.*c.busy == model.*c.busy * 2);
    REQUIRE((model.*c.busy).ps > 0);
    const SimTime slower = slow.*c.latency - model.*c.latency;
    if (c.unit == DriveUnit::dram_port) {
      // The burst of a map lookup passes while a core looks the next page up.
      const std::int64_t lookups = model.cores.ps / params.drive.lookup_time.ps;
      CHECK(slower >= model.*c.busy - SimTime::nanoseconds(64 * lookups));
      CHECK(slower < model.*c.busy);
    } else if (c.unit == DriveUnit::filter) {
      // The filter of the channel that has most pages holds up the others; three phases of two heads wait for it.
      CHECK(slower.ps > 0);
      CHECK(slower < model.*c.busy);
    } else {
      CHECK(slower == model.*c.busy);
    }
  }
}

TEST_CASE("units of a user that cannot be bound, or break the handshake, are errors") {
  auto params = serial_drive();
  params.drive.fidelity = csd_model::Fidelity::fast;
  params.units = own(DriveUnit::argtopk, 1);
  {
    const SyscFixture context;
    CHECK_THROWS_WITH(platform::Platform(params), Catch::Contains("Fidelity::at"));
  }
  params.drive.fidelity = csd_model::Fidelity::at;
  params.units = [](DriveUnit, std::uint32_t) {
    UnitParts parts = parts_of(std::make_unique<OwnUnit>("own", 1, 1));
    parts.done = nullptr;
    return parts;
  };
  {
    const SyscFixture context;
    CHECK_THROWS_AS(platform::Platform(params), UserError);
  }
  /// Says that it is done before it has work.
  struct Hasty : OwnUnit {
    SC_HAS_PROCESS(Hasty);
    explicit Hasty(const sc_core::sc_module_name& name) : OwnUnit(name, 1, 1) { SC_THREAD(run); }
    void run() {
      wait(1, sc_core::SC_NS);
      done.write(true);
    }
  };
  params.units = [](DriveUnit unit, std::uint32_t) {
    return unit == DriveUnit::argtopk ? parts_of(std::make_unique<Hasty>("hasty")) : UnitParts{};
  };
  {
    const SyscFixture context;
    platform::Platform platform(params);
    CHECK_THROWS_WITH(run_kernel(), Catch::Contains("hasty") && Catch::Contains("had no work"));
  }
}

namespace {

/// For each variable of a VCD file, the time during which it was not 0.
std::map<std::string, std::int64_t> busy_times(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> scopes;
  std::map<std::string, std::string> names;  ///< by identifier
  struct Value {
    bool set = false;
    std::int64_t since = 0, busy = 0;
  };
  std::map<std::string, Value> values;  ///< by identifier
  std::int64_t now = 0;
  const auto change = [&](const std::string& id, bool set) {
    Value& v = values[id];
    if (v.set) v.busy += now - v.since;
    v.since = now;
    v.set = set;
  };
  std::string word;
  while (in >> word) {
    if (word == "$scope") {
      std::string kind, name, end;
      in >> kind >> name >> end;
      scopes.push_back(name);
    } else if (word == "$upscope") {
      scopes.pop_back();
    } else if (word == "$var") {
      std::string type, width, id, name;
      in >> type >> width >> id >> name;
      std::string path;
      for (const std::string& scope : scopes) path += scope + ".";
      names[id] = path + name;
    } else if (word[0] == '#') {
      now = std::stoll(word.substr(1));
    } else if (word[0] == 'b') {
      std::string id;
      in >> id;
      if (names.contains(id)) change(id, word.find('1') != std::string::npos);
    } else if ((word[0] == '0' || word[0] == '1') && names.contains(word.substr(1))) {
      change(word.substr(1), word[0] == '1');
    }
  }
  std::map<std::string, std::int64_t> busy;
  for (auto& [id, v] : values) busy[names.at(id)] = v.busy + (v.set ? now - v.since : 0);
  return busy;
}

/// Sum over the variables whose names contain both texts.
std::int64_t sum(const std::map<std::string, std::int64_t>& busy, const std::string& path, const std::string& name) {
  std::int64_t total = 0;
  for (const auto& [n, time] : busy)
    if (n.find(path) != std::string::npos && n.find(name) != std::string::npos) total += time;
  return total;
}

}  // namespace

TEST_CASE("the waveforms of a drive show its units, buses and arrays as long as the statistics count them") {
  const std::string file = "test_drive_units.vcd";
  auto params = serial_drive();
  params.drive.engine.kernels = 2;
  params.drive.engine.argtopk_units = 2;
  params.drive.engine.jobs_in_flight = 4;
  params.drive.engine.intake = engine::Intake::automatic;
  params.drive.flash.page_buffers = 4;
  params.waveforms = file;
  std::map<std::string, SimTime> counted;
  {
    DriveHost host(params);
    REQUIRE(host.create(1, 1, 4) == nvme::status::success);
    REQUIRE(host.append(1, 0, 0, kTokens, 0, 4) == nvme::status::success);
    host.attend(0, {sparse_heads_of(1, kTokens - 1, 0, 4, 6, 40, 10)}, nvme::AttendMethod::sparf);
    host.attend(0, {heads_of(1, kTokens - 1, 0, 4)});
    DriveHost::run_for(SimTime::microseconds(1));  // the last changes are in the file
    csd_model::Drive& drive = host.drive();
    const engine::EngineStats& e = *drive.engine_stats();
    counted["units.kernels"] = e.kernel_busy;
    counted["units.argtopk"] = e.argtopk_busy;
    counted["firmware_cores.cores"] = drive.lookup_cores().busy();
    counted["controller.cores"] = drive.controller().firmware_busy();
    counted["dram_port.port"] = drive.dram_port().busy();
    counted["filter.pages"] = filters(drive);
    counted["bus_state"] = drive.totals().channel_busy;
    counted["ready_busy"] = drive.totals().array_busy();
  }
  const std::map<std::string, std::int64_t> busy = busy_times(file);
  std::remove(file.c_str());
  for (const char* units : {"units.kernels", "units.argtopk", "firmware_cores.cores", "controller.cores",
                            "dram_port.port", "filter.pages"}) {
    INFO(units);
    CHECK(counted.at(units).ps > 0);
    CHECK(sum(busy, units, ".kind") == counted.at(units).ps);
  }
  CHECK(sum(busy, "flash.channel", ".bus_state") == counted.at("bus_state").ps);
  CHECK(sum(busy, "flash.channel", ".busy") == counted.at("ready_busy").ps);
  // Four jobs share two kernels and two argtopk units, and pages share planes and buffers.
  for (const char* queue : {"units.argtopk.waiting", "engine.jobs", "engine.reads", "engine.buffer_bytes"}) {
    INFO(queue);
    CHECK(sum(busy, queue, "") > 0);
  }
  CHECK(sum(busy, "flash.channel", ".page_buffers") > 0);
  CHECK(sum(busy, "flash.channel", ".queue") > 0);
}

}  // namespace test_drive_units

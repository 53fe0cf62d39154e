// Fidelity::at is the oracle of Fidelity::fast: random attention on random drives ends at the same picosecond in both.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "base/rng.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "tests/drive/drive_host.h"

namespace test_attention_fidelity {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;

namespace {

/// Random numbers in words.
struct Draw {
  Rng rng;

  explicit Draw(std::uint64_t seed) : rng(seed) {}
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng.below(high - low + 1));
  }
  bool one_in(std::uint32_t n) { return between(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::uint32_t>(values.size()) - 1)];
  }
};

csd_model::DriveConfig random_drive(Draw& draw) {
  csd_model::DriveConfig c = tiny_drive();
  c.geometry.channels = draw.between(1, 4);
  c.geometry.dies_per_channel = draw.between(1, 3);
  c.geometry.blocks_per_plane = 32 * 16 / c.geometry.planes() + 8;
  // Half of the drives have round times: then much happens at the same picosecond.
  const bool round = draw.one_in(2);
  c.flash.read_latency = SimTime::microseconds(draw.between(1, 60));
  if (round) {
    c.flash.command_time = SimTime::nanoseconds(100);
    c.flash.data_out_setup = {};
    c.flash.channel_bandwidth = Bandwidth{1'024'000'000};
  }
  if (draw.one_in(3)) c.flash.ecc_latency = SimTime::nanoseconds(draw.of({100u, 700u, 5000u}));
  c.flash.arbitration =
      draw.of({nfc::BusArbitration::fifo, nfc::BusArbitration::command_first, nfc::BusArbitration::data_first});
  c.flash.page_buffers = draw.of({0u, 0u, 1u, 3u, 8u});
  if (draw.one_in(3)) c.flash.filter_bandwidth = Bandwidth{draw.of({50'000'000ull, 512'000'000ull, 2'000'000'000ull})};

  engine::EngineConfig& e = c.engine;
  e.clock = Frequency{round ? 100'000'000ull : draw.between(1, 300) * 1'000'000ull};
  e.kernels = draw.between(1, 4);
  e.argtopk_units = draw.between(1, 3);
  e.macs_per_cycle = draw.of({4u, 16u, 64u, 1024u});
  e.softmax_per_cycle = draw.of({1u, 8u, 64u});
  e.argtopk_per_cycle = draw.of({1u, 4u, 64u});
  e.jobs_in_flight = draw.between(1, 12);
  e.buffer = draw.of({Bytes::kib(8), Bytes::kib(24), Bytes::mib(1)});
  e.overlap_flash = !draw.one_in(4);
  e.intake = draw.of({engine::Intake::automatic, engine::Intake::page, engine::Intake::phase, engine::Intake::arrival});
  if (c.flash.page_buffers > 0 && e.intake == engine::Intake::phase) e.intake = engine::Intake::page;
  if (c.flash.page_buffers > 0 && e.intake == engine::Intake::arrival) e.overlap_flash = true;
  if (draw.one_in(3)) e.scoring.fp16_lanes = draw.of({2u, 16u, 256u});
  if (draw.one_in(4)) e.buffer_memory = engine::EngineMemory::dram;

  if (draw.one_in(2)) c.lookup_time = SimTime::nanoseconds(draw.of({10u, 150u, 2000u}));
  c.lookup_cores = draw.between(1, 3);
  if (draw.one_in(2)) c.nvme.firmware_time = SimTime::nanoseconds(draw.of({100u, 1000u, 30'000u}));
  c.nvme.firmware_cores = draw.between(1, 3);
  if (draw.one_in(2)) c.dram_bandwidth = Bandwidth{draw.of({5'000'000ull, 100'000'000ull, 3'000'000'000ull})};
  c.write_buffer = draw.of({Bytes{}, Bytes::kib(64)});
  c.kv.tail = draw.of({ftl::TailPolicy::token_index, ftl::TailPolicy::dram});
  return c;
}

using Bits = std::vector<std::uint16_t>;

/// What the host sees, and what the drive has counted.
struct Outcome {
  std::vector<std::int64_t> times;  ///< times of completions, in the order of the commands
  Bits outputs;
  std::vector<__int128> counted;
  std::vector<double> stations;
  SimTime end;
  std::uint64_t dense = 0, sparf = 0, scores = 0;
  std::array<bool, 7> waited{};  ///< for kernels, argtopk, page buffers, lookup cores, DRAM, filters, command cores
};

void count(Outcome& o, csd_model::Drive& drive) {
  const engine::EngineStats& e = *drive.engine_stats();
  o.dense = e.dense_jobs;
  o.sparf = e.sparf_jobs;
  o.scores = e.score_jobs;
  for (const SimTime t : {e.kernel_busy, e.softmax_busy, e.scoring_busy, e.argtopk_busy}) o.counted.push_back(t.ps);
  for (const auto& t : {e.kernel_waited, e.scoring_waited, e.argtopk_waited, e.buffer_waited})
    o.counted.push_back(t.ps);
  for (const auto& t : e.phase_time) o.counted.push_back(t.ps);
  for (const std::uint64_t n : {e.tasks, e.macs, e.argtopk_elements, e.pages(), e.channel_bytes.value,
                                e.engine_bytes.value, e.peak_buffer.value, e.peak_page_buffers})
    o.counted.push_back(n);
  const csd_model::FirmwareCores& cores = drive.lookup_cores();
  const csd_model::DramPort& dram = drive.dram_port();
  for (const SimTime t : {cores.busy(), cores.waited(), dram.busy(), dram.waited()}) o.counted.push_back(t.ps);
  const nvme::NvmeController& controller = drive.controller();
  for (const SimTime t : {controller.firmware_busy(), controller.firmware_done(), controller.firmware_waited()})
    o.counted.push_back(t.ps);
  o.counted.push_back(dram.total_bytes().value);
  o.end = nvme::sim_now();
  const csd_model::ActivitySplit split = drive.activity(o.end);
  for (const SimTime t : {split.flash, split.engine, split.other}) o.counted.push_back(t.ps);
  const csd_model::StationTimes stations = drive.station_times();
  for (std::size_t i = 0; i < kDriveStations; ++i) {
    const auto station = static_cast<DriveStation>(i);
    o.counted.push_back(split.stations[station].ps);
    o.stations.insert(o.stations.end(), {stations.busy[station], stations.waited[station]});
  }
  o.waited = {e.kernel_waited.ps > 0,
              e.argtopk_waited.ps > 0,
              e.buffer_waited.ps > 0,
              cores.waited().ps > 0,
              dram.waited().ps > 0,
              drive.flash_statistics().filter_waited.ps > 0,
              controller.firmware_waited().ps > 0};
}

/// Two sequences of two heads, and commands of all kinds in rounds. The same seed gives the same commands.
Outcome play(const csd_model::DriveConfig& config, std::uint64_t seed) {
  Draw draw(seed ^ 0x9E3779B97F4A7C15ull);
  DriveHost host(config);
  Outcome o;
  std::vector<SentPtr> sent;
  const auto queue = [&] { return static_cast<std::uint16_t>(draw.between(1, 4)); };
  // The host goes on at whole seconds: with Fidelity::at, DRAM traffic that nobody waits for has an event of its own.
  const auto finish = [&] {
    DriveHost::settle();
    DriveHost::run_for(SimTime::milliseconds(1000) - SimTime{nvme::sim_now().ps % SimTime::milliseconds(1000).ps});
    for (const SentPtr& s : sent) {
      REQUIRE(s->done);
      INFO("status " << nvme::status_name(s->status));
      REQUIRE(s->status == nvme::status::success);
      o.times.push_back(s->at.ps);
    }
    sent.clear();
  };
  std::array<std::uint32_t, 3> tokens{0, draw.between(20, 320), draw.between(20, 320)};
  for (std::uint32_t s = 1; s <= 2; ++s) {
    REQUIRE(host.create(s, 1, 2) == nvme::status::success);
    sent.push_back(host.send_append(s, 0, 0, tokens[s], 0, 2, queue()));
  }
  finish();
  for (std::uint32_t round = 0; round < 3; ++round) {
    std::vector<DriveHost::Attend> attends;
    std::vector<std::pair<nvme::Segment, std::uint32_t>> scores;
    const auto attend = [&](bool append) {
      const std::uint32_t s = draw.between(1, 2);
      const bool sparf = draw.one_in(2);
      const std::uint32_t newest = append ? tokens[s]++ : tokens[s] - 1;
      const auto r = static_cast<std::uint16_t>(draw.between(1, 12));
      const std::uint32_t k = draw.between(8, 96);
      const auto descriptor =
          sparf ? sparse_heads_of(s, newest, 0, 2, r, k, 4, append) : heads_of(s, newest, 0, 2, append);
      attends.push_back(host.prepare_attend(0, {descriptor}, sparf ? AttendMethod::sparf : AttendMethod::dense,
                                            static_cast<std::uint8_t>(draw.between(1, 2))));
      host.send_attend(attends.back(), queue());
      sent.push_back(attends.back().sent);
    };
    // No command that is outstanding with others may append: they can start in any order.
    for (std::uint32_t n = draw.between(0, 2); n > 0; --n) {
      attend(true);
      finish();
    }
    for (std::uint32_t n = draw.between(1, 4); n > 0; --n) attend(false);
    if (draw.one_in(2)) {
      const std::uint32_t s = draw.between(1, 2), have = draw.between(1, tokens[s] - 1);
      const nvme::KvScore c{LayerId{0}, 1, AttendMethod::dense, 1, 16, 2, 2 * have};
      const nvme::ScoreLayout layout = nvme::score_layout(c);
      const nvme::Segment b = host.buffer(layout.size);
      host.put(b.address, std::vector{heads_of(s, have - 1, 0, 2)});
      host.put(b.address + layout.q, host.content.rows(Content::query, s, 0, 0, 2, have, 1));
      sent.push_back(host.send(nvme::encode(kNamespace, c), b, queue()));
    }
    if (draw.one_in(2)) {
      const std::uint64_t lba = 8 * draw.between(0, 20);
      sent.push_back(host.send_write(lba, 8, std::byte{7}, queue()));
    }
    finish();
    for (const auto& a : attends)
      for (const Half h : host.output(a)) o.outputs.push_back(std::bit_cast<std::uint16_t>(h));
  }
  REQUIRE(host.integrity_errors() == 0);
  count(o, host.drive());
  return o;
}

}  // namespace

TEST_CASE("random attention on random drives: fast equals at to the picosecond, and counts the same") {
  const char* const replay = std::getenv("CSDSIM_TEST_SEED");
  const char* const asked = std::getenv("CSDSIM_TEST_SEEDS");
  const std::uint64_t first = replay != nullptr ? std::strtoull(replay, nullptr, 10) : 1;
  const std::uint64_t last = replay != nullptr ? first : asked != nullptr ? std::strtoull(asked, nullptr, 10) : 60;
  WARN("seeds " << first << " .. " << last << "; CSDSIM_TEST_SEED=n replays one, CSDSIM_TEST_SEEDS=n plays 1 .. n");
  std::uint64_t dense = 0, sparf = 0, scores = 0;
  std::array<int, 7> waited{};
  std::map<engine::Intake, int> intakes;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    Draw draw(seed);
    csd_model::DriveConfig config = random_drive(draw);
    config.fidelity = csd_model::Fidelity::fast;
    const Outcome fast = play(config, seed);
    config.fidelity = csd_model::Fidelity::at;
    const Outcome at = play(config, seed);
    REQUIRE(fast.times == at.times);
    REQUIRE(fast.outputs == at.outputs);
    REQUIRE(fast.end == at.end);
    REQUIRE(fast.counted == at.counted);
    REQUIRE(fast.stations == at.stations);
    dense += at.dense;
    sparf += at.sparf;
    scores += at.scores;
    ++intakes[config.engine.intake];
    for (std::size_t i = 0; i < waited.size(); ++i) waited[i] += at.waited[i] ? 1 : 0;
  }
  if (replay != nullptr) return;
  // The workloads reach what they are there for.
  CHECK(dense > 5 * last);
  CHECK(sparf > last);
  CHECK(scores > last / 2);
  CHECK(intakes.size() == 4);
  for (const int n : waited) CHECK(n > 0);
}

}  // namespace test_attention_fidelity

// FastFlash against its oracle AtFlash: every completion at the same picosecond, in the same order.
#include <catch2/catch.hpp>

#include <array>
#include <cstdlib>
#include <string>

#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "tests/nfc/random_workload.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::test {
namespace {

using nfc::AtFlash;
using nfc::FastFlash;
using nfc::FlashStatistics;
using nfc::FlashTarget;

/// What is counted at grants: operations, bytes and array time in all, attempts that failed, bus time of all channels.
using Counted = std::array<std::uint64_t, 5>;

Counted counted(const FlashStatistics& s) {
  SimTime array{}, bus{};
  for (const SimTime t : s.array_time) array += t;
  for (const nfc::ChannelBusy& channel : s.channels) bus += channel.total();
  return {s.total_ops(), s.total_bytes().value, static_cast<std::uint64_t>(array.ps), s.retries,
          static_cast<std::uint64_t>(bus.ps)};
}

struct Outcome {
  Log log;
  std::vector<Counted> at_responses;  ///< where asked for
  std::vector<FlashStatistics> statistics;
  std::uint64_t ops_submitted;
  std::uint64_t bytes_submitted;
  std::size_t payloads_in_use;
  bool all_submitted;
};

enum class Fidelity { fast, at };

Outcome play(const Workload& w, const std::vector<Fidelity>& drives, bool count = false) {
  SyscFixture context;
  std::vector<std::unique_ptr<FlashTarget>> flash;
  RandomInitiator initiator("initiator", w, drives.size());
  for (std::size_t d = 0; d < drives.size(); ++d) {
    const std::string name = "flash" + std::to_string(d);
    if (drives[d] == Fidelity::fast) {
      flash.push_back(std::make_unique<FastFlash>(name.c_str(), w.geometry, w.timing));
    } else {
      flash.push_back(std::make_unique<AtFlash>(name.c_str(), w.geometry, w.timing));
    }
    initiator.sockets[d]->bind(flash[d]->socket);
  }
  std::vector<Counted> at_responses;
  if (count) initiator.on_response = [&](std::size_t d) { at_responses.push_back(counted(flash[d]->statistics())); };
  sc_core::sc_start();
  Outcome outcome{initiator.log,
                  at_responses,
                  {},
                  initiator.ops_submitted,
                  initiator.bytes_submitted,
                  initiator.payloads_in_use(),
                  initiator.all_submitted()};
  for (const auto& f : flash) outcome.statistics.push_back(f->statistics());
  return outcome;
}

void check_conservation(const Workload& w, const Outcome& o) {
  CHECK(o.all_submitted);
  CHECK(o.log.size() == w.batches);
  CHECK(o.payloads_in_use == 0);
  std::uint64_t ops = 0;
  std::uint64_t bytes = 0;
  for (const FlashStatistics& s : o.statistics) {
    ops += s.total_ops();
    bytes += s.total_bytes().value;
  }
  CHECK(ops == o.ops_submitted);
  CHECK(bytes == o.bytes_submitted);
}

std::string text(const FlashStages& stages) {
  std::string list;
  for (std::size_t s = 0; s < kFlashStages; ++s) {
    list += std::string(kFlashStageNames[s]) + " " + std::to_string(stages[s].ps) + " ps, ";
  }
  return list;
}

Outcome check_equal(const Workload& w, const std::vector<Fidelity>& a, const std::vector<Fidelity>& b) {
  const Outcome first = play(w, a);
  const Outcome second = play(w, b);
  INFO("seed " << w.seed << ": " << w.geometry.channels << " channels, " << w.geometry.dies_per_channel << " dies, "
               << w.geometry.planes_per_die << " planes, " << w.batches << " batches");
  for (std::size_t i = 0; i < std::min(first.log.size(), second.log.size()); ++i) {
    INFO("completion " << i);
    REQUIRE(std::get<0>(first.log[i]) == std::get<0>(second.log[i]));
    REQUIRE(std::get<1>(first.log[i]) == std::get<1>(second.log[i]));
    REQUIRE(std::get<2>(first.log[i]) == std::get<2>(second.log[i]));
    INFO("stages " << text(std::get<3>(first.log[i])) << " and " << text(std::get<3>(second.log[i])));
    REQUIRE(std::get<3>(first.log[i]) == std::get<3>(second.log[i]));
  }
  REQUIRE(first.log.size() == second.log.size());
  REQUIRE(first.statistics == second.statistics);
  check_conservation(w, first);
  check_conservation(w, second);
  return first;
}

void check_seeds(std::uint64_t first, std::uint64_t last, bool features, bool buffers = false) {
  if (const char* override_seed = std::getenv("CSDSIM_TEST_SEED")) {
    first = last = std::strtoull(override_seed, nullptr, 10);
  }
  WARN("seeds " << first << " .. " << last << "; CSDSIM_TEST_SEED=n replays one");
  FlashStatistics sum{FlashGeometry{}};
  int filtered = 0;  ///< workloads in which pages waited for a filter
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Outcome outcome = check_equal(random_workload(seed, features, buffers), {Fidelity::fast}, {Fidelity::at});
    const FlashStatistics& s = outcome.statistics[0];
    sum.retries += s.retries;
    sum.suspends += s.suspends;
    sum.joined_ops += s.joined_ops;
    sum.register_reads += s.register_reads;
    sum.buffer_overflows += s.buffer_overflows;
    filtered += s.filter_waited.ps > 0 ? 1 : 0;
  }
  if (first == last) return;
  // The workloads reach what they are there for.
  CHECK(sum.retries > 1000);
  if (features || buffers) CHECK(sum.buffer_overflows > 1000);
  if (!features) return;
  CHECK(filtered > 100);
  CHECK(sum.suspends > 1000);
  CHECK(sum.joined_ops > 1000);
  CHECK(sum.register_reads > 1000);
}

TEST_CASE("fast equals at on 1,000 random workloads of a plain flash") { check_seeds(1, 1000, false); }

TEST_CASE("fast equals at on 1,000 random workloads of a plain flash with few page buffers") {
  check_seeds(1, 1000, false, true);
}

TEST_CASE("fast equals at on 1,500 random workloads with random features") { check_seeds(10'001, 11'500, true); }

TEST_CASE("fast and at count at the same moment: whoever looks while they work sees the same") {
  WARN("seeds 20001 .. 20300");
  for (std::uint64_t seed = 20'001; seed <= 20'300; ++seed) {
    INFO("seed " << seed);
    const Workload w = random_workload(seed, seed % 2 == 0);
    const Outcome fast = play(w, {Fidelity::fast}, true), at = play(w, {Fidelity::at}, true);
    REQUIRE(fast.at_responses.size() == w.batches);
    REQUIRE(fast.at_responses == at.at_responses);
    REQUIRE(fast.log == play(w, {Fidelity::fast}).log);  // looking changes nothing
  }
}

TEST_CASE("drives in one context react to each other exactly") {
  WARN("seeds 5001 .. 5100");
  for (std::uint64_t seed = 5001; seed <= 5100; ++seed) {
    const Workload w = random_workload(seed);
    check_equal(w, {Fidelity::fast, Fidelity::fast}, {Fidelity::at, Fidelity::at});
    check_equal(w, {Fidelity::fast, Fidelity::at}, {Fidelity::at, Fidelity::fast});
    check_equal(w, {Fidelity::fast, Fidelity::fast, Fidelity::fast}, {Fidelity::at, Fidelity::fast, Fidelity::at});
  }
}

TEST_CASE("a workload plays the same twice") {
  const Workload w = random_workload(77);
  check_equal(w, {Fidelity::fast}, {Fidelity::fast});
  check_equal(w, {Fidelity::at}, {Fidelity::at});
}

}  // namespace
}  // namespace csdsim::test

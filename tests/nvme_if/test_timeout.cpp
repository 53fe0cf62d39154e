// Commands that a drive does not complete in time, and drives that disappear.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"
#include "nvme_if/spec/command.h"
#include "simulation/failure.h"
#include "tests/nvme_if/platform.h"

namespace test_timeout {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

constexpr SimTime kTimeout = SimTime::milliseconds(30);

PlatformParams with_timeout(SimTime timeout = kTimeout) {
  PlatformParams p;
  p.driver.timeout = timeout;
  p.driver.drive = "drive 3";
  return p;
}

/// Runs to the end; the message of the error that ends it, or nothing.
std::string error_of_run() {
  try {
    run_kernel();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

/// The host side of a few reads.
struct Reads {
  explicit Reads(Platform& platform) : p(platform) {}
  void submit(std::uint16_t queue, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
      p.driver.submit_block(QueueId{queue}, nvm_opcode::read, Lba{i}, 1,
                            std::vector{Segment{kHostBase + Bytes::kib(4 * i), Bytes::kib(4)}},
                            [this](const CompletionEntry& e, SimTime) { done += e.code().ok() ? 1 : 0; });
  }
  Platform& p;
  std::uint32_t done = 0;
};

}  // namespace

TEST_CASE("a command that is complete just before its timeout is no error, one that is just late is") {
  for (const bool late : {false, true}) {
    // How long one read takes.
    SimTime took;
    {
      Platform p;
      p.driver.on_ready([&] {
        const SimTime start = sim_now();
        p.driver.submit_block(QueueId{1}, nvm_opcode::read, Lba{0}, 1, std::vector{Segment{kHostBase, Bytes::kib(4)}},
                              [&took, start](const CompletionEntry&, SimTime at) { took = at - start; });
      });
      p.run();
    }
    REQUIRE(took > SimTime{});
    Platform p(with_timeout(late ? took - SimTime{1} : took + SimTime{1}));
    Reads reads(p);
    p.driver.on_ready([&] { reads.submit(1, 1); });
    const std::string error = error_of_run();
    CAPTURE(error);
    CHECK(error.empty() == !late);
    CHECK(reads.done == (late ? 0u : 1u));
  }
}

TEST_CASE("a held command is named with drive, queue and times; the others have completed") {
  Platform p(with_timeout());
  Reads reads(p);
  SimTime placed;
  p.driver.on_ready([&] {
    reads.submit(1, 5);
    reads.submit(2, 3);
  });
  Alarm later{AlarmRank::host, [&] {
                CHECK(reads.done == 8);
                p.handler.hold = true;
                placed = sim_now();
                reads.submit(2, 2);
              }};
  later.set(SimTime::milliseconds(100));
  const std::string error = error_of_run();
  CAPTURE(error);
  CHECK(error.starts_with("drive 3 does not answer: read (command "));
  CHECK(error.find("of queue 2), placed at 0.100000 s, is not complete after 0.03 s; 2 of ") != std::string::npos);
  CHECK(error.find("platform.device.nvme.timeout") != std::string::npos);
  CHECK(sim_now() == placed + kTimeout);
  CHECK(reads.done == 8);
  CHECK(p.driver.issued() - p.driver.completed() == 2);
}

TEST_CASE("the timeout counts from each command, whatever was outstanding before") {
  // Each command is held for 20 of 30 ms, and there is always one outstanding.
  Platform p(with_timeout());
  Reads reads(p);
  p.handler.hold = true;
  std::uint32_t rounds = 0;
  Alarm next{AlarmRank::host, [&] {
               if (rounds > 0) {
                 CommandPtr first = p.handler.held.front();
                 p.handler.held.erase(p.handler.held.begin());
                 p.handler.run(first);
               }
               if (++rounds > 10) return p.handler.release();
               reads.submit(static_cast<std::uint16_t>(1 + rounds % 2), 1);
               next.set(sim_now() + SimTime::milliseconds(10));
             }};
  p.driver.on_ready([&] {
    reads.submit(1, 1);
    next.set(sim_now() + SimTime::milliseconds(10));
  });
  CHECK(error_of_run().empty());
  CHECK(reads.done == 11);
}

TEST_CASE("a command that follows others is found late when they have completed") {
  Platform p(with_timeout());
  Reads reads(p);
  p.handler.hold = true;
  SimTime second;
  Alarm next{AlarmRank::host, [&] {
               second = sim_now();
               reads.submit(2, 1);
               p.handler.run(p.handler.held.front());
             }};
  p.driver.on_ready([&] {
    reads.submit(1, 1);
    next.set(sim_now() + SimTime::milliseconds(10));
  });
  CHECK(error_of_run().find("of queue 2)") != std::string::npos);
  CHECK(sim_now() == second + kTimeout);
  CHECK(reads.done == 1);
}

TEST_CASE("a drive that disappears completes nothing from then on, and the host says so") {
  for (const std::int64_t after_us : {0, 3, 10}) {
    PlatformParams params = with_timeout();
    const SimTime gone = SimTime::milliseconds(50) + SimTime::microseconds(after_us);
    params.controller.disappears_at = gone;
    Platform p(params);
    Reads reads(p);
    std::vector<SimTime> completions;
    p.driver.on_ready([] {});
    Alarm start{AlarmRank::host, [&] {
                  for (std::uint32_t i = 0; i < 64; ++i)
                    p.driver.submit_block(QueueId{1}, nvm_opcode::read, Lba{i}, 1,
                                          std::vector{Segment{kHostBase + Bytes::kib(4 * i), Bytes::kib(4)}},
                                          [&](const CompletionEntry&, SimTime at) { completions.push_back(at); });
                }};
    start.set(SimTime::milliseconds(50));
    const std::string error = error_of_run();
    CAPTURE(after_us, error, completions.size());
    CHECK(error.starts_with("drive 3 does not answer: read"));
    CHECK(completions.size() < 64);
    if (after_us == 0) CHECK(completions.empty());
    if (after_us == 10) CHECK(completions.size() > 0);
    for (const SimTime at : completions) CHECK(at <= gone);
    CHECK(p.driver.issued() - p.driver.completed() == 64 - completions.size());
  }
}

TEST_CASE("a drive that is not there when the host starts is an error of its admin command") {
  PlatformParams params = with_timeout();
  params.controller.disappears_at = SimTime{};
  Platform p(params);
  const std::string error = error_of_run();
  CAPTURE(error);
  CHECK(error.find("admin command 0x06") != std::string::npos);
  CHECK_FALSE(p.driver.ready());
}

TEST_CASE("the watch for timeouts does not prolong a run") {
  const auto end = [](const PlatformParams& params) {
    Platform p(params);
    Reads reads(p);
    p.driver.on_ready([&] { reads.submit(1, 20); });
    p.run();
    CHECK(reads.done == 20);
    return sim_now();
  };
  CHECK(end(with_timeout()) == end({}));
}

}  // namespace test_timeout

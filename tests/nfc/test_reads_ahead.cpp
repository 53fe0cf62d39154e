// Reads whose decisions and ends are made ahead, against single steps: whoever submits them is told of each page at the
// same picosecond, in the same order.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "tests/nfc/random_workload.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::test {
namespace {

using nfc::AtFlash;
using nfc::FastFlash;
using nfc::FlashTarget;

/// What a client is told of a command: its number, when, and the stages if it is the last time.
using Told = std::tuple<std::uint64_t, std::int64_t, FlashStages>;

/// Submits commands, at first at random times, then one whenever one has ended: pages that are read one by one, or a
/// batch of anything.
class Commands : public sc_core::sc_module, private nfc::FlashClient {
 public:
  std::vector<Told> told;
  std::uint64_t ahead = 0, refused = 0;

  /// It takes so many of 100 pages before their time.
  Commands(const sc_core::sc_module_name& name, const Workload& workload, FlashTarget& flash, int ahead_percent)
      : sc_module(name), workload_(workload), flash_(flash), ahead_percent_(ahead_percent), left_(workload.batches) {
    Rng rng(workload.seed + 17);
    for (std::uint32_t b = 0; b < workload.initial; ++b) at_.push_back(rng.between(0, workload.arrival_span.ps));
    std::ranges::sort(at_, std::greater());
    SC_METHOD(submit_due);
    sensitive << alarm_;
  }
  SC_HAS_PROCESS(Commands);

 private:
  void submit_due() {
    for (; !at_.empty() && at_.back() <= sim_time_now().ps; at_.pop_back()) submit();
    if (!at_.empty()) alarm_.notify(to_sc_time(SimTime{at_.back()} - sim_time_now()));
  }

  void submit() {
    if (submitted_ == workload_.batches) return;
    const std::uint64_t number = submitted_++;
    std::vector<PageOp> ops = batch_ops(workload_, number);
    if (!Rng(workload_.seed * 31 + number).chance(75)) {
      left_[number] = 1;
      flash_.submit_directly(ops, *this, number);
      return;
    }
    for (PageOp& op : ops) {
      op.kind = PageOpKind::read;
      op.channel_bytes = std::clamp(op.channel_bytes, std::uint32_t{1},
                                    static_cast<std::uint32_t>(workload_.geometry.page_size.value));
    }
    left_[number] = ops.size();
    flash_.submit_each_directly(ops, *this, number, true);
  }

  void tell(std::uint64_t number, SimTime at, const FlashStages& stages) {
    const bool last = --left_[number] == 0;
    told.emplace_back(number, at.ps, last ? stages : FlashStages{});
    if (last) submit();
  }
  void flash_done(std::uint64_t number, const FlashStages& stages) override { tell(number, sim_time_now(), stages); }
  bool flash_part(std::uint64_t number, SimTime at) override {
    REQUIRE(at >= sim_time_now());
    if (!Rng(workload_.seed + told.size()).chance(ahead_percent_)) return ++refused == 0;
    ++ahead;
    tell(number, at, {});
    return true;
  }

  Workload workload_;
  FlashTarget& flash_;
  int ahead_percent_;
  std::vector<std::size_t> left_;  ///< how often it is still to be told of a command
  std::vector<std::int64_t> at_;   ///< first submissions, the next one at the end
  std::uint64_t submitted_ = 0;
  sc_core::sc_event alarm_;
};

struct Played {
  std::vector<Told> told;
  nfc::FlashStatistics statistics;
  std::uint64_t ahead, refused;
  bool reads_ahead = false;  ///< the timeline does, as long as nothing is programmed
};

template <class Flash>
Played play(const Workload& w, int ahead_percent, WorkObserver* observer = nullptr) {
  SyscFixture context;
  Flash flash("flash", w.geometry, w.timing);
  struct Nobody : sc_core::sc_module {
    tlm_utils::simple_initiator_socket<Nobody> socket{"socket"};
    explicit Nobody(const sc_core::sc_module_name& name) : sc_module(name) {}
  } nobody("nobody");
  nobody.socket.bind(flash.socket);
  if (observer != nullptr) flash.observe({.planes = observer});
  Commands commands("commands", w, flash, ahead_percent);
  bool ahead = false;
  if constexpr (std::is_same_v<Flash, FastFlash>) ahead = flash.timeline().decides_late();
  sc_core::sc_start();
  return {commands.told, flash.statistics(), commands.ahead, commands.refused, ahead};
}

struct Watcher final : WorkObserver {
  std::uint64_t works = 0;
  void work(std::uint32_t, std::string_view, SimTime, SimTime, std::uint64_t) override { ++works; }
  void level(std::uint32_t, std::uint64_t, SimTime) override {}
};

/// Nothing in the timing needs single steps, so that reads go ahead between programs and erases.
void allow_ahead(nfc::FlashTiming& timing) {
  timing.class_priority.clear();
  timing.cache.reset();
  timing.page_buffers.reset();
  if (timing.plane_mode == nfc::PlaneMode::multi_plane) timing.plane_mode = nfc::PlaneMode::independent_reads;
}

TEST_CASE("reads ahead equal single steps, and pages that are told ahead those that are told in time") {
  std::uint64_t first = 30'001, last = 31'000;
  if (const char* seed = std::getenv("CSDSIM_TEST_SEED")) first = last = std::strtoull(seed, nullptr, 10);
  WARN("seeds " << first << " .. " << last << "; CSDSIM_TEST_SEED=n replays one");
  std::uint64_t ahead = 0, refused = 0, reads_ahead = 0, changes = 0, suspends = 0, retries = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    Workload w = random_workload(seed, seed % 4 != 0);
    if (seed % 8 != 1) allow_ahead(w.timing);
    Watcher watcher;
    const Played one = play<FastFlash>(w, 100), some = play<FastFlash>(w, 60), steps = play<FastFlash>(w, 0, &watcher),
                 at = play<AtFlash>(w, 0);
    REQUIRE(at.told.size() >= w.batches);
    for (const Played* fast : {&one, &some, &steps}) {
      REQUIRE(fast->told == at.told);
      REQUIRE(fast->statistics == at.statistics);
    }
    REQUIRE(watcher.works > 0);
    ahead += one.ahead;
    refused += some.refused;
    reads_ahead += one.reads_ahead ? 1 : 0;
    suspends += at.statistics.suspends;
    retries += at.statistics.retries;
    for (const auto& of_class : at.statistics.ops) changes += of_class[1] + of_class[2];
  }
  if (first == last) return;
  // The workloads reach what they are there for.
  CHECK(ahead > 100'000);
  CHECK(refused > 10'000);
  CHECK(reads_ahead > 800);
  CHECK(changes > 10'000);
  CHECK(suspends > 1'000);
  CHECK(retries > 1'000);
}

}  // namespace
}  // namespace csdsim::test

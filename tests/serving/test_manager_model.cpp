// The manager against a model in a std::map over a million random operations, with stores and loads that fail or
// expire.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/rng.h"
#include "serving_support.h"

namespace test_manager_model {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint64_t kCapacity = 40;
constexpr std::uint64_t kIds = 70;
constexpr std::int64_t kDeadline = 60;

struct Copy {
  bool writing = false;
  std::set<std::uint64_t> readers;  ///< jobs
};

struct Job {
  bool store = false;
  std::int64_t deadline = 0;
  std::vector<std::uint64_t> copies;  ///< numbers of copies
};

/// Copies of blocks have numbers: one that has failed may have readers while the next one is stored.
struct Model {
  std::map<std::uint64_t, Copy> copies;
  std::map<std::uint64_t, std::uint64_t> present;  ///< copy of each block
  std::map<std::uint64_t, Job> jobs;
  std::uint64_t next_copy = 0;

  std::uint64_t lookup(const std::vector<KvBlockId>& blocks) const {
    for (std::uint64_t i = 0; i < blocks.size(); ++i) {
      const auto at = present.find(blocks[i].value);
      if (at == present.end() || copies.at(at->second).writing) return i;
    }
    return blocks.size();
  }
  void forget(std::uint64_t copy) {
    for (auto at = present.begin(); at != present.end(); ++at)
      if (at->second == copy) {
        present.erase(at);
        break;
      }
    if (copies.at(copy).readers.empty()) copies.erase(copy);
  }
  void end(std::uint64_t number, bool succeeded) {
    const Job job = jobs.at(number);
    jobs.erase(number);
    for (const std::uint64_t copy : job.copies) {
      copies.at(copy).writing = false;
      copies.at(copy).readers.erase(number);
      if (!succeeded) forget(copy);
      if (succeeded && copies.at(copy).readers.empty() && !is_present(copy)) copies.erase(copy);
    }
  }
  bool is_present(std::uint64_t copy) const {
    for (const auto& [id, at] : present)
      if (at == copy) return true;
    return false;
  }
};

class Pair {
 public:
  Pair(const char* policy, std::uint64_t seed)
      : rng_(seed, "manager"), tier_(manager(kCapacity, policy, SimTime{kDeadline})) {
    tier_.on_event([this](const KvBlockEvent& event) {
      if (event.kind == KvBlockEvent::Kind::stored) {
        REQUIRE(told_.insert(event.id.value).second);
      } else if (event.kind == KvBlockEvent::Kind::store_failed) {
        REQUIRE_FALSE(told_.contains(event.id.value));
      } else {
        REQUIRE(told_.erase(event.id.value) == 1);
      }
    });
  }
  Pair(const Pair&) = delete;

  void step() {
    ++now_;
    const std::uint64_t kind = rng_.below(100);
    if (kind < 40) {
      store(request());
    } else if (kind < 60) {
      load(request());
    } else if (kind < 92) {
      complete();
    } else if (kind < 95) {
      expire();
    } else if (kind < 97) {
      drop({rng_.below(kIds)});
    } else {
      tier_.touch(request());
    }
    check();
  }

  /// Ends all jobs. Then every block is absent or ready, and the whole tier may leave.
  void finish() {
    while (!model_.jobs.empty()) complete();
    for (std::uint64_t id = 0; id < kIds; ++id) check_state({id});
    REQUIRE(tier_.usage().idle == model_.present.size());
    REQUIRE(tier_.next_deadline() == SimTime::max());
    std::vector<KvBlockId> fresh;
    for (std::uint64_t id = kIds; id < kIds + kCapacity; ++id) fresh.push_back({id});
    const std::uint64_t kept = model_.present.size();
    const auto all = tier_.prepare_store(fresh, SimTime{now_});
    REQUIRE(all);
    REQUIRE(all->stored.size() == kCapacity);
    REQUIRE(all->evicted.size() == kept);
    const std::set<KvBlockSlot> slots(all->slots.begin(), all->slots.end());
    REQUIRE(slots.size() == kCapacity);
    REQUIRE(*slots.rbegin() == kCapacity - 1);
  }
  std::uint64_t evictions = 0, refusals = 0, failures = 0, expired = 0;

 private:
  std::vector<KvBlockId> request() {
    std::vector<KvBlockId> blocks;
    const std::uint64_t first = rng_.below(kIds), count = 1 + rng_.below(6);
    for (std::uint64_t i = 0; i < count; ++i) blocks.push_back({(first + i) % kIds});
    return blocks;
  }

  void store(const std::vector<KvBlockId>& blocks) {
    std::vector<std::uint64_t> missing;
    std::set<std::uint64_t> known;
    for (std::size_t i = blocks.size(); i-- > 0;)
      model_.present.contains(blocks[i].value) ? void(known.insert(blocks[i].value))
                                               : missing.push_back(blocks[i].value);
    std::uint64_t idle = 0;
    for (const auto& [id, copy] : model_.present)
      idle += !model_.copies.at(copy).writing && model_.copies.at(copy).readers.empty() && !known.contains(id);
    const bool fits = missing.size() <= kCapacity - model_.copies.size() + idle;
    const auto store = tier_.prepare_store(blocks, SimTime{now_});
    REQUIRE(store.has_value() == fits);
    if (!store) {
      ++refusals;
      return;
    }
    std::vector<std::uint64_t> stored;
    for (const KvBlockId id : store->stored) stored.push_back(id.value);
    REQUIRE(stored == missing);
    const std::uint64_t free = kCapacity - model_.copies.size();
    REQUIRE(store->evicted.size() == (missing.size() > free ? missing.size() - free : 0));
    for (const KvBlockId id : store->evicted) {
      REQUIRE_FALSE(known.contains(id.value));
      const std::uint64_t copy = model_.present.at(id.value);
      REQUIRE_FALSE(model_.copies.at(copy).writing);
      REQUIRE(model_.copies.at(copy).readers.empty());
      model_.forget(copy);
      ++evictions;
    }
    if (missing.empty()) return;
    Job job{true, now_ + kDeadline, {}};
    for (const std::uint64_t id : missing) {
      model_.copies[model_.next_copy].writing = true;
      model_.present[id] = model_.next_copy;
      job.copies.push_back(model_.next_copy++);
    }
    model_.jobs[store->job.value] = job;
  }

  void load(std::vector<KvBlockId> blocks) {
    blocks.resize(model_.lookup(blocks));
    if (blocks.empty()) return;
    const auto load = tier_.prepare_load(blocks, SimTime{now_});
    Job job{false, now_ + kDeadline, {}};
    for (const KvBlockId id : blocks) {
      job.copies.push_back(model_.present.at(id.value));
      model_.copies.at(job.copies.back()).readers.insert(load.job.value);
    }
    model_.jobs[load.job.value] = job;
  }

  void complete() {
    if (model_.jobs.empty()) return;
    auto job = model_.jobs.begin();
    std::advance(job, rng_.below(model_.jobs.size()));
    const std::uint64_t number = job->first;
    const bool succeeds = rng_.below(4) != 0;
    failures += !succeeds;
    REQUIRE((job->second.store ? tier_.complete_store({number}, succeeds) : tier_.complete_load({number}, succeeds)));
    model_.end(number, succeeds);
  }

  void expire() {
    std::vector<std::uint64_t> late;
    for (const auto& [number, job] : model_.jobs)
      if (job.deadline <= now_) late.push_back(number);
    REQUIRE(tier_.expire(SimTime{now_}) == late.size());
    for (const std::uint64_t number : late) {
      REQUIRE_FALSE(tier_.complete_load({number}, true));
      model_.end(number, false);
    }
    expired += late.size();
  }

  void drop(KvBlockId id) {
    tier_.drop(id);
    const auto at = model_.present.find(id.value);
    if (at != model_.present.end() && !model_.copies.at(at->second).writing) model_.forget(at->second);
  }

  void check() {
    const KvBlockManager::Usage usage = tier_.usage();
    std::uint64_t writing = 0, reading = 0;
    for (const auto& [number, copy] : model_.copies) {
      writing += copy.writing;
      reading += !copy.readers.empty();
    }
    if (usage.taken != model_.copies.size() || usage.writing != writing || usage.reading != reading ||
        usage.idle != model_.copies.size() - writing - reading || usage.taken > kCapacity)
      FAIL("usage at " << now_);
    const auto blocks = request();
    if (tier_.lookup(blocks).blocks != model_.lookup(blocks)) FAIL("lookup at " << now_);
    check_state({rng_.below(kIds)});
  }

  void check_state(KvBlockId id) {
    const auto at = model_.present.find(id.value);
    const KvBlockState expected = at == model_.present.end()                     ? KvBlockState::absent
                                  : model_.copies.at(at->second).writing         ? KvBlockState::writing
                                  : model_.copies.at(at->second).readers.empty() ? KvBlockState::ready
                                                                                 : KvBlockState::loading;
    if (tier_.state(id) != expected) FAIL("state at " << now_);
    const bool readable = expected == KvBlockState::ready || expected == KvBlockState::loading;
    if (told_.contains(id.value) != readable) FAIL("events up to " << now_);
  }

  Rng rng_;
  KvBlockManager tier_;
  Model model_;
  std::set<std::uint64_t> told_;  ///< blocks that can be read, by the events
  std::int64_t now_ = 0;
};

}  // namespace

TEST_CASE("a million random operations leave the manager as its model is") {
  const auto* policy = GENERATE("lru", "fifo", "lfu", "arc", "s3fifo");
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    INFO(policy << ", seed " << seed);
    Pair pair(policy, seed);
    for (int i = 0; i < 100'000; ++i) pair.step();
    pair.finish();
    CHECK(pair.evictions > 5'000);
    CHECK(pair.refusals > 300);
    CHECK(pair.failures > 5'000);
    CHECK(pair.expired > 500);
  }
}

}  // namespace test_manager_model

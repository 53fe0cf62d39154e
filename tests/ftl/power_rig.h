// A KV namespace whose power fails, beside a plain copy of the data that it was given.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "flash_model.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_recovery.h"
#include "head_oracle.h"
#include "kv_fixture.h"

namespace csdsim::ftl::test {

/// How a history is run. PowerCounts says how often it met the cases that it is meant to test.
struct PowerSetup {
  FlashGeometry geometry;
  KvFtlConfig config;
  std::function<std::unique_ptr<KvMappingPolicy>()> policy;
  BlockManagerConfig manager;
  Bytes dram = Bytes::gib(1);
  MediaFaults* faults = nullptr;
  RowQuantisation format = {};  ///< of every second sequence or so, if it has few bits
};

struct PowerCounts {
  std::uint64_t losses = 0;
  std::uint64_t torn = 0;
  std::uint64_t saved = 0;
  std::uint64_t rebuilt = 0;
  std::uint64_t evacuated = 0;
  std::uint64_t stale = 0;
  std::uint64_t collected = 0;
  std::uint64_t forks = 0;
  std::uint64_t partial_windows = 0;  ///< restored
  std::uint64_t parked = 0;           ///< after the recovery
  std::uint64_t bad_blocks = 0;
  std::uint64_t out_of_space = 0;
  std::uint64_t windows_of_few_bits = 0;  ///< that were compared
};

class PowerRig {
 public:
  PowerRig(const PowerSetup& setup, std::uint64_t seed, PowerCounts& counts)
      : setup_(setup), store_(setup.geometry, DataMode::carried), flash_(setup.geometry), rng_(seed), counts_(counts) {
    switch_on();
  }

  std::uint64_t completed() const { return completed_; }
  KvFtl& ftl() { return *ftl_; }

  /// One call of a user, or the end of one operation.
  void step() {
    switch (rng_() % 16) {
      case 0:
        return create();
      case 1:
        return rng_() % 3 == 0 ? release() : fork();
      case 2:
        return pin();
      case 3:
      case 4:
      case 5:
      case 6:
        return append();
      default:
        complete_one();
    }
  }

  bool idle() const { return flights_.empty() && erases_.empty(); }

  void complete_one();

  void drain() {
    while (!idle()) complete_one();
  }

  void lose_power();

  /// Checks everything that must hold at any time.
  void check();

  /// Checks that with no operation in progress every full window is readable component-major.
  void check_settled();

  /// Checks that after the last sequence is freed nothing is held.
  void free_everything() {
    while (!live_.empty()) release();
    check_settled();
    REQUIRE(ftl_->dram().used() == Bytes{});
    REQUIRE(ftl_->parked_pages() == 0);
    REQUIRE(blocks_->valid_pages(Namespace::kv) == 0);
  }

 private:
  using Where = std::pair<LayerId, KvHead>;
  struct SequenceOracle {
    KvShape shape;
    std::uint32_t words = 0;            ///< of a row
    std::map<Where, HeadOracle> heads;  ///< rows as they were appended
    std::uint32_t tokens(const Where& where) const {
      const auto at = heads.find(where);
      return at == heads.end() ? 0 : static_cast<std::uint32_t>(at->second.keys.size() / words);
    }
  };
  struct Flight {
    FlushJobId id;
    std::vector<PageOp> reads;  ///< still to be done
    std::vector<PageOp> programs;
    std::uint64_t pages = 0;  ///< that do not fail
  };

  void switch_on() {
    ftl_.reset();
    closing_.clear();
    blocks_.emplace(setup_.geometry, BlockQuota{0, setup_.geometry.blocks_per_plane - setup_.manager.spare_blocks},
                    setup_.manager);
    dram_.emplace(setup_.dram);
    ftl_ = std::make_unique<KvFtl>(setup_.config, *blocks_, store_, *dram_, setup_.policy(), setup_.faults);
  }

  /// Wear and bad blocks are what they were.
  void check_blocks(const std::vector<BlockRecord>& before);

  SequenceId any() {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(rng_() % live_.size()));
    return it->first;
  }

  void create();

  void release();

  void fork() {
    if (live_.empty()) return;
    const SequenceId parent = any();
    const SequenceId child{static_cast<std::uint32_t>(rng_() % 5)};
    if (ftl_->fork_sequence(parent, child) != KvStatus::ok) return;
    live_[child] = live_[parent];
    ++counts_.forks;
  }

  void pin();

  void append();

  /// Appends to `first` and the heads after it that hold as many tokens.
  bool append(SequenceId id, LayerId layer, KvHead first, std::uint32_t count);

  void add_job(const FlushJob& job) {
    Flight& flight = flights_.emplace_back(Flight{job.id, job.reads, job.programs, 0});
    for (const PageOp& op : job.programs) flight.pages += store_.written(op.ppa) ? 1 : 0;
  }

  void add_erases(const std::vector<PageOp>& erases) { erases_.insert(erases_.end(), erases.begin(), erases.end()); }

  void check_head(const HeadKey& key, const KvLayout& l, const HeadOracle& h);

  /// Rows of random elements.
  std::vector<Half> random_rows(const KvShape& shape, std::size_t rows);

  PowerSetup setup_;
  BackingStore store_;
  FlashModel flash_;
  std::mt19937_64 rng_;
  PowerCounts& counts_;
  std::optional<BlockManager> blocks_;
  std::optional<DramBudget> dram_;
  std::unique_ptr<KvFtl> ftl_;
  std::map<SequenceId, SequenceOracle> live_;
  std::set<SequenceId> closing_;
  std::vector<std::pair<SequenceId, std::uint64_t>> pins_;
  std::deque<Flight> flights_;
  std::deque<PageOp> erases_;
  std::uint64_t completed_ = 0;
};

}  // namespace csdsim::ftl::test

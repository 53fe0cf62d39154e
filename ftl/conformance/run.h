// One case under way; not a public header.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ftl/conformance/case.h"
#include "ftl/conformance/journal.h"
#include "ftl/conformance/watched_policy.h"
#include "ftl/core/seeded_faults.h"

namespace csdsim::ftl::conformance {

/// The contents of a head as plain arrays.
struct HeadOracle {
  std::vector<Half> keys;  ///< [tokens][d]
  std::vector<Half> values;
  std::vector<float> mean;
};

struct SequenceOracle {
  KvShape shape;
  std::uint32_t root = 0;  ///< shared by the sequences that descend from one another
  std::map<std::pair<std::uint32_t, std::uint32_t>, HeadOracle> heads;  ///< by (layer, head)

  std::uint32_t tokens(std::uint32_t layer, std::uint32_t head) const {
    const auto at = heads.find({layer, head});
    return at == heads.end() ? 0 : static_cast<std::uint32_t>(at->second.keys.size() / shape.head_dim);
  }
};

/// Thrown inside a case if a property does not hold.
struct Broken {
  Property property;
  std::string what;
};

class Run {
 public:
  Run(const PolicyMaker& policy, const Case& c, const CaseOptions& options);

  /// Runs all operations, then the final checks. Throws Broken, and passes on the exceptions of the FTL and the policy.
  void run();

  std::size_t at() const { return at_; }
  Coverage coverage();
  std::vector<std::string> take_history() { return std::move(history_); }
  /// Addresses of all page operations, in order.
  const std::vector<std::uint64_t>& addresses() const { return addresses_; }

 private:
  using Live = std::map<SequenceId, SequenceOracle>;

  void step(const Operation& o);
  void create(const Operation& o);
  void append(const Operation& o);
  void advance(const Operation& o);
  void attend(const Operation& o);
  void fork(const Operation& o);
  void free(SequenceId id);
  void switch_on();
  void lose_power(const Operation& o);
  void count();
  bool append_rows(SequenceId id, std::uint32_t layer, HeadRange heads, std::uint32_t first, std::uint32_t count);
  AppendResult submit(SequenceId id, std::uint32_t layer, HeadRange heads, std::uint32_t first,
                      const std::vector<Half>& keys, const std::vector<Half>& values);
  std::vector<Half> random_rows(std::size_t count);
  void take(std::vector<FlushJob>& jobs);
  void take_erases(const std::vector<PageOp>& erases);
  void complete_job(std::size_t which);
  void complete_erase(std::size_t which);
  void drain();
  void flash(const PageOp& op);
  Live::iterator sequence(std::uint32_t n);

  void check(bool settled);
  void check_head(const SequenceOracle& s, const HeadKey& key, bool settled);
  void check_token_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled);
  void check_embedding_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled);
  void check_layout(const KvShape& shape, const KvLayout& layout);
  void check_tables(SequenceId id, const SequenceOracle& s);
  void check_dram();
  void check_planned(const PageOp& op, std::uint32_t root, const KvPageId& page);
  void check_end();
  void check_lookups(SequenceId id, const ReadPlan& plan);

  /// Throws Broken with the text of `what` if `good` is false; the text is formatted only then.
  template <class What>
  void require(Property property, bool good, What&& what) {
    ++coverage_.checks;
    if (good || !options_.judged[static_cast<std::size_t>(property)]) return;
    throw Broken{property, what()};
  }
  template <class... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    history_.push_back(fmt::format(format, std::forward<Args>(args)...));
    if (options_.journal != nullptr) options_.journal->note(history_.back());
  }

  const Case& case_;
  const CaseOptions& options_;
  SeededFaults faults_;
  PolicyMaker policy_;
  AppendUse append_use_;  ///< declared before the FTL, whose policy reports to it
  BackingStore store_;
  std::optional<BlockManager> blocks_;
  std::optional<DramBudget> dram_;
  std::optional<KvFtl> ftl_;
  Rng rng_;
  std::size_t at_ = 0;
  std::uint32_t next_root_ = 0;
  Live live_;
  std::deque<FlushJob> jobs_;
  std::deque<PageOp> erases_;
  std::vector<SequenceId> pins_;
  std::vector<bool> programmed_;  ///< pages, as a NAND array sees them
  std::vector<std::uint64_t> addresses_;
  std::vector<std::string> history_;
  Coverage coverage_;
  /// For the check in progress: the address at which each page was found.
  std::map<std::uint64_t, std::pair<std::uint32_t, KvPageId>> planned_;
};

}  // namespace csdsim::ftl::conformance

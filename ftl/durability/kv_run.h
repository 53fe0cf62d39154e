// One case of a KV namespace under way; not a public header.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ftl/core/seeded_faults.h"
#include "ftl/durability/head_oracle.h"
#include "ftl/durability/kv_case.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_recovery.h"

namespace csdsim::ftl::durability {

class KvRun {
 public:
  KvRun(const KvCase& c, bool with_history);

  /// Throws Broken, and passes on the exceptions of the FTL.
  void step(const KvStep& step);
  /// Everything completes; then all is compared and freed.
  void go_on_without_faults();

  const KvCoverage& coverage() const { return coverage_; }
  std::size_t ready() const { return ready_ops().size(); }
  /// KvCaseResult::state
  std::uint64_t state() const;
  std::vector<std::string> take_history() { return std::move(history_); }

 private:
  using Where = std::pair<LayerId, KvHead>;
  struct Sequence {
    KvShape shape;
    std::uint32_t words = 0;            ///< words of a row
    std::map<Where, HeadOracle> heads;  ///< rows as they were appended
    std::uint32_t tokens(const Where& where) const;
  };
  /// A flush or an erase. Programs go to the flash when all reads are done.
  struct Flight {
    std::optional<FlushJobId> job;  ///< none: an erase
    std::vector<PageOp> reads;
    std::vector<PageOp> changes;
    std::uint64_t pages = 0;      ///< that do not fail
    bool of_recovery = false;     ///< it belongs to the last recovery
    std::uint64_t submitted = 0;  ///< number of its submission; 0: it still reads
  };
  /// An operation that flash may complete next, by its place in its flight; `op` null: all reads of a flight.
  struct Ready {
    std::list<Flight>::iterator flight;
    const PageOp* op = nullptr;
  };

  void switch_on();
  void create(const KvStep& step);
  void append(const KvStep& step);
  void release(const KvStep& step);
  void fork(const KvStep& step);
  void pin(const KvStep& step);
  void unpin(const KvStep& step);
  void complete(const KvStep& step);
  void cut(const KvStep& step);

  bool create(SequenceId id, std::uint32_t shape);
  void free(SequenceId id);
  bool append(SequenceId id, LayerId layer, KvHead first, std::uint32_t count);
  std::vector<Half> rows(const KvShape& shape, std::size_t count);
  void unpin_all();

  void add(const std::vector<FlushJob>& jobs, const std::vector<PageOp>& erases, bool of_recovery = false);
  std::vector<Ready> ready_ops() const;
  void complete(const Ready& ready);
  void drain();
  void run(const PageOp& op);
  PowerLoss decide_fates(std::uint32_t fates);
  void forget_images(KvDump& dump, std::uint32_t count);
  void recover(const KvDump& dump);
  void drop_lost(const RecoveryResult& found);
  void check_blocks(const std::vector<BlockRecord>& before) const;
  void check_told(std::uint64_t found) const;
  void check_refusal(SequenceId id, LayerId layer, HeadRange heads, std::uint32_t at, std::uint32_t count) const;
  void empty_failed_blocks();
  void check();
  void check_head(const HeadKey& key, const HeadOracle& h);
  void check_windows(const HeadKey& key, const HeadOracle& h);
  void check_dram() const;
  void check_settled();
  void require(bool holds, const char* what) const;
  void tell(const KvStep& step, const std::string& what);

  const KvSetup& setup_;
  bool tells_;
  BackingStore store_;
  SeededFaults faults_;
  std::vector<bool> programmed_;  ///< by page: what the flash would refuse to program
  std::optional<BlockManager> blocks_;
  std::optional<DramBudget> dram_;
  std::unique_ptr<KvFtl> ftl_;
  std::map<PhysicalPageAddress, KvPageId> told_;  ///< the pages that the policy has heard of after the last loss
  std::map<SequenceId, Sequence> live_;
  std::set<SequenceId> closing_;  ///< freed, and read by somebody
  std::vector<SequenceId> pins_;
  mutable std::list<Flight> flights_;
  std::uint64_t submissions_ = 0, rows_made_ = 0;
  std::uint64_t past_ = 0;  ///< hash of the commands so far, and of what was under way at each of them
  KvCoverage coverage_;
  std::vector<std::string> history_;
};

}  // namespace csdsim::ftl::durability

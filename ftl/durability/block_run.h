// One case under way; not a public header.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ftl/block/block_ftl.h"
#include "ftl/core/seeded_faults.h"
#include "ftl/durability/case.h"
#include "ftl/durability/flash_queue.h"
#include "ftl/durability/unit_oracle.h"

namespace csdsim::ftl::durability {

class BlockRun {
 public:
  BlockRun(const Case& c, bool with_history);

  /// Writes every unit Setup::filled times.
  void fill();
  /// Throws Broken, and passes on the exceptions of the FTL.
  void step(const Step& step);
  /// Everything completes; then every unit is written, and read.
  void go_on_without_faults();

  CutCoverage coverage() const;
  std::size_t ready() const { return queue_.ready().size(); }
  std::vector<std::string> take_history() { return std::move(history_); }

 private:
  /// A command that completes when what it waits for is in flash.
  struct Waiting {
    std::vector<std::uint64_t> programs;                           ///< numbers of operations
    std::vector<std::pair<std::uint64_t, std::uint64_t>> durable;  ///< units and their versions, once it completes
    std::optional<std::uint64_t> trims;                            ///< so many are saved then
  };

  bool is_volatile() const { return !setup_.capacitors; }
  std::uint64_t units() const { return oracle_.size(); }
  /// Translation pages; 0 unless the map is cached.
  std::uint64_t map_pages() const {
    const std::uint64_t entries = unit().value / kMapEntryBytes;
    return setup_.config.map_cache_entries ? (units() + entries - 1) / entries : 0;
  }
  Bytes unit() const { return setup_.geometry.page_size; }
  std::uint64_t address(const Step& step) const { return step.n[0] % units(); }
  std::uint64_t length(const Step& step) const;

  void switch_on();
  void run(IoPlan plan);
  void write(const Step& step, bool fua);
  void trim(const Step& step);
  void read(const Step& step);
  void flush();
  void complete(const Step& step);
  void background(const Step& step);
  void cut(const Step& step);

  void note_written(std::uint64_t first, std::uint64_t count, std::vector<UnitBytes> contents, IoStatus status);
  void wait_for(Waiting waiting);
  void complete(std::uint64_t number);
  std::vector<FlashOp> decide_fates(std::uint32_t fates);
  PowerLoss spoiled_by(const std::vector<FlashOp>& begun) const;
  PowerCut power_cut() const;
  void recover(const BlockDump& dump);
  void check_after_recovery();
  void check_map();
  void check_map_pages();
  UnitBytes read_unit(std::uint64_t unit);
  void tell(const Step& step, const std::string& what);

  const Setup& setup_;
  bool tells_;
  BackingStore store_;
  FlashQueue queue_;
  SeededFaults faults_;
  std::optional<BlockManager> blocks_;
  std::optional<BlockFtl> ftl_;
  std::vector<UnitOracle> oracle_;
  std::list<Waiting> waiting_;
  std::uint64_t serial_ = 0;      ///< writes so far
  std::uint64_t recovering_ = 0;  ///< the last operation of the last recovery; 0: none
  CutCoverage coverage_;
  std::vector<std::string> history_;
};

}  // namespace csdsim::ftl::durability

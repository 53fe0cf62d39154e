// Runs the flash operations of the KV FTL: flushes and erases.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/flash_ledger.h"
#include "csd_model/firmware/map_lookups.h"
#include "csd_model/firmware/write_buffer.h"
#include "ftl/kv/firmware_times.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_recovery.h"

namespace csdsim::csd_model {

/// Pages of flushes are in the write buffer until they are programmed.
class KvFlushes {
 public:
  using Done = std::function<void()>;

  /// `settled` is called whenever pages were programmed or a block was erased. `geometry`: as the FTL addresses it.
  KvFlushes(ftl::KvFtl& ftl, const FlashGeometry& geometry, const ftl::FirmwareTimes& times, FlashIo& flash,
            MapLookups& map_lookups, WriteBuffer& write_buffer, Done settled);

  static Bytes program_bytes(const ftl::FlushJob& job);

  /// `done` is called when all of them are in flash; at once without jobs.
  void start(std::vector<ftl::FlushJob> jobs, Done done);
  void erase(const std::vector<PageOp>& erases);

  std::uint64_t flushing() const { return flushes_; }
  std::uint64_t erasing() const { return erases_; }
  /// Calls back whenever a block of the namespace has been erased.
  void on_erased(std::function<void(PhysicalPageAddress)> callback) { erased_ = std::move(callback); }

  /// Tells `ledger` of all programs and erases, so that it can say what becomes of them when the power fails. It knows
  /// programs from plan() on, which comes before start().
  void keep(FlashLedger& ledger) { ledger_ = &ledger; }
  void plan(const std::vector<ftl::FlushJob>& jobs);
  /// What a recovery leaves to be done.
  void resume(ftl::RecoveryResult recovery);
  /// The power fails: nothing is under way any more.
  void lose_power() { flushes_ = erases_ = 0; }

 private:
  using JobPtr = std::shared_ptr<ftl::FlushJob>;
  using DonePtr = std::shared_ptr<Done>;

  void start_one(const JobPtr& job, std::uint64_t number, const DonePtr& done);
  void program(const JobPtr& job, std::uint64_t number, const DonePtr& done);
  void tell_given(const PageOp& op, std::uint64_t place);

  ftl::KvFtl& ftl_;
  FlashGeometry geometry_;
  ftl::FirmwareTimes times_;
  FlashIo& flash_;
  MapLookups& map_lookups_;
  WriteBuffer& write_buffer_;
  Done settled_;
  std::uint64_t flushes_ = 0, erases_ = 0;  ///< that have started and not ended
  std::function<void(PhysicalPageAddress)> erased_;
  FlashLedger* ledger_ = nullptr;  ///< null: the power does not fail
};

}  // namespace csdsim::csd_model

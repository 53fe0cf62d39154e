// Firmware of the KV namespace: the vendor commands of nvme_if/spec/kv_command.h over the KV FTL and the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "contracts/read_plan.h"
#include "csd_model/firmware/busy_heads.h"
#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/engine_io.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/kv_flushes.h"
#include "csd_model/firmware/kv_lookup.h"
#include "csd_model/firmware/map_lookups.h"
#include "csd_model/firmware/peer_reads.h"
#include "csd_model/firmware/write_buffer.h"
#include "ftl/kv/firmware_times.h"
#include "ftl/kv/kv_ftl.h"
#include "nvme_if/sysc/command.h"

namespace csdsim::csd_model {

struct KvServiceConfig {
  bool carried = false;         ///< bytes move with the commands
  bool engine_in_dram = false;  ///< the engine's buffer lies in controller DRAM, whose bandwidth it uses
  FlashGeometry geometry = {};  ///< as the FTL addresses it
  ftl::FirmwareTimes firmware = {};
};

/// State changes when a command's data has arrived, in order of arrival. Tokens that an attend appends are flushed in
/// the background; a kv_append is complete when its full groups are in flash, or when they fit the write buffer. A
/// command waits here for DRAM that flushes free, for erases, and for attention that runs on the heads that it appends
/// to; commands that arrive later wait behind it.
class KvService {
 public:
  /// `peer_reads`: what pages of a fetch cross on their way to the engine's memory, or null.
  KvService(const KvServiceConfig& config, ftl::KvFtl& ftl, KvLookup& lookup, FlashIo& flash, PeerReads* peer_reads,
            InternalLink& link, EngineIo& engine, MapLookups& map_lookups, ControllerDram& dram, DramPort& port,
            WriteBuffer& write_buffer);

  void create(nvme::Command& command, const nvme::KvCreate& op);
  void free(nvme::Command& command, const nvme::KvFree& op);
  void fork(nvme::Command& command, const nvme::KvFork& op);
  void append(nvme::Command& command, const nvme::KvAppend& op);
  void rewrite(nvme::Command& command, const nvme::KvRewrite& op);
  void attend(nvme::Command& command, const nvme::KvAttend& op);
  void score(nvme::Command& command, const nvme::KvScore& op);
  void fetch(nvme::Command& command, const nvme::KvFetch& op);

  /// Calls back when no flush is in flight: what was appended is in flash.
  void when_drained(std::function<void()> callback);

  /// No append, flush or erase is on its way.
  bool steady() const {
    return flushes_.flushing() + flushes_.erasing() + booked_ + appending_ == 0 && waiting_.empty();
  }

  KvFlushes& flushes() { return flushes_; }
  /// The power fails: nothing is under way any more.
  void lose_power();

  /// Controller DRAM was freed elsewhere: commands that wait for it try again.
  void retry_waiting();
  bool waits_for_dram() const { return !waiting_.empty(); }

 private:
  using Done = std::function<void()>;
  using Status = nvme::Status;
  struct Attend;
  struct Score;
  struct Fetch;

  static Status to_status(ftl::KvStatus status);
  /// Ends a command of `descriptors` descriptors whose pages cannot be read back.
  static void fail_lost(nvme::Command& command, const std::set<ftl::KvLoss>& losses, std::size_t descriptors);
  /// `count` elements at `offset`; empty in timing runs.
  static std::span<const Half> halves(const DramBuffer& buffer, Bytes offset, std::size_t count);

  /// Runs `attempt` until it returns true: now, and whenever room may have been made, in order of arrival.
  void when_possible(std::function<bool()> attempt);

  void pages_settled();
  void notify_drained();

  void read_section(nvme::Command& command, Bytes from, Bytes to, Bytes kept, DramBuffer& into,
                    nvme::Command::Done done);
  DramBuffer cleared_buffer(Bytes size);
  void write_section(nvme::Command& command, Bytes from, Bytes to, const DramBuffer& buffer, nvme::Command::Done done);

  /// What an append or a rewrite does to the FTL once its rows are there.
  using Store = std::function<ftl::AppendResult(std::span<const Half> k, std::span<const Half> v)>;
  void store_rows(nvme::Command& command, const nvme::KvAppend& op, Store store);
  bool stored(nvme::Command& command, std::uint32_t heads, ftl::AppendResult result);
  Status check_append(const nvme::Command& command, const nvme::KvAppend& op) const;
  void descriptors_arrived(const std::shared_ptr<Attend>& a);
  Status validate(const Attend& a) const;
  static bool appends_apart(const Attend& a);
  bool append_tokens(const std::shared_ptr<Attend>& a);
  void start_engine(const std::shared_ptr<Attend>& a);
  void run_jobs(nvme::Command& command, LayerId layer, std::vector<engine::HeadJob> jobs,
                const std::vector<nvme::AttendDescriptor>& descriptors, Done done);
  /// Bytes written to and read from the engine's buffer for these heads.
  Bytes engine_bytes(const std::vector<engine::HeadJob>& jobs) const;
  /// Bytes of K and V of these heads that are in no flash page yet: the engine reads them from DRAM.
  Bytes tail_bytes(const std::vector<engine::HeadJob>& jobs) const;
  Status check_heads(const nvme::AttendDescriptor& d, LayerId layer, std::uint32_t head_dim) const;
  void unpin(SequenceId sequence);
  Status validate(const Score& s) const;
  void start_engine(const std::shared_ptr<Score>& s);
  static void combine_scores(const Score& s, float* lists);
  void fetch_lists_arrived(const std::shared_ptr<Fetch>& f);
  void copy_rows(Fetch& f);
  void read_pages(const ReadPlan& plan, const std::shared_ptr<Fetch>& f);
  void pages_arrived(const std::shared_ptr<Fetch>& f, Bytes size);

  KvServiceConfig config_;
  ftl::KvFtl& ftl_;
  KvLookup& lookup_;
  FlashIo& flash_;
  PeerReads* peer_reads_;
  InternalLink& internal_link_;
  EngineIo& engine_;
  MapLookups& map_lookups_;
  ControllerDram& dram_;
  DramPort& port_;
  BusyHeads attended_;  ///< heads that the engine works on: they must not grow
  std::deque<std::function<bool()>> waiting_;
  bool retrying_ = false;
  std::uint64_t appending_ = 0;  ///< attentions whose appends the cores work on
  std::uint64_t booked_ = 0;     ///< appends whose flushes the cores have not started yet
  WriteBuffer& write_buffer_;
  std::vector<Done> drain_waiters_;
  KvFlushes flushes_;
};

}  // namespace csdsim::csd_model

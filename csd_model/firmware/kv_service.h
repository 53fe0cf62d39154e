// Firmware of the KV namespace: the vendor commands of nvme_if/spec/kv_command.h over the KV FTL and the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "csd_model/firmware/controller_dram.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/engine_io.h"
#include "csd_model/firmware/flash_io.h"
#include "csd_model/firmware/heads_in_use.h"
#include "csd_model/firmware/kv_lookup.h"
#include "csd_model/firmware/write_buffer.h"
#include "ftl/core/kv_ftl.h"
#include "nvme_if/sysc/command.h"

namespace csd_model {

struct KvServiceConfig {
  bool carried = false;         ///< bytes move with the commands
  bool engine_in_dram = false;  ///< what the engine keeps of a job is written to controller DRAM and read back
};

/// State changes when a command's data has arrived, in order of arrival. Tokens that an attend appends are flushed in
/// the background of everything else; a kv_append is complete when its full groups are in flash, or fit the write
/// buffer. A command that has to wait for flushes to make room in DRAM, for erases, or to append to heads for attention
/// that runs on them, waits here, and so do those behind it.
class KvService {
 public:
  KvService(const KvServiceConfig& config, csdsim::ftl::KvFtl& ftl, KvLookup& lookup, FlashIo& flash, EngineIo& engine,
            ControllerDram& dram, DramPort& port, WriteBuffer& write_buffer);

  void create(csdsim::nvme::Command& command, const csdsim::nvme::KvCreate& op);
  void free(csdsim::nvme::Command& command, const csdsim::nvme::KvFree& op);
  void fork(csdsim::nvme::Command& command, const csdsim::nvme::KvFork& op);
  void append(csdsim::nvme::Command& command, const csdsim::nvme::KvAppend& op);
  void attend(csdsim::nvme::Command& command, const csdsim::nvme::KvAttend& op);
  void score(csdsim::nvme::Command& command, const csdsim::nvme::KvScore& op);
  void fetch(csdsim::nvme::Command& command, const csdsim::nvme::KvFetch& op);

  /// Calls back when no flush is in flight: what was appended is in flash.
  void when_drained(std::function<void()> callback);

  /// Something outside has made room in controller DRAM: commands that wait for it try again.
  void retry_waiting();

 private:
  using Done = std::function<void()>;
  using Status = csdsim::nvme::Status;
  struct Attend;
  struct Score;
  struct Fetch;

  static Status to_status(csdsim::ftl::KvStatus status);
  /// Empty in timing runs.
  static std::span<const csdsim::Half> halves(const DramBuffer& buffer, csdsim::Bytes offset, std::size_t count);

  /// Runs `attempt` until it says that it is through: now, or whenever room may have been made, in order of arrival.
  void when_possible(std::function<bool()> attempt);

  /// Starts the flushes of an append; `done` is called when all of them are in flash.
  void start_flushes(std::vector<csdsim::ftl::FlushJob> jobs, Done done);
  void program(const std::shared_ptr<csdsim::ftl::FlushJob>& job, std::uint64_t number,
               const std::shared_ptr<Done>& done);
  void start_erases(const std::vector<csdsim::PageOp>& erases);
  void pages_settled();

  void read_section(csdsim::nvme::Command& command, csdsim::Bytes from, csdsim::Bytes to, DramBuffer& into,
                    csdsim::nvme::Command::Done done);
  DramBuffer cleared_buffer(csdsim::Bytes size);
  void write_section(csdsim::nvme::Command& command, csdsim::Bytes from, csdsim::Bytes to, const DramBuffer& buffer,
                     csdsim::nvme::Command::Done done);

  Status check_append(const csdsim::nvme::Command& command, const csdsim::nvme::KvAppend& op) const;
  void descriptors_arrived(const std::shared_ptr<Attend>& a);
  Status validate(const Attend& a) const;
  static bool appends_apart(const Attend& a);
  bool append_tokens(const std::shared_ptr<Attend>& a);
  void start_engine(const std::shared_ptr<Attend>& a);
  void run_jobs(csdsim::nvme::Command& command, csdsim::LayerId layer, std::vector<csdsim::engine::HeadJob> jobs,
                const std::vector<csdsim::nvme::AttendDescriptor>& descriptors, Done done);
  /// What the engine's buffer takes in and gives out for these heads.
  csdsim::Bytes engine_bytes(const std::vector<csdsim::engine::HeadJob>& jobs) const;
  /// Bytes of K and V of these heads that are in no flash page yet: the engine takes them from DRAM.
  csdsim::Bytes tail_bytes(const std::vector<csdsim::engine::HeadJob>& jobs) const;
  Status check_heads(const csdsim::nvme::AttendDescriptor& d, csdsim::LayerId layer, std::uint32_t head_dim) const;
  void unpin(csdsim::SequenceId sequence);
  Status validate(const Score& s) const;
  void start_engine(const std::shared_ptr<Score>& s);
  void fetch_lists_arrived(const std::shared_ptr<Fetch>& f);

  KvServiceConfig config_;
  csdsim::ftl::KvFtl& ftl_;
  KvLookup& lookup_;
  FlashIo& flash_;
  EngineIo& engine_;
  ControllerDram& dram_;
  DramPort& port_;
  HeadsInUse attended_;  ///< the engine works on them: they must not grow
  std::deque<std::function<bool()>> waiting_;
  bool retrying_ = false;
  std::uint64_t flushes_ = 0;
  WriteBuffer& write_buffer_;
  std::vector<Done> drain_waiters_;
};

}  // namespace csd_model

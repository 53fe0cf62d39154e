#include "csd_model/firmware/block_service.h"

#include <algorithm>
#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using nvme::Command;
using nvme::Status;
namespace status = nvme::status;

namespace {

std::vector<PlaneId> programmed_planes(const FlashGeometry& geometry, const ftl::IoPlan& plan) {
  std::vector<PlaneId> planes;
  for (const ftl::Phase& phase : plan.phases)
    for (const PageOp& op : phase)
      if (op.kind == PageOpKind::program) planes.push_back(geometry.plane_of(op.ppa));
  std::ranges::sort(planes);
  planes.erase(std::unique(planes.begin(), planes.end()), planes.end());
  return planes;
}

}  // namespace

Status BlockService::to_status(ftl::IoStatus s) {
  switch (s) {
    case ftl::IoStatus::ok:
      return status::success;
    case ftl::IoStatus::out_of_range:
      return status::lba_out_of_range;
    case ftl::IoStatus::out_of_space:
      return status::capacity_exceeded;
    case ftl::IoStatus::uncorrectable:
      return status::unrecovered_read_error;
    case ftl::IoStatus::read_only:
      return status::namespace_write_protected;
  }
  return status::internal_error;
}

BlockService::BlockService(const BlockServiceConfig& config, ftl::BlockFtl& ftl, ftl::DramBudget& dram, FlashIo& flash,
                           MapLookups& lookups, DramPort& port, InternalLink& link, ControllerDram& buffers,
                           WriteBuffer& write_buffer, bool carried)
    : config_(config),
      ftl_(ftl),
      dram_(dram),
      flash_(flash),
      load_(config.geometry, ftl.stripe_order(), config.times, config.shared_arrays),
      plans_(config.geometry, flash, config.packing),
      lookups_(lookups),
      port_(port),
      internal_link_(link),
      dram_buffers_(buffers),
      carried_(carried),
      write_buffer_(write_buffer) {
  if (ftl_.places_dynamically()) {
    ftl_.place_by(load_);
    plans_.count_in(load_);
  }
  write_buffer_.on_flush_request([this] {
    plans_.release();
    make_room();
  });
  plans_.on_written([this] { make_room(); });
  if (config_.flush.policy != FlushPolicy::immediate)
    ftl_.coalesce([this](PhysicalPageAddress ppa) { return plans_.holds(ppa); });
  if (config_.flush.policy == FlushPolicy::idle) idle_.emplace(AlarmRank::firmware, [this] { plans_.release(); });
}

void BlockService::mark(Command& command, RequestStage stage) {
  if (RequestStages* stages = command.stages()) stages->mark(stage, sim_time_now());
}

void BlockService::mark_plan(Command& command) const {
  RequestStages* const stages = command.stages();
  if (stages == nullptr) return;
  const FlashIo::Finished* const last = flash_.finished();
  // Time that the last batch does not account for was spent in earlier phases or waiting for the batch.
  if (last != nullptr) stages->add_flash(last->stages, last->dram, sim_time_now());
  stages->mark(RequestStage::plane_wait, sim_time_now());
}

std::uint64_t BlockService::pages(Bytes offset, Bytes length) const {
  const std::uint64_t first = offset.value / config_.geometry.page_size.value;
  return (offset.value + length.value - 1) / config_.geometry.page_size.value - first + 1;
}

template <class Work>
void BlockService::look_up(Command& command, Bytes offset, Bytes length, Work work) {
  if (lookups_.are_free()) return work();
  lookups_.run(pages(offset, length), command.stages(), std::move(work));
}

[[gnu::always_inline]] inline void BlockService::plan_read(Command& command, Bytes offset, Bytes length) {
  if (ftl_.map_is_cached()) return plan_mapped_read(command, offset, length);
  if (carried_) return plan_carried_read(command, offset, length);
  reads_.clear();
  const ftl::IoStatus planned = ftl_.read(offset, length, {}, reads_);
  nfc::FlashClient* client = &timed_reads_;
  std::uint64_t tag = TimedReads::tag_of(command);
  if (planned != ftl::IoStatus::ok) [[unlikely]] {
    client = this;
    tag = reading_.put({&command, planned, {}});
  }
  start_read(command, *client, tag);
}

[[gnu::noinline]] void BlockService::plan_carried_read(Command& command, Bytes offset, Bytes length) {
  reads_.clear();
  const std::uint64_t tag = reading_.take();
  Read& read = reading_[tag];
  read.command = &command;
  read.data = dram_buffers_.allocate(length);
  read.planned = ftl_.read(offset, length, read.data.bytes(), reads_);
  start_read(command, *this, tag);
}

/// Reads the pages of `reads_`. Those that cannot be corrected are read as well: the drive notices only then.
[[gnu::always_inline]] inline void BlockService::start_read(Command& command, nfc::FlashClient& client,
                                                            std::uint64_t tag) {
  if (!plans_.read(reads_, client, tag, command.stages() != nullptr)) client.flash_done(tag, {});
}

void BlockService::read(Command& command, const nvme::BlockRead& op) {
  note_command();
  const Bytes offset = config_.block_size * op.slba.value;
  const Bytes length = config_.block_size * op.blocks;
  // In most drives lookups take no time. A direct call is faster than a callback.
  if (lookups_.are_free()) return plan_read(command, offset, length);
  look_up(command, offset, length, [this, &command, offset, length] { plan_read(command, offset, length); });
}

/// After the flash, the data went into DRAM.
inline void BlockService::mark_flash(Command& command, const FlashStages& stages) const {
  RequestStages* const times = command.stages();
  if (times == nullptr) return;
  times->add_flash(stages, {}, sim_time_now());
  times->mark(RequestStage::dram, sim_time_now());
}

inline void BlockService::send_read(Command& command) {
  port_.stream(DramTraffic::host_data, command.io().data);
  command.complete_with_data_timing(command.io().data);
}

void BlockService::TimedReads::flash_done(std::uint64_t tag, const FlashStages& stages) {
  Command& command = command_of(tag);
  service.mark_flash(command, stages);
  if (!service.internal_link_.present()) return service.send_read(command);
  service.internal_link_.move(nvme::LinkDirection::to_host, command.io().data,
                              [this, &command] { service.send_read(command); });
}

void BlockService::end_read(std::uint64_t tag) {
  reading_[tag].data = DramBuffer{};
  reading_.give_back(tag);
}

void BlockService::send_data(std::uint64_t tag) {
  Read& read = reading_[tag];
  port_.stream(DramTraffic::host_data, read.command->io().data);
  read.command->complete_with_data(read.data.bytes(), [this, tag](Status) { end_read(tag); });
}

void BlockService::flash_done(std::uint64_t tag, const FlashStages& stages) {
  Read& read = reading_[tag];
  Command& command = *read.command;
  mark_flash(command, stages);
  if (read.planned != ftl::IoStatus::ok) {
    const Status failed = to_status(read.planned);
    end_read(tag);
    return command.complete(failed);
  }
  if (!internal_link_.present()) return send_data(tag);
  internal_link_.move(nvme::LinkDirection::to_host, command.io().data, [this, tag] { send_data(tag); });
}

/// Plans a read that may have to read map entries from flash first.
void BlockService::plan_mapped_read(Command& command, Bytes offset, Bytes length) {
  const auto data = std::make_shared<DramBuffer>(dram_buffers_.allocate(carried_ ? length : Bytes{}));
  ftl::IoPlan plan = ftl_.read(offset, length, data->bytes());
  const ftl::IoStatus planned = plan.status;
  run_plan(std::move(plan), [this, &command, length, data, planned] {
    if (planned != ftl::IoStatus::ok) return command.complete(to_status(planned));
    internal_link_.move(nvme::LinkDirection::to_host, length, [this, &command, length, data] {
      port_.stream(DramTraffic::host_data, length);
      if (!carried_) return command.complete_with_data_timing(length);
      command.complete_with_data(data->bytes(), [data](Status) {});
    });
  });
}

void BlockService::run_plan(ftl::IoPlan plan, std::function<void()> done) {
  const std::vector<PlaneId> planes =
      ftl_.collects_in_background() ? programmed_planes(config_.geometry, plan) : std::vector<PlaneId>{};
  plans_.run(std::move(plan.phases), std::move(done));
  collect_behind(planes);
}

void BlockService::write(Command& command, const nvme::BlockWrite& op) {
  note_command();
  const Bytes offset = config_.block_size * op.slba.value;
  const Bytes length = config_.block_size * op.blocks;
  const auto data = std::make_shared<DramBuffer>(dram_buffers_.allocate(carried_ ? length : Bytes{}));
  const auto arrived = [this, &command, offset, length, data](Status s) {
    if (!s.ok()) return command.complete(s);
    internal_link_.move(nvme::LinkDirection::to_drive, length, [=, this, &command] {
      mark(command, RequestStage::link);
      port_.move(DramTraffic::host_data, length, [=, this, &command] {
        mark(command, RequestStage::dram);
        look_up(command, offset, length, [=, this, &command] { await_room(command, offset, length, data); });
      });
    });
  };
  if (carried_) {
    command.read_host(Bytes{0}, data->bytes(), arrived);
  } else {
    command.read_host_timing(Bytes{0}, length, arrived);
  }
}

void BlockService::await_room(Command& command, Bytes offset, Bytes length, const std::shared_ptr<DramBuffer>& data) {
  write_buffer_.when_fits(length, [=, this, &command] {
    mark(command, RequestStage::plane_wait);
    start_write(command, offset, length, data);
  });
  make_room();
}

/// A write that does not fit the buffer has time to read what it keeps before its pages are placed.
void BlockService::start_write(Command& command, Bytes offset, Bytes length, const std::shared_ptr<DramBuffer>& data) {
  const bool through = length > write_buffer_.capacity() || !dram_.fits(length);
  if (!through) return plan_write(command, offset, length, data, false, nullptr);
  const auto kept = std::make_shared<ftl::KeptPages>(ftl_.keep(offset, length));
  if (kept->reads.empty()) return plan_write(command, offset, length, data, true, nullptr);
  plans_.run({kept->reads}, [=, this, &command] {
    mark_plan(command);
    plan_write(command, offset, length, data, true, kept.get());
    make_room();
  });
}

/// Starts writes that are held back when others wait for their room, and lets open word lines go when nothing else will
/// end the waiting.
void BlockService::make_room() {
  if (making_room_) return;  // what leaves the buffer admits others, which ask again
  making_room_ = true;
  while (through_ > 0 || write_buffer_.is_short()) {
    plans_.release();
    const bool holds_kv = write_buffer_.used() > dram_.used(ftl::DramUse::write_buffer);
    if (plans_.is_writing() || (through_ == 0 && holds_kv) || !plans_.leave_pages_open()) break;
  }
  making_room_ = false;
}

void BlockService::plan_write(Command& command, Bytes offset, Bytes length, const std::shared_ptr<DramBuffer>& data,
                              bool through, const ftl::KeptPages* kept) {
  ftl::IoPlan plan = ftl_.write(offset, length, data->bytes(), kept);
  if (plan.status != ftl::IoStatus::ok) {
    // The state has changed up to the failure: the operations planned so far have to run.
    const Status failed = to_status(plan.status);
    return plans_.run(std::move(plan.phases), [&command, failed] { command.complete(failed); });
  }
  const std::vector<PlaneId> planes =
      ftl_.collects_in_background() ? programmed_planes(config_.geometry, plan) : std::vector<PlaneId>{};
  std::vector<ftl::Phase> behind = plan.take_behind();
  if (through) {
    write_through(command, std::move(plan.phases), std::move(behind));
    return collect_behind(planes);
  }
  dram_.charge(ftl::DramUse::write_buffer, length);
  const std::uint64_t number = write_buffer_.enter(length);
  write_back(std::move(plan.phases), [this, length, number] {
    dram_.release(ftl::DramUse::write_buffer, length);
    write_buffer_.leave(number, length);
    if (dram_released_) dram_released_();
  });
  if (!behind.empty()) write_back(std::move(behind), [] {});
  collect_behind(planes);
  command.complete(status::success);
}

void BlockService::write_through(Command& command, std::vector<ftl::Phase> phases, std::vector<ftl::Phase> behind) {
  ++through_;
  const auto done = [this, &command] {
    --through_;
    mark_plan(command);
    command.complete(status::success);
  };
  plans_.run(std::move(phases), done, PlanRunner::Until::programs);
  if (!behind.empty()) plans_.run(std::move(behind), [] {});
}

void BlockService::write_back(std::vector<ftl::Phase> phases, PlanRunner::Done done) {
  if (phases.empty()) return done();  // all its pages were held already
  switch (config_.flush.policy) {
    case FlushPolicy::immediate:
      return plans_.run(std::move(phases), std::move(done), PlanRunner::Until::programs);
    case FlushPolicy::threshold:
      plans_.hold(std::move(phases), std::move(done), PlanRunner::Until::programs);
      if (write_buffer_.used() >= config_.flush.threshold) plans_.release();
      return;
    case FlushPolicy::idle:
      return plans_.hold(std::move(phases), std::move(done), PlanRunner::Until::programs);
  }
}

void BlockService::note_time() {
  if (ftl_.refreshes()) {
    ftl_.pass(sim_time_now());
    for (std::uint32_t plane = 0; plane < config_.geometry.planes(); ++plane)
      step_in_background(PlaneId{plane}, &ftl::BlockFtl::refresh_step, true);
  }
  if (!idle_) return;
  idle_->cancel();
  idle_->set(sim_time_now() + config_.flush.idle_time);
}

void BlockService::collect_behind(const std::vector<PlaneId>& planes) {
  for (const PlaneId plane : planes) step_in_background(plane, &ftl::BlockFtl::background_step, true);
}

/// A plane has one step at a time.
void BlockService::step_in_background(PlaneId plane, Step step, bool again) {
  if (collecting_.contains(plane)) return;
  std::optional<ftl::IoPlan> plan = (ftl_.*step)(plane);
  if (!plan) return;
  collecting_.insert(plane);
  plans_.run(std::move(plan->phases), [this, plane, step, again] {
    collecting_.erase(plane);
    if (again) step_in_background(plane, step, again);
  });
}

void BlockService::level_wear(PlaneId plane) { step_in_background(plane, &ftl::BlockFtl::wear_step, false); }

void BlockService::flush(Command& command) {
  plans_.release();
  plans_.leave_pages_open();
  make_room();
  write_buffer_.when_left([&command] {
    mark(command, RequestStage::plane_wait);
    command.complete(status::success);
  });
}

void BlockService::deallocate(Command& command, const nvme::DatasetManagement& op) {
  if (!op.deallocate) return command.complete(status::success);  // hints change nothing here
  const auto ranges = std::make_shared<std::vector<nvme::DsmRange>>(op.ranges);
  command.read_host(Bytes{0}, std::as_writable_bytes(std::span(*ranges)), [this, &command, ranges](Status s) {
    if (!s.ok()) return command.complete(s);
    mark(command, RequestStage::link);
    std::vector<ftl::Phase> phases;
    for (const nvme::DsmRange& range : *ranges) {
      const Bytes offset = config_.block_size * range.slba;
      const Bytes length = config_.block_size * range.length;
      if (range.slba > ftl_.capacity().value / config_.block_size.value || offset + length > ftl_.capacity())
        return command.complete(status::lba_out_of_range);
    }
    for (const nvme::DsmRange& range : *ranges) {
      if (range.length == 0) continue;
      ftl::IoPlan plan = ftl_.trim(config_.block_size * range.slba, config_.block_size * range.length);
      if (plan.status != ftl::IoStatus::ok) return command.complete(to_status(plan.status));
      std::move(plan.phases.begin(), plan.phases.end(), std::back_inserter(phases));
    }
    plans_.run(std::move(phases), [this, &command] {
      mark_plan(command);
      command.complete(status::success);
    });
  });
}

}  // namespace csdsim::csd_model

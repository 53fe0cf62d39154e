#include "csd_model/firmware/block_service.h"

#include <algorithm>
#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using nvme::Command;
using nvme::Status;
namespace status = nvme::status;

namespace {

PlaneIds programmed_planes(const FlashGeometry& geometry, const ftl::IoPlan& plan) {
  PlaneIds planes;
  std::uint64_t begin = 0, end = 0;  // pages of the plane that came last
  for (const ftl::Phase& phase : plan.phases)
    for (const PageOp& op : phase) {
      if (op.kind != PageOpKind::program || (op.ppa.value >= begin && op.ppa.value < end)) continue;
      planes.push_back(geometry.plane_of(op.ppa));
      begin = planes.back().value * geometry.pages_per_plane();
      end = begin + geometry.pages_per_plane();
    }
  std::ranges::sort(planes);
  planes.erase(std::unique(planes.begin(), planes.end()), planes.end());
  return planes;
}

/// The planes in which a plan may start background collection.
PlaneIds planes_to_collect(const ftl::BlockFtl& ftl, const FlashGeometry& geometry, const ftl::IoPlan& plan) {
  return ftl.collects_in_background() ? programmed_planes(geometry, plan) : PlaneIds{};
}

/// For commands whose stages are observed: the time since the last mark belongs to `stage`.
void mark(Command& command, RequestStage stage) {
  if (RequestStages* stages = command.stages()) stages->mark(stage, sim_time_now());
}

/// Appends the addresses of the pages that hold these bytes of the namespace; none for bytes that were never written.
void append_pages(const ftl::BlockFtl& ftl, Bytes offset, Bytes length, std::vector<PhysicalPageAddress>& pages) {
  const std::uint64_t size = ftl.page_size().value, end = (offset + length).value;
  for (std::uint64_t page = offset.value / size; page * size < end; ++page)
    if (const PhysicalPageAddress ppa = ftl.lookup(ftl::LogicalPage{page}); ppa.valid()) pages.push_back(ppa);
}

/// Number of pages that hold these bytes of the namespace.
std::uint64_t pages_of(const BlockServiceConfig& config, Bytes offset, Bytes length) {
  const std::uint64_t first = offset.value / config.geometry.page_size.value;
  return (offset.value + length.value - 1) / config.geometry.page_size.value - first + 1;
}

/// Logical blocks from `begin` up to `end`.
struct BlockRange {
  std::uint64_t begin, end;
};

/// The blocks of these ranges in the order of their addresses, each once.
std::vector<BlockRange> merged(const std::vector<nvme::DsmRange>& ranges) {
  std::vector<BlockRange> all;
  for (const nvme::DsmRange& range : ranges)
    if (range.length > 0) all.push_back({range.slba, range.slba + range.length});
  std::ranges::sort(all, {}, &BlockRange::begin);
  std::vector<BlockRange> apart;
  for (const BlockRange& range : all)
    if (apart.empty() || range.begin > apart.back().end)
      apart.push_back(range);
    else
      apart.back().end = std::max(apart.back().end, range.end);
  return apart;
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
      plans_(config.geometry, flash, config.packing, config.layout),
      lookups_(lookups),
      port_(port),
      internal_link_(link),
      dram_buffers_(buffers),
      carried_(carried),
      refreshes_(ftl.refreshes()),
      map_is_cached_(ftl.map_is_cached()),
      write_parts_(config.packing, config.geometry.page_size, config.block_size),
      long_reads_(flash, port, link, carried),
      write_buffer_(write_buffer) {
  connect();
  write_buffer_.on_turn([this] { take_turn(); });
  write_buffer_.on_flush_request([this] {
    plans_.release();
    make_room();
  });
  plans_.on_written([this] { make_room(); }, [this](const BufferedParts& parts) { parts_programmed(parts); });
  if (config_.flush.policy == FlushPolicy::idle) idle_.emplace(AlarmRank::firmware, [this] { plans_.release(); });
}

/// What the FTL is told by the code that runs its plans, and tells it.
void BlockService::connect() {
  if (ftl_.places_dynamically()) {
    ftl_.place_by(load_);
    plans_.count_in(load_);
  }
  // What capacitors protect need not be in flash before its older version goes.
  // Pages that collection moves stay in their plane, where the erase comes after them; those of a reclaim unit need
  // not.
  if (!config_.protected_buffer)
    ftl_.on_replaced([this](PhysicalPageAddress to, PhysicalPageAddress old) { plans_.note_replaced(to, old); },
                     config_.layout.has_value());
  if (config_.flush.policy != FlushPolicy::immediate)
    ftl_.coalesce([this](PhysicalPageAddress ppa) { return plans_.holds(ppa); });
}

FlashLedger::Found BlockService::lose_power() {
  FlashLedger::Found found = plans_.lose_power();
  load_ = ftl::PlaneLoad(config_.geometry, ftl_.stripe_order(), config_.times, config_.shared_arrays);
  collecting_.clear();
  long_reads_.forget();
  writing_ = {};
  arriving_ = {};
  through_ = 0;
  if (idle_) idle_->cancel();
  dram_.release(ftl::DramUse::write_buffer, dram_.used(ftl::DramUse::write_buffer));
  write_buffer_.forget();
  waiting_.clear();
  return found;
}

void BlockService::mark_plan(Command& command) const {
  RequestStages* const stages = command.stages();
  if (stages == nullptr) return;
  const FlashIo::Finished* const last = flash_.finished();
  // Time that the last batch does not account for was spent in earlier phases or waiting for the batch.
  if (last != nullptr) stages->add_flash(last->stages, last->dram, sim_time_now());
  stages->mark(RequestStage::plane_wait, sim_time_now());
}

template <class Work>
void BlockService::look_up(Command& command, Bytes offset, Bytes length, Work work) {
  if (lookups_.are_free()) return work();
  lookups_.run(pages_of(config_, offset, length), command.stages(), std::move(work));
}

[[gnu::always_inline]] inline void BlockService::plan_read(Command& command, Bytes offset, Bytes length) {
  if (map_is_cached_) return plan_mapped_read(command, offset, length);
  if (carried_) return plan_long_read(command, offset, length);
  reads_.clear();
  const ftl::IoStatus planned = ftl_.read(offset, length, {}, reads_);
  plans_.resolve(reads_);
  if (reads_.size() > 1 || planned != ftl::IoStatus::ok) [[unlikely]]
    return long_reads_.start(command, to_status(planned), {}, reads_);
  if (reads_.empty()) return timed_reads_.flash_done(TimedReads::tag_of(command), {});
  flash_.submit(reads_, timed_reads_, TimedReads::tag_of(command), command.stages() != nullptr);
}

/// Plans a read that may have to read map entries from flash first.
[[gnu::noinline]] void BlockService::plan_mapped_read(Command& command, Bytes offset, Bytes length) {
  run_plan(ftl_.find(offset, length), [this, &command, offset, length] {
    mark_plan(command);
    plan_long_read(command, offset, length);
  });
}

[[gnu::noinline]] void BlockService::plan_long_read(Command& command, Bytes offset, Bytes length) {
  reads_.clear();
  DramBuffer data = dram_buffers_.allocate(carried_ ? length : Bytes{});
  const ftl::IoStatus planned = ftl_.read(offset, length, data.bytes(), reads_);
  plans_.resolve(reads_);
  long_reads_.start(command, to_status(planned), std::move(data), reads_);
}

void BlockService::read(Command& command, const nvme::BlockRead& op) {
  note_command();
  const Bytes offset = config_.block_size * op.slba.value;
  const Bytes length = config_.block_size * op.blocks;
  if (op.fua && is_volatile()) [[unlikely]]
    return read_durable(command, offset, length);
  // In most drives lookups take no time. A direct call is faster than a callback.
  if (lookups_.are_free()) return plan_read(command, offset, length);
  look_up(command, offset, length, [this, &command, offset, length] { plan_read(command, offset, length); });
}

[[gnu::noinline]] void BlockService::read_durable(Command& command, Bytes offset, Bytes length) {
  look_up(command, offset, length, [this, &command, offset, length] {
    std::vector<PhysicalPageAddress> pages;
    append_pages(ftl_, offset, length, pages);
    program(pages, [this, &command, offset, length] {
      mark(command, RequestStage::plane_wait);
      plan_read(command, offset, length);
    });
  });
}

inline void BlockService::send_read(Command& command) {
  port_.stream(DramTraffic::host_data, command.io().data);
  command.complete_with_data_timing(Bytes{0}, command.io().data);
}

void BlockService::TimedReads::flash_done(std::uint64_t tag, const FlashStages& stages) {
  Command& command = command_of(tag);
  mark_read(command, stages);
  if (!service.internal_link_.present()) return service.send_read(command);
  service.internal_link_.move(nvme::LinkDirection::to_host, command.io().data,
                              [this, &command] { service.send_read(command); });
}

/// Runs the phases of a plan, and after them those of the collection that `done` does not wait for.
void BlockService::run_then_collect(std::vector<ftl::Phase> phases, std::vector<ftl::Phase> behind,
                                    PlanRunner::Done done, PlanRunner::Until until) {
  plans_.run(std::move(phases), std::move(done), until);
  if (!behind.empty()) plans_.run(std::move(behind), [] {});
}

void BlockService::run_plan(ftl::IoPlan plan, std::function<void()> done) {
  const PlaneIds planes = planes_to_collect(ftl_, config_.geometry, plan);
  plans_.run(std::move(plan.phases), std::move(done));
  collect_behind(planes);
}

/// Empty in timing runs.
std::span<std::byte> BlockService::bytes_of(const Part& part) {
  const std::span<std::byte> all = writing_[part.write].data.bytes();
  return all.empty() ? all : all.subspan(part.begin.value, part.length.value);
}

void BlockService::write(Command& command, const nvme::BlockWrite& op) {
  note_command();
  const Bytes offset = config_.block_size * op.slba.value;
  const Bytes length = config_.block_size * op.blocks;
  const std::uint32_t slot = writing_.take();
  Write& write = writing_[slot];
  write.command = &command;
  write.offset = offset;
  write.parts = 0;
  write.status = status::success;
  write.handle = ftl::PlacementHandle{op.handle};
  write.plane.reset();
  if (op.reclaim_group != nvme::kAnyReclaimGroup) [[unlikely]]
    write.plane = PlaneId{op.reclaim_group};
  write.durable = op.fua && is_volatile();
  write.pages.clear();
  write.data = dram_buffers_.allocate(carried_ ? length : Bytes{});
  if (!carried_) ftl_.prefetch_write(offset, {});
  for (Bytes begin; begin < length;) {
    const Bytes end = std::min(write_parts_.end(offset + begin) - offset, length);
    const Part part{slot, begin, end - begin};
    ++write.parts;
    if (carried_)
      command.read_host(begin, bytes_of(part), [this, part](Status s) { part_arrived(part, s); });
    else
      command.read_host_timing(begin, part.length, *this, arriving_.put(part));
    begin = end;
  }
}

void BlockService::part_arrived(const Part& part, Status s) {
  if (!s.ok()) return end_part(part, s);
  if (!carried_ && waiting_.empty()) ftl_.prefetch_write(position(part), part.length);
  internal_link_.move(nvme::LinkDirection::to_drive, part.length, [this, part] {
    mark(*writing_[part.write].command, RequestStage::link);
    port_.move(DramTraffic::host_data, part.length, [this, part] {
      Command& command = *writing_[part.write].command;
      mark(command, RequestStage::dram);
      look_up(command, position(part), part.length, [this, part] { await_room(part); });
    });
  });
}

void BlockService::await_room(const Part& part) {
  waiting_.push(part);
  write_buffer_.ask(part.length);
  make_room();
}

/// The write buffer has room for the first part that waits: plans its write. A part larger than the buffer goes to the
/// flash directly; the bytes that it keeps of existing pages are read first.
void BlockService::take_turn() {
  const Part part = waiting_.take();
  if (!carried_) waiting_.look_ahead(1, [this](const Part& p) { ftl_.prefetch_write(position(p), p.length); });
  mark(*writing_[part.write].command, RequestStage::plane_wait);
  if (const Status failed = writing_[part.write].status; !failed.ok()) return end_part(part, failed);
  const bool through = part.length > write_buffer_.capacity() || !dram_.fits(part.length);
  if (write_in_line(part, through)) return;
  if (!through) return plan_write(part, false, nullptr);
  ftl::KeptPages keep = ftl_.keep(position(part), part.length);
  if (keep.reads.empty()) return plan_write(part, true, nullptr);
  const auto kept = std::make_shared<ftl::KeptPages>(std::move(keep));
  plans_.run({kept->reads}, [this, part, kept] {
    mark_plan(*writing_[part.write].command);
    plan_write(part, true, kept.get());
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

/// Parts that are in flash leave the write buffer, one after the other. They leave together where nobody can tell:
/// between two of them others may enter, and nothing else happens.
void BlockService::parts_programmed(const BufferedParts& parts) {
  const bool together = parts.count > 1 && plans_.is_writing() && through_ == 0 &&
                        config_.flush.policy == FlushPolicy::immediate && !write_buffer_.is_watched() &&
                        !(dram_awaited_ && dram_awaited_());
  const std::uint32_t entries = together ? parts.count : 1;
  for (std::uint32_t left = parts.count; left > 0; left -= entries) {
    dram_.release(ftl::DramUse::write_buffer, parts.size * entries);
    write_buffer_.leave(parts.group, parts.size * entries, entries);
    if (dram_released_) dram_released_();
  }
}

/// The short way for most parts: an open word line takes them, and others fill it; or they are a word line of one page.
/// Takes along parts behind it whose turn it is as well. False: the part needs a plan.
bool BlockService::write_in_line(const Part& part, bool through) {
  const Write& of = writing_[part.write];
  const bool packs = config_.packing.line() > 1;
  if (of.plane || of.durable || (through && (packs || is_volatile()))) return false;
  // Parts that wait behind this one enter with it, as many as the buffer has room for.
  std::uint64_t most = 1;
  if (packs && through_ == 0 && !write_buffer_.is_watched()) {
    most = std::min<std::uint64_t>(write_buffer_.room(part.length), config_.packing.line_pages());
    if (!dram_.fits(part.length * most)) most = 1;
  }
  const std::uint32_t behind = waiting_.alike_behind(part, most - 1);
  std::optional<ftl::BlockFtl::LinePart> line = ftl_.write_in_line(position(part), part.length, of.handle, 1 + behind);
  if (!line) return false;
  const std::uint32_t count = line->writes;
  if (through) {
    ++through_;
    plans_.program(*line->program, line->plane, line->replaced, [this, part] { end_through(part); });
    if (!line->behind.empty()) plans_.run(std::move(line->behind), [] {});
  } else {
    waiting_.drop(count - 1);
    waiting_.look_ahead(count - 1, [this](const Part& p) { ftl_.prefetch_write(position(p), p.length); });
    write_buffer_.answer(count - 1);
    const Bytes size = part.length * count;
    dram_.charge(ftl::DramUse::write_buffer, size);
    const BufferedParts parts{part.length, write_buffer_.enter(size, count), count};
    if (line->program)
      plans_.program(*line->program, line->plane, line->replaced, [this, parts] { parts_programmed(parts); });
    else
      plans_.join_line(line->first, parts);
    if (!line->behind.empty()) write_back(std::move(line->behind), [] {});
  }
  if (ftl_.wants_background_step(line->plane)) step_in_background(line->plane, &ftl::BlockFtl::background_step, true);
  if (!through) end_part(part, status::success, count);
  return true;
}

void BlockService::plan_write(const Part& part, bool through, const ftl::KeptPages* kept) {
  const Write& of = writing_[part.write];
  ftl::IoPlan plan = ftl_.write(position(part), part.length, bytes_of(part), kept, of.handle, of.plane);
  if (plan.status != ftl::IoStatus::ok) {
    // The state has changed up to the failure: the operations planned so far have to run.
    const Status failed = to_status(plan.status);
    return plans_.run(std::move(plan.phases), [this, part, failed] { end_part(part, failed); });
  }
  const PlaneIds planes = planes_to_collect(ftl_, config_.geometry, plan);
  std::vector<ftl::Phase> behind = plan.take_behind();
  Write& write = writing_[part.write];
  if (through && is_volatile()) write.durable = true;
  if (write.durable) append_pages(ftl_, position(part), part.length, write.pages);
  if (through) {
    write_through(part, std::move(plan.phases), std::move(behind));
    return collect_behind(planes);
  }
  dram_.charge(ftl::DramUse::write_buffer, part.length);
  const BufferedParts entry{part.length, write_buffer_.enter(part.length), 1};
  write_back(std::move(plan.phases), [this, entry] { parts_programmed(entry); });
  if (!behind.empty()) write_back(std::move(behind), [] {});
  collect_behind(planes);
  end_part(part, status::success);
}

void BlockService::write_through(const Part& part, std::vector<ftl::Phase> phases, std::vector<ftl::Phase> behind) {
  if (writing_[part.write].durable) {
    run_then_collect(
        std::move(phases), std::move(behind), [] {}, PlanRunner::Until::operations);
    return end_part(part, status::success);
  }
  ++through_;
  run_then_collect(
      std::move(phases), std::move(behind), [this, part] { end_through(part); }, PlanRunner::Until::programs);
}

/// A part that goes to the flash directly is there.
void BlockService::end_through(const Part& part) {
  --through_;
  mark_plan(*writing_[part.write].command);
  end_part(part, status::success);
}

/// A part, with `parts` - 1 after it, is in the buffer or in flash, or has failed.
void BlockService::end_part(const Part& part, Status s, std::uint32_t parts) {
  Write& write = writing_[part.write];
  if (write.status.ok()) write.status = s;
  if ((write.parts -= parts) > 0) return;
  Command& command = *write.command;
  const Status ended = write.status;
  const std::vector<PhysicalPageAddress> pages = std::move(write.pages);
  write.data = DramBuffer{};
  writing_.give_back(part.write);
  if (pages.empty()) return command.complete(ended);
  program(pages, [&command, ended] {
    mark(command, RequestStage::plane_wait);
    command.complete(ended);
  });
}

/// Programs those of these pages that are still in DRAM, and calls back when all are in flash.
void BlockService::program(const std::vector<PhysicalPageAddress>& pages, std::function<void()> done) {
  plans_.release();
  fill_lines(pages);
  plans_.when_programmed(pages, std::move(done));
}

/// Fills the word lines of these pages with empty units, and programs them.
void BlockService::fill_lines(const std::vector<PhysicalPageAddress>& pages) {
  ftl::IoPlan plan = ftl_.fill_lines(pages);
  if (plan.phases.empty()) return;
  const PlaneIds planes = planes_to_collect(ftl_, config_.geometry, plan);
  std::vector<ftl::Phase> behind = plan.take_behind();
  run_then_collect(
      std::move(plan.phases), std::move(behind), [] {}, PlanRunner::Until::operations);
  collect_behind(planes);
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
  if (refreshes_) {
    ftl_.pass(sim_time_now());
    for (std::uint32_t plane = 0; plane < config_.geometry.planes(); ++plane)
      step_in_background(PlaneId{plane}, &ftl::BlockFtl::refresh_step, true);
  }
  if (!idle_) return;
  idle_->cancel();
  idle_->set(sim_time_now() + config_.flush.idle_time);
}

void BlockService::collect_behind(const PlaneIds& planes) {
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
  if (config_.protected_buffer) return command.complete(status::success);
  drain([&command] {
    mark(command, RequestStage::plane_wait);
    command.complete(status::success);
  });
}

void BlockService::drain(std::function<void()> done) {
  plans_.release();
  fill_lines(plans_.open_lines());
  const auto left = std::make_shared<int>(2);
  const auto part_done = [left, done = std::move(done)] {
    if (--*left == 0) done();
  };
  save_trims(part_done);
  plans_.when_programmed(plans_.lines_let_go(), [this, part_done] { write_buffer_.when_left(part_done); });
}

/// Programs the trims that the reserved area has not got yet. It takes the planes in turn.
void BlockService::save_trims(const std::function<void()>& done) {
  if (!ftl_.has_unsaved_trims()) return done();
  const FlashGeometry& flash = config_.layout ? config_.layout->flash() : config_.geometry;
  const PlaneId plane{reserved_programs_++ % flash.planes()};
  plans_.program_reserved(plane, [this, trims = ftl_.trims(), done] {
    ftl_.trims_saved(trims);
    done();
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
    for (const BlockRange& range : merged(*ranges)) {
      ftl::IoPlan plan = ftl_.trim(config_.block_size * range.begin, config_.block_size * (range.end - range.begin));
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

#include "csd_model/firmware/kv_service.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fp16.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using nvme::AttendDescriptor;
using nvme::Command;
namespace status = nvme::status;

namespace {

Bytes program_bytes(const ftl::FlushJob& job) {
  Bytes sum;
  for (const PageOp& op : job.programs) sum += Bytes{op.channel_bytes};
  return sum;
}

nvme::KvLossRecord record_of(const ftl::KvLoss& loss) {
  const auto content = [&]() -> std::uint8_t {
    switch (loss.page.kind) {
      case ftl::PageKind::token_v:
        return 1;
      case ftl::PageKind::token_kv:
        return 2;
      case ftl::PageKind::embedding:
        return 3;
      default:
        return 0;
    }
  };
  return {.sequence = loss.page.key.sequence.value,
          .first_token = loss.first_token,
          .tokens = loss.tokens,
          .layer = static_cast<std::uint16_t>(loss.page.key.layer.value),
          .first_head = static_cast<std::uint16_t>(loss.page.key.head.value),
          .head_count = static_cast<std::uint16_t>(loss.heads),
          .content = content()};
}

}  // namespace

nvme::Status KvService::to_status(ftl::KvStatus s) {
  switch (s) {
    case ftl::KvStatus::ok:
      return status::success;
    case ftl::KvStatus::bad_sequence:
      return status::kv_unknown_sequence;
    case ftl::KvStatus::out_of_dram:
      return status::kv_out_of_dram;
    case ftl::KvStatus::out_of_space:
      return status::kv_out_of_flash;
    case ftl::KvStatus::read_only:
      return status::namespace_write_protected;
    case ftl::KvStatus::bad_shape:
      return status::kv_bad_parameters;
    case ftl::KvStatus::bad_layer:
      return status::kv_bad_layer;
    case ftl::KvStatus::bad_head:
      return status::kv_bad_head;
    case ftl::KvStatus::bad_token:
      return status::kv_bad_token;
    case ftl::KvStatus::bad_data:
      return status::kv_shape_mismatch;
    case ftl::KvStatus::busy:
      break;
  }
  return status::internal_error;
}

void KvService::fail_lost(Command& command, const std::set<ftl::KvLoss>& losses, std::size_t descriptors) {
  const auto records = std::make_shared<std::vector<nvme::KvLossRecord>>();
  for (const ftl::KvLoss& loss : losses)
    if (records->size() < descriptors) records->push_back(record_of(loss));
  const auto lost = static_cast<std::uint32_t>(losses.size());
  command.write_host(Bytes{0}, std::as_bytes(std::span(*records)), [&command, records, lost](Status s) {
    s.ok() ? command.complete(status::unrecovered_read_error, lost) : command.complete(s);
  });
}

std::span<const Half> KvService::halves(const DramBuffer& buffer, Bytes offset, std::size_t count) {
  if (buffer.empty()) return {};
  return {buffer.as<const Half>(offset), count};
}

KvService::KvService(const KvServiceConfig& config, ftl::KvFtl& ftl, KvLookup& lookup, FlashIo& flash,
                     PeerReads* peer_reads, InternalLink& link, EngineIo& engine, MapLookups& map_lookups,
                     ControllerDram& dram, DramPort& port, WriteBuffer& write_buffer)
    : config_(config),
      ftl_(ftl),
      lookup_(lookup),
      flash_(flash),
      peer_reads_(peer_reads),
      internal_link_(link),
      engine_(engine),
      map_lookups_(map_lookups),
      dram_(dram),
      port_(port),
      write_buffer_(write_buffer) {}

// Waiting for room, and what happens in the background.

void KvService::when_possible(std::function<bool()> attempt) {
  if (waiting_.empty() && attempt()) return;
  waiting_.push_back(std::move(attempt));
  write_buffer_.request_flush();
}

void KvService::retry_waiting() {
  if (retrying_) return;  // an attempt that succeeds may settle pages itself
  retrying_ = true;
  while (!waiting_.empty() && waiting_.front()()) waiting_.pop_front();
  retrying_ = false;
}

void KvService::pages_settled() {
  retry_waiting();
  notify_drained();
}

void KvService::notify_drained() {
  if (flushes_ + booked_ != 0) return;
  for (const Done& waiter : std::exchange(drain_waiters_, {})) waiter();
}

void KvService::when_drained(std::function<void()> callback) {
  if (flushes_ + booked_ == 0 && waiting_.empty()) return callback();
  drain_waiters_.push_back(std::move(callback));
}

void KvService::start_flushes(std::vector<ftl::FlushJob> jobs, Done done) {
  if (jobs.empty()) return done();
  const auto left = std::make_shared<std::size_t>(jobs.size());
  const auto shared_done = std::make_shared<Done>([left, done = std::move(done)] {
    if (--*left == 0) done();
  });
  for (ftl::FlushJob& each : jobs) {
    ++flushes_;
    const std::uint64_t number = write_buffer_.enter(program_bytes(each));
    const auto job = std::make_shared<ftl::FlushJob>(std::move(each));
    map_lookups_.spend(config_.firmware.of(*job),
                       [this, job, number, shared_done] { start_flush(job, number, shared_done); });
  }
}

void KvService::start_flush(const std::shared_ptr<ftl::FlushJob>& job, std::uint64_t number,
                            const std::shared_ptr<Done>& done) {
  if (job->reads.empty()) return program(job, number, done);
  flash_.submit(job->reads, [this, job, number, done] { program(job, number, done); });
}

void KvService::program(const std::shared_ptr<ftl::FlushJob>& job, std::uint64_t number,
                        const std::shared_ptr<Done>& done) {
  flash_.submit(job->programs, [this, job, number, done] {
    --flushes_;
    write_buffer_.leave(number, program_bytes(*job));
    start_erases(ftl_.flush_done(job->id));
    (*done)();
    pages_settled();
  });
}

void KvService::start_erases(const std::vector<PageOp>& erases) {
  erases_ += erases.size();
  for (const PageOp& erase : erases)
    flash_.submit({&erase, 1}, [this, ppa = erase.ppa] {
      --erases_;
      ftl_.erase_done(ppa);
      if (erased_) erased_(ppa);
      pages_settled();
    });
}

void KvService::unpin(SequenceId sequence) {
  start_erases(ftl_.unpin(sequence));
  retry_waiting();
}

/// Moves bytes [from, to) of the command's buffer into controller DRAM; timing runs take the time and move nothing.
/// With an engine behind the switch, only the `kept` bytes of K and V among them go on to the SSD controller.
void KvService::read_section(Command& command, Bytes from, Bytes to, Bytes kept, DramBuffer& into, Command::Done done) {
  Command::Done stored = std::move(done);
  if (internal_link_.present())
    stored = [this, kept, then = std::move(stored)](Status s) mutable {
      internal_link_.move(nvme::LinkDirection::to_drive, s.ok() ? kept : Bytes{},
                          [then = std::move(then), s] { then(s); });
    };
  if (port_.limited())
    stored = [this, size = to - from, then = std::move(stored)](Status s) mutable {
      port_.move(DramTraffic::host_data, size, [then = std::move(then), s] { then(s); });
    };
  if (!config_.carried) return command.read_host_timing(from, to - from, std::move(stored));
  into = dram_.allocate(to - from);
  command.read_host(from, into.bytes(), std::move(stored));
}

/// A buffer for an answer. It is zeroed because padding of the answer must not reveal data of other commands.
DramBuffer KvService::cleared_buffer(Bytes size) {
  DramBuffer buffer = dram_.allocate(size);
  std::ranges::fill(buffer.bytes(), std::byte{0});
  return buffer;
}

void KvService::write_section(Command& command, Bytes from, Bytes to, const DramBuffer& buffer, Command::Done done) {
  port_.stream(DramTraffic::host_data, to - from);
  if (!config_.carried) return command.write_host_timing(from, to - from, std::move(done));
  command.write_host(from, buffer.bytes(), std::move(done));
}

// Commands without attention.

void KvService::create(Command& command, const nvme::KvCreate& op) {
  when_possible([this, &command, op] {
    const ftl::KvStatus s =
        ftl_.create_sequence(op.sequence, {.layers = op.layers,
                                           .kv_heads = op.kv_heads,
                                           .head_dim = op.head_dim,
                                           .max_tokens = op.max_tokens,
                                           .component_major = (op.flags & nvme::create_flag::token_major) == 0,
                                           .format = nvme::format_of(op.flags, op.head_dim)});
    if (s == ftl::KvStatus::busy) return false;  // freed, and its pages are still in use
    command.complete(s == ftl::KvStatus::bad_sequence ? status::kv_sequence_exists : to_status(s));
    return true;
  });
}

void KvService::free(Command& command, const nvme::KvFree& op) {
  when_possible([this, &command, op] {
    const ftl::FreeResult result = ftl_.free_sequence(op.sequence);
    start_erases(result.erases);
    command.complete(to_status(result.status));
    return true;
  });
}

void KvService::fork(Command& command, const nvme::KvFork& op) {
  when_possible([this, &command, op] {
    const bool known = ftl_.check({op.parent, LayerId{0}, KvHead{0}}) == ftl::KvStatus::ok;
    const ftl::KvStatus s = ftl_.fork_sequence(op.parent, op.child);
    if (s == ftl::KvStatus::busy) return false;  // the child is freed, and its pages are still in use; or DRAM is full
    command.complete(known && s == ftl::KvStatus::bad_sequence ? status::kv_sequence_exists : to_status(s));
    return true;
  });
}

nvme::Status KvService::check_append(const Command& command, const nvme::KvAppend& op) const {
  const ftl::KvStatus s = ftl_.check({op.sequence, op.layer, op.first_head});
  if (s != ftl::KvStatus::ok) return to_status(s);
  const bool fits = nvme::append_words(op, command.io().data) == ftl_.layout(op.sequence).row_words();
  return fits ? status::success : status::kv_shape_mismatch;
}

void KvService::append(Command& command, const nvme::KvAppend& op) {
  store_rows(command, op, [this, op](std::span<const Half> k, std::span<const Half> v) {
    return ftl_.append(op.sequence, op.layer, op.first_token, op.token_count, {op.first_head, op.head_count}, k, v);
  });
}

void KvService::rewrite(Command& command, const nvme::KvRewrite& op) {
  store_rows(command, op, [this, op](std::span<const Half> k, std::span<const Half> v) {
    return ftl_.rewrite(op.sequence, op.layer, op.first_token, op.token_count, {op.first_head, op.head_count}, k, v);
  });
}

/// Brings the rows of the command to controller DRAM and hands them to `store`, again whenever it had to wait.
void KvService::store_rows(Command& command, const nvme::KvAppend& op, Store store) {
  if (const Status s = check_append(command, op); !s.ok()) return command.complete(s);
  const auto data = std::make_shared<DramBuffer>();
  const Bytes size = command.io().data;
  read_section(command, Bytes{0}, size, size, *data, [this, &command, op, data, store = std::move(store)](Status s) {
    if (!s.ok()) return command.complete(s);
    when_possible([this, &command, op, data, store] {
      // During the transfer the sequence may have been freed, or replaced by another one of the same number.
      if (const Status gone = check_append(command, op); !gone.ok()) {
        command.complete(gone);
        return true;
      }
      if (attended_.overlap({op.sequence, op.layer}, {op.first_head, op.head_count})) return false;
      ftl_.pass(sim_time_now());
      const std::size_t elements = std::size_t{op.head_count} * op.token_count * ftl_.layout(op.sequence).row_words();
      return stored(command, op.head_count,
                    store(halves(*data, Bytes{0}, elements), halves(*data, Bytes{elements * sizeof(Half)}, elements)));
    });
  });
}

/// Starts what the FTL wants done for so many heads. Returns false while the command has to wait.
bool KvService::stored(Command& command, std::uint32_t heads, ftl::AppendResult result) {
  start_erases(result.erases);
  if (result.status != ftl::KvStatus::ok) {
    start_flushes(std::move(result.jobs), [] {});
    if (result.status == ftl::KvStatus::busy) return false;
    command.complete(to_status(result.status));
    return true;
  }
  // The rows are in the FTL in the order of arrival; the cores may work on several commands.
  const auto jobs = std::make_shared<std::vector<ftl::FlushJob>>(std::move(result.jobs));
  ++booked_;
  map_lookups_.spend(config_.firmware.append * std::int64_t{heads}, [this, &command, jobs] {
    --booked_;
    Bytes programs;
    for (const ftl::FlushJob& job : *jobs) programs += program_bytes(job);
    if (write_buffer_.fits(programs)) {
      start_flushes(std::move(*jobs), [] {});
      command.complete(status::success);
    } else {
      start_flushes(std::move(*jobs), [&command] { command.complete(status::success); });
    }
    notify_drained();
  });
  return true;
}

nvme::Status KvService::check_heads(const AttendDescriptor& d, LayerId layer, std::uint32_t head_dim) const {
  if (d.head_count == 0) return status::kv_bad_head;
  const std::uint32_t last = std::uint32_t{d.first_head} + d.head_count - 1;
  for (const std::uint32_t head : {std::uint32_t{d.first_head}, last})
    if (const ftl::KvStatus s = ftl_.check({SequenceId{d.sequence}, layer, KvHead{head}}); s != ftl::KvStatus::ok)
      return to_status(s);
  if (ftl_.shape(SequenceId{d.sequence}).head_dim != head_dim) return status::kv_shape_mismatch;
  return status::success;
}

}  // namespace csdsim::csd_model

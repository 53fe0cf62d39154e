#include "csd_model/firmware/kv_service.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fp16.h"

namespace csd_model {

using namespace csdsim;
using nvme::AttendDescriptor;
using nvme::Command;
namespace status = nvme::status;

namespace {

nvme::Status to_status(ftl::KvStatus s) {
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

Bytes program_bytes(const ftl::FlushJob& job) {
  Bytes sum;
  for (const PageOp& op : job.programs) sum += Bytes{op.channel_bytes};
  return sum;
}

HeadsInUse::Layer layer_of(const AttendDescriptor& d, LayerId layer) { return {SequenceId{d.sequence}, layer}; }
ftl::HeadRange heads_of(const AttendDescriptor& d) { return {KvHead{d.first_head}, d.head_count}; }

std::span<const Half> halves(const DramBuffer& buffer, Bytes offset, std::size_t count) {
  if (buffer.empty()) return {};
  return {buffer.as<const Half>(offset), count};
}

}  // namespace

KvService::KvService(const KvServiceConfig& config, ftl::KvFtl& ftl, KvLookup& lookup, FlashIo& flash, EngineIo& engine,
                     ControllerDram& dram, DramPort& port, WriteBuffer& write_buffer)
    : config_(config),
      ftl_(ftl),
      lookup_(lookup),
      flash_(flash),
      engine_(engine),
      dram_(dram),
      port_(port),
      write_buffer_(write_buffer) {}

// Waiting for room, and what happens in the background.

void KvService::when_possible(std::function<bool()> attempt) {
  if (waiting_.empty() && attempt()) return;
  waiting_.push_back(std::move(attempt));
  write_buffer_.urge();
}

void KvService::retry_waiting() {
  if (retrying_) return;  // an attempt that succeeds may settle pages itself
  retrying_ = true;
  while (!waiting_.empty() && waiting_.front()()) waiting_.pop_front();
  retrying_ = false;
}

void KvService::pages_settled() {
  retry_waiting();
  if (flushes_ != 0) return;
  for (const Done& waiter : std::exchange(drain_waiters_, {})) waiter();
}

void KvService::when_drained(std::function<void()> callback) {
  if (flushes_ == 0 && waiting_.empty()) return callback();
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
    if (job->reads.empty()) {
      program(job, number, shared_done);
    } else {
      flash_.submit(job->reads, [this, job, number, shared_done] { program(job, number, shared_done); });
    }
  }
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
  for (const PageOp& erase : erases)
    flash_.submit({&erase, 1}, [this, ppa = erase.ppa] {
      ftl_.erase_done(ppa);
      pages_settled();
    });
}

void KvService::unpin(SequenceId sequence) {
  start_erases(ftl_.unpin(sequence));
  retry_waiting();
}

/// Moves bytes [from, to) of the command's buffer into controller DRAM; only in time in timing runs.
void KvService::read_section(Command& command, Bytes from, Bytes to, DramBuffer& into, Command::Done done) {
  Command::Done stored = std::move(done);
  if (port_.limited())
    stored = [this, size = to - from, then = std::move(stored)](Status s) mutable {
      port_.move(DramTraffic::host_data, size, [then = std::move(then), s] { then(s); });
    };
  if (!config_.carried) return command.read_host_timing(from, to - from, std::move(stored));
  into = dram_.allocate(to - from);
  command.read_host(from, into.bytes(), std::move(stored));
}

/// For an answer: padding between and behind its sections must not show what another command left there.
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
                                           .component_major = (op.flags & nvme::create_flag::token_major) == 0});
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
  const bool fits = nvme::append_head_dim(op, command.io().data) == ftl_.shape(op.sequence).head_dim;
  return fits ? status::success : status::kv_shape_mismatch;
}

void KvService::append(Command& command, const nvme::KvAppend& op) {
  if (const Status s = check_append(command, op); !s.ok()) return command.complete(s);
  const auto data = std::make_shared<DramBuffer>();
  read_section(command, Bytes{0}, command.io().data, *data, [this, &command, op, data](Status s) {
    if (!s.ok()) return command.complete(s);
    when_possible([this, &command, op, data] {
      // The sequence may have gone while the data was on its way, or be another one by now.
      if (const Status gone = check_append(command, op); !gone.ok()) {
        command.complete(gone);
        return true;
      }
      if (attended_.overlap({op.sequence, op.layer}, {op.first_head, op.head_count})) return false;
      const std::size_t elements = std::size_t{op.head_count} * op.token_count * ftl_.shape(op.sequence).head_dim;
      ftl::AppendResult result =
          ftl_.append(op.sequence, op.layer, op.first_token, op.token_count, {op.first_head, op.head_count},
                      halves(*data, Bytes{0}, elements), halves(*data, Bytes{elements * sizeof(Half)}, elements));
      start_erases(result.erases);
      if (result.status != ftl::KvStatus::ok) {
        start_flushes(std::move(result.jobs), [] {});
        if (result.status == ftl::KvStatus::busy) return false;
        command.complete(to_status(result.status));
        return true;
      }
      Bytes programs;
      for (const ftl::FlushJob& job : result.jobs) programs += program_bytes(job);
      if (write_buffer_.fits(programs)) {
        start_flushes(std::move(result.jobs), [] {});
        command.complete(status::success);
      } else {
        start_flushes(std::move(result.jobs), [&command] { command.complete(status::success); });
      }
      return true;
    });
  });
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

// Attend.

struct KvService::Attend {
  Command* command = nullptr;
  nvme::KvAttend op;
  nvme::AttendLayout layout;
  std::vector<AttendDescriptor> descriptors;
  DramBuffer buffer;         ///< the command's buffer from section q on; empty in timing runs
  std::size_t appended = 0;  ///< descriptors whose tokens are in the cache
  DramBuffer out;            ///< section out; empty in timing runs

  /// Section offsets relative to `buffer`.
  Bytes in_buffer(Bytes section) const { return section - layout.q; }
};

void KvService::attend(Command& command, const nvme::KvAttend& op) {
  const auto a = std::make_shared<Attend>();
  a->command = &command;
  a->op = op;
  a->layout = nvme::attend_layout(op);
  a->descriptors.resize(op.n);
  command.read_host(Bytes{0}, std::as_writable_bytes(std::span(a->descriptors)), [this, a](Status s) {
    if (!s.ok()) return a->command->complete(s);
    descriptors_arrived(a);
  });
}

nvme::Status KvService::validate(const Attend& a) const {
  std::uint64_t heads = 0;
  for (const AttendDescriptor& d : a.descriptors) {
    if (const Status s = check_heads(d, a.op.layer, a.op.head_dim); !s.ok()) return s;
    if ((d.flags & ~nvme::attend_flag::append) != 0 || d.reserved_24 != 0 || d.reserved_28 != 0)
      return status::invalid_field;
    const bool sparf = a.op.method == nvme::AttendMethod::sparf;
    if (sparf ? d.r == 0 || d.r > a.op.head_dim || d.k == 0 : d.r != 0 || d.k != 0 || d.l != 0)
      return status::kv_bad_parameters;
    const bool appends = (d.flags & nvme::attend_flag::append) != 0;
    for (std::uint32_t h = 0; h < d.head_count; ++h) {
      const std::uint32_t tokens = ftl_.tokens({SequenceId{d.sequence}, a.op.layer, KvHead{d.first_head + h}});
      if (std::uint64_t{d.token} + (appends ? 0 : 1) != tokens) return status::kv_bad_token;
    }
    heads += d.head_count;
  }
  return heads == a.op.total_heads ? status::success : status::kv_shape_mismatch;
}

/// Heads that a descriptor appends to are no other descriptor's: it would find another token than it names.
bool KvService::appends_apart(const Attend& a) {
  HeadsInUse appended;
  for (const bool appends : {true, false})
    for (const AttendDescriptor& d : a.descriptors) {
      if (((d.flags & nvme::attend_flag::append) != 0) != appends) continue;
      if (appended.overlap(layer_of(d, a.op.layer), heads_of(d))) return false;
      if (appends) appended.add(layer_of(d, a.op.layer), heads_of(d));
    }
  return true;
}

void KvService::descriptors_arrived(const std::shared_ptr<Attend>& a) {
  if (const Status s = validate(*a); !s.ok()) return a->command->complete(s);
  if (!appends_apart(*a)) return a->command->complete(status::kv_bad_token);
  read_section(*a->command, a->layout.q, a->layout.out, a->buffer, [this, a](Status s) {
    if (!s.ok()) return a->command->complete(s);
    when_possible([this, a] { return append_tokens(a); });
  });
}

/// False while it has to wait. Descriptors are appended one by one; should one fail for good, those before it stay: a
/// host that tries again finds them appended and attends to them without the append flag.
bool KvService::append_tokens(const std::shared_ptr<Attend>& a) {
  if (a->appended == 0)
    if (const Status s = validate(*a); !s.ok()) {  // the cache may have changed while q, k and v were on their way
      a->command->complete(s);
      return true;
    }
  std::size_t head_offset = 0;
  for (std::size_t i = 0; i < a->appended; ++i) head_offset += a->descriptors[i].head_count;
  for (; a->appended < a->descriptors.size(); ++a->appended) {
    const AttendDescriptor& d = a->descriptors[a->appended];
    if ((d.flags & nvme::attend_flag::append) != 0) {
      if (attended_.overlap(layer_of(d, a->op.layer), heads_of(d))) return false;
      const std::size_t elements = std::size_t{d.head_count} * a->op.head_dim;
      const Bytes offset{head_offset * a->op.head_dim * sizeof(Half)};
      ftl::AppendResult result = ftl_.append(SequenceId{d.sequence}, a->op.layer, TokenIndex{d.token}, 1, heads_of(d),
                                             halves(a->buffer, a->in_buffer(a->layout.k) + offset, elements),
                                             halves(a->buffer, a->in_buffer(a->layout.v) + offset, elements));
      start_erases(result.erases);
      start_flushes(std::move(result.jobs), [] {});
      if (result.status == ftl::KvStatus::busy) return false;
      if (result.status != ftl::KvStatus::ok) {
        a->command->complete(to_status(result.status));
        return true;
      }
    }
    head_offset += d.head_count;
  }
  start_engine(a);
  return true;
}

/// Pins the sequences and keeps their heads from growing while the engine works on them. `descriptors` belongs to what
/// `done` keeps alive.
void KvService::run_jobs(Command& command, LayerId layer, std::vector<engine::HeadJob> jobs,
                         const std::vector<AttendDescriptor>& descriptors, Done done) {
  for (const AttendDescriptor& d : descriptors) {
    ftl_.pin(SequenceId{d.sequence});
    attended_.add(layer_of(d, layer), heads_of(d));
  }
  const auto release = [this, layer, &descriptors] {
    for (const AttendDescriptor& d : descriptors) attended_.remove(layer_of(d, layer), heads_of(d));
    for (const AttendDescriptor& d : descriptors) unpin(SequenceId{d.sequence});
  };
  const Bytes tail = port_.limited() ? tail_bytes(jobs) : Bytes{};
  const auto work = std::make_shared<std::vector<engine::HeadJob>>(std::move(jobs));
  const Bytes buffer = config_.engine_in_dram ? engine_bytes(*work) : Bytes{};
  port_.move(DramTraffic::kv_tail, tail, [this, &command, work, buffer, release, done = std::move(done)] {
    const bool taken = engine_.run(std::move(*work), [this, buffer, release, done] {
      const auto end = [release, done] {
        release();
        done();
      };
      if (buffer.value == 0) return end();
      port_.move(DramTraffic::engine_buffer, buffer, end);
    });
    if (taken) return;
    release();
    command.complete(status::kv_bad_parameters);
  });
}

Bytes KvService::engine_bytes(const std::vector<engine::HeadJob>& jobs) const {
  Bytes held;
  for (const engine::HeadJob& job : jobs) held += engine::job_footprint(job, lookup_.view(job.key));
  return held * 2;
}

Bytes KvService::tail_bytes(const std::vector<engine::HeadJob>& jobs) const {
  std::uint64_t rows = 0;
  for (const engine::HeadJob& job : jobs) {
    const engine::KvHeadView view = lookup_.view(job.key);
    rows += std::uint64_t{view.tokens - view.flushed_tokens} * view.head_dim;
  }
  return Bytes{rows * 2 * sizeof(Half)};
}

void KvService::start_engine(const std::shared_ptr<Attend>& a) {
  const std::size_t per_head = std::size_t{a->op.group} * a->op.head_dim;
  const Half* q = nullptr;
  Half* out = nullptr;
  if (config_.carried) {
    a->out = cleared_buffer(a->layout.size - a->layout.out);
    q = a->buffer.as<const Half>();
    out = a->out.as<Half>();
  }
  std::vector<engine::HeadJob> jobs;
  jobs.reserve(a->op.total_heads);
  for (const AttendDescriptor& d : a->descriptors)
    for (std::uint32_t h = 0; h < d.head_count; ++h) {
      engine::HeadJob& job = jobs.emplace_back();
      job.key = {SequenceId{d.sequence}, a->op.layer, KvHead{d.first_head + h}};
      job.group = a->op.group;
      if (a->op.method == nvme::AttendMethod::sparf) {
        job.method = engine::Method::sparf;
        job.sparf = {.r = d.r, .k = d.k, .l = d.l};
      }
      if (!config_.carried) continue;
      job.q = q;
      job.out = out;
      q += per_head;
      out += per_head;
    }
  run_jobs(*a->command, a->op.layer, std::move(jobs), a->descriptors, [this, a] {
    write_section(*a->command, a->layout.out, a->layout.size, a->out, [a](Status s) { a->command->complete(s); });
  });
}

}  // namespace csd_model

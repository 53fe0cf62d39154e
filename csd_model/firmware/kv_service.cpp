#include "csd_model/firmware/kv_service.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/phase_intake.h"
#include "base/fp16.h"
#include "nvme_if/spec/attend_method.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using nvme::AttendDescriptor;
using nvme::Command;
namespace status = nvme::status;

namespace {

/// Whether all of these heads hold the tokens below `end`.
bool hold(const ftl::KvFtl& ftl, SequenceId sequence, LayerId layer, HeadRange heads, std::uint64_t end) {
  for (std::uint32_t h = 0; h < heads.count; ++h) {
    const HeadKey key{sequence, layer, KvHead{heads.first.value + h}};
    if (ftl.check(key) != ftl::KvStatus::ok || ftl.tokens(key) < end) return false;
  }
  return true;
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
      write_buffer_(write_buffer),
      flushes_(ftl, config.geometry, config.firmware, flash, map_lookups, write_buffer, [this] { pages_settled(); }) {}

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
  if (flushes_.flushing() + booked_ != 0) return;
  for (const Done& waiter : std::exchange(drain_waiters_, {})) waiter();
}

void KvService::when_drained(std::function<void()> callback) {
  if (flushes_.flushing() + booked_ == 0 && waiting_.empty()) return callback();
  drain_waiters_.push_back(std::move(callback));
}

void KvService::lose_power() {
  flushes_.lose_power();
  attended_ = {};
  waiting_.clear();
  appending_ = booked_ = 0;
  drain_waiters_.clear();
}

void KvService::unpin(SequenceId sequence) {
  flushes_.erase(ftl_.unpin(sequence));
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
    if (s == ftl::KvStatus::bad_sequence && command.io().again) {
      command.complete(status::success);
      return true;
    }
    command.complete(s == ftl::KvStatus::bad_sequence ? status::kv_sequence_exists : to_status(s));
    return true;
  });
}

void KvService::free(Command& command, const nvme::KvFree& op) {
  when_possible([this, &command, op] {
    const ftl::FreeResult result = ftl_.free_sequence(op.sequence);
    flushes_.erase(result.erases);
    const bool was_freed = result.status == ftl::KvStatus::bad_sequence && command.io().again;
    command.complete(was_freed ? status::success : to_status(result.status));
    return true;
  });
}

void KvService::fork(Command& command, const nvme::KvFork& op) {
  when_possible([this, &command, op] {
    const bool known = ftl_.check({op.parent, LayerId{0}, KvHead{0}}) == ftl::KvStatus::ok;
    const ftl::KvStatus s = ftl_.fork_sequence(op.parent, op.child);
    if (s == ftl::KvStatus::busy) return false;  // the child is freed, and its pages are still in use; or DRAM is full
    const bool exists = known && s == ftl::KvStatus::bad_sequence;
    if (exists && command.io().again) {
      command.complete(status::success);
    } else {
      command.complete(exists ? status::kv_sequence_exists : to_status(s));
    }
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
  store_rows(command, op, [this, &command, op](std::span<const Half> k, std::span<const Half> v) {
    const HeadRange heads{op.first_head, op.head_count};
    const std::uint64_t end = std::uint64_t{op.first_token.value} + op.token_count;
    if (command.io().again && hold(ftl_, op.sequence, op.layer, heads, end)) return ftl::AppendResult{};
    return ftl_.append(op.sequence, op.layer, op.first_token, op.token_count, heads, k, v);
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
  flushes_.plan(result.jobs);
  flushes_.erase(result.erases);
  if (result.status != ftl::KvStatus::ok) {
    flushes_.start(std::move(result.jobs), [] {});
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
    for (const ftl::FlushJob& job : *jobs) programs += KvFlushes::program_bytes(job);
    if (write_buffer_.fits(programs)) {
      flushes_.start(std::move(*jobs), [] {});
      command.complete(status::success);
    } else {
      flushes_.start(std::move(*jobs), [&command] { command.complete(status::success); });
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

using nvme::AttendDescriptor;
using nvme::Command;
namespace status = nvme::status;

namespace {

BusyHeads::Layer layer_of(const AttendDescriptor& d, LayerId layer) { return {SequenceId{d.sequence}, layer}; }
HeadRange heads_of(const AttendDescriptor& d) { return {KvHead{d.first_head}, d.head_count}; }
bool drops_lost(const AttendDescriptor& d) { return (d.flags & nvme::attend_flag::drop_lost) != 0; }

}  // namespace

struct KvService::Attend {
  Command* command = nullptr;
  nvme::KvAttend op;
  nvme::AttendLayout layout;
  std::vector<AttendDescriptor> descriptors;
  DramBuffer buffer;         ///< the command's buffer from section q on; empty in timing runs
  std::size_t appended = 0;  ///< descriptors whose tokens are in the cache
  DramBuffer out;            ///< sections out and softmax; empty in timing runs

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
    if (ftl_.layout(SequenceId{d.sequence}).row_words() != a.op.words()) return status::kv_shape_mismatch;
    constexpr std::uint16_t kFlags = nvme::attend_flag::append | nvme::attend_flag::drop_lost;
    if ((d.flags & ~kFlags) != 0 || drops_lost(d) != drops_lost(a.descriptors.front()) || d.first_token != 0 ||
        d.reserved_28 != 0)
      return status::invalid_field;
    const bool sparf = nvme::runs_sparf(a.op.method);
    if (sparf ? d.r == 0 || d.r > a.op.head_dim || d.k == 0 || d.l > d.k : d.r != 0 || d.k != 0 || d.l != 0)
      return status::kv_bad_parameters;
    const bool appends = (d.flags & nvme::attend_flag::append) != 0;
    for (std::uint32_t h = 0; h < d.head_count; ++h) {
      const std::uint32_t tokens = ftl_.tokens({SequenceId{d.sequence}, a.op.layer, KvHead{d.first_head + h}});
      const std::uint64_t after = std::uint64_t{d.token} + 1;
      const bool appended = appends && a.command->io().again && tokens == after;
      if (!appended && tokens + (appends ? 1 : 0) != after) return status::kv_bad_token;
    }
    heads += d.head_count;
  }
  return heads == a.op.total_heads ? status::success : status::kv_shape_mismatch;
}

/// Whether no descriptor names a head that another one appends to: it would find another newest token than it states.
bool KvService::appends_apart(const Attend& a) {
  BusyHeads appended;
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
  // Without a token to append, k and v are not fetched: they are ignored.
  const bool appends = std::ranges::any_of(
      a->descriptors, [](const AttendDescriptor& d) { return (d.flags & nvme::attend_flag::append) != 0; });
  const Bytes end = appends ? a->layout.out : a->layout.k;
  read_section(*a->command, a->layout.q, end, end - a->layout.k, a->buffer, [this, a](Status s) {
    if (!s.ok()) return a->command->complete(s);
    when_possible([this, a] { return append_tokens(a); });
  });
}

/// Returns false while it has to wait. Descriptors are appended one by one. If one fails for good, those before it
/// stay appended: a host that tries again attends to them without the append flag.
bool KvService::append_tokens(const std::shared_ptr<Attend>& a) {
  if (a->appended == 0)
    if (const Status s = validate(*a); !s.ok()) {  // the cache may have changed during the transfer of q, k and v
      a->command->complete(s);
      return true;
    }
  std::size_t head_offset = 0;
  for (std::size_t i = 0; i < a->appended; ++i) head_offset += a->descriptors[i].head_count;
  for (; a->appended < a->descriptors.size(); ++a->appended) {
    const AttendDescriptor& d = a->descriptors[a->appended];
    const bool appends = (d.flags & nvme::attend_flag::append) != 0;
    const bool appended = a->command->io().again &&
                          hold(ftl_, SequenceId{d.sequence}, a->op.layer, heads_of(d), std::uint64_t{d.token} + 1);
    if (appends && !appended) {
      if (attended_.overlap(layer_of(d, a->op.layer), heads_of(d))) return false;
      const std::size_t elements = std::size_t{d.head_count} * a->op.words();
      const Bytes offset{head_offset * a->op.words() * sizeof(Half)};
      ftl_.pass(sim_time_now());
      ftl::AppendResult result = ftl_.append(SequenceId{d.sequence}, a->op.layer, TokenIndex{d.token}, 1, heads_of(d),
                                             halves(a->buffer, a->in_buffer(a->layout.k) + offset, elements),
                                             halves(a->buffer, a->in_buffer(a->layout.v) + offset, elements));
      flushes_.plan(result.jobs);
      flushes_.erase(result.erases);
      flushes_.start(std::move(result.jobs), [] {});
      if (result.status == ftl::KvStatus::busy) return false;
      if (result.status != ftl::KvStatus::ok) {
        a->command->complete(to_status(result.status));
        return true;
      }
    }
    head_offset += d.head_count;
  }
  // Until the engine starts, the heads must not grow.
  std::int64_t appended = 0;
  for (const AttendDescriptor& d : a->descriptors) {
    attended_.add(layer_of(d, a->op.layer), heads_of(d));
    if ((d.flags & nvme::attend_flag::append) != 0) appended += d.head_count;
  }
  ++appending_;
  map_lookups_.spend(config_.firmware.append * appended, [this, a] {
    --appending_;
    for (const AttendDescriptor& d : a->descriptors) attended_.remove(layer_of(d, a->op.layer), heads_of(d));
    start_engine(a);
  });
  return true;
}

/// Pins the sequences and keeps their heads from growing while the engine works on them. `done` must keep `descriptors`
/// alive; it is called unless pages of the heads cannot be read back, which ends the command.
void KvService::run_jobs(Command& command, LayerId layer, std::vector<engine::HeadJob> jobs,
                         const std::vector<AttendDescriptor>& descriptors, Done done) {
  for (const AttendDescriptor& d : descriptors) {
    ftl_.pin(SequenceId{d.sequence});
    attended_.add(layer_of(d, layer), heads_of(d));
  }
  const std::shared_ptr<LossWatch> watch = ftl_.may_lose() ? std::make_shared<LossWatch>() : nullptr;
  if (watch) {
    for (const AttendDescriptor& d : descriptors) watch->heads.add(layer_of(d, layer), heads_of(d));
    watch->drops = drops_lost(descriptors.front());
    lookup_.watch(*watch);
  }
  const auto release = [this, layer, watch, &descriptors] {
    if (watch) lookup_.unwatch(*watch);
    for (const AttendDescriptor& d : descriptors) attended_.remove(layer_of(d, layer), heads_of(d));
    for (const AttendDescriptor& d : descriptors) unpin(SequenceId{d.sequence});
  };
  const Bytes tail = port_.limited() || internal_link_.present() ? tail_bytes(jobs) : Bytes{};
  const auto work = std::make_shared<std::vector<engine::HeadJob>>(std::move(jobs));
  const Bytes buffer = config_.engine_in_dram ? engine_bytes(*work) : Bytes{};
  const auto start = [this, &command, work, buffer, watch, &descriptors, release, done = std::move(done)] {
    const bool taken = engine_.run(std::move(*work), [this, &command, buffer, watch, &descriptors, release, done] {
      const auto end = [&command, watch, &descriptors, release, done] {
        release();
        if (watch && !watch->losses.empty()) return fail_lost(command, watch->losses, descriptors.size());
        done();
      };
      if (buffer.value == 0) return end();
      port_.move(DramTraffic::engine_buffer, buffer, end);
    });
    if (taken) return;
    release();
    command.complete(status::kv_bad_parameters);
  };
  port_.move(DramTraffic::kv_tail, tail,
             [this, tail, start] { internal_link_.move(nvme::LinkDirection::to_host, tail, start); });
}

Bytes KvService::engine_bytes(const std::vector<engine::HeadJob>& jobs) const {
  Bytes held;
  for (const engine::HeadJob& job : jobs) held += engine::job_footprint(job, lookup_.view(job.key));
  return held * 2;
}

Bytes KvService::tail_bytes(const std::vector<engine::HeadJob>& jobs) const {
  std::uint64_t bytes = 0;
  for (const engine::HeadJob& job : jobs) {
    const engine::KvHeadView view = lookup_.view(job.key);
    const auto [first, end] = engine::token_range(job, view);
    const std::uint64_t kinds = job.method == Method::score ? 1 : 2;  // only K, or K and V
    bytes += kinds * (end - std::clamp(view.flushed_tokens, first, end)) * view.row();
  }
  return Bytes{bytes};
}

void KvService::start_engine(const std::shared_ptr<Attend>& a) {
  const std::size_t per_head = std::size_t{a->op.group} * a->op.head_dim;
  const Half* q = nullptr;
  Half* out = nullptr;
  float* softmax = nullptr;
  if (config_.carried) {
    a->out = cleared_buffer(a->layout.size - a->layout.out);
    q = a->buffer.as<const Half>();
    out = a->out.as<Half>();
    if (nvme::returns_softmax(a->op.method)) softmax = a->out.as<float>(a->layout.softmax - a->layout.out);
  }
  std::vector<engine::HeadJob> jobs;
  jobs.reserve(a->op.total_heads);
  for (const AttendDescriptor& d : a->descriptors)
    for (std::uint32_t h = 0; h < d.head_count; ++h) {
      engine::HeadJob& job = jobs.emplace_back();
      job.key = {SequenceId{d.sequence}, a->op.layer, KvHead{d.first_head + h}};
      job.group = a->op.group;
      job.method = nvme::method_of(a->op.method);
      if (job.method == Method::sparf) job.sparf = {.r = d.r, .k = d.k, .l = d.l};
      if (!config_.carried) continue;
      job.q = q;
      job.out = out;
      q += per_head;
      out += per_head;
      if (softmax == nullptr) continue;
      job.softmax = softmax;
      softmax += std::size_t{2} * a->op.group;
    }
  run_jobs(*a->command, a->op.layer, std::move(jobs), a->descriptors, [this, a] {
    write_section(*a->command, a->layout.out, a->layout.size, a->out, [a](Status s) { a->command->complete(s); });
  });
}

using nvme::AttendDescriptor;
using nvme::Command;
using nvme::Status;
namespace status = nvme::status;

namespace {

std::uint32_t range_of(const AttendDescriptor& d) { return d.token - d.first_token + 1; }

}  // namespace

struct KvService::Score {
  Command* command = nullptr;
  nvme::KvScore op;
  nvme::ScoreLayout layout;
  std::vector<AttendDescriptor> descriptors;
  DramBuffer q;                   ///< section q; empty in timing runs
  std::vector<float> of_queries;  ///< lists of all query heads, in their order; empty in timing runs
  DramBuffer lists;               ///< section scores; empty in timing runs
};

void KvService::score(Command& command, const nvme::KvScore& op) {
  const auto s = std::make_shared<Score>();
  s->command = &command;
  s->op = op;
  s->layout = nvme::score_layout(op);
  s->descriptors.resize(op.n);
  command.read_host(Bytes{0}, std::as_writable_bytes(std::span(s->descriptors)), [this, s](Status result) {
    if (result.ok()) result = validate(*s);
    if (!result.ok()) return s->command->complete(result);
    read_section(*s->command, s->layout.q, s->layout.scores, Bytes{}, s->q, [this, s](Status moved) {
      if (moved.ok()) moved = validate(*s);  // the cache may have changed during the transfer of q
      if (!moved.ok()) return s->command->complete(moved);
      start_engine(s);
    });
  });
}

nvme::Status KvService::validate(const Score& s) const {
  std::uint64_t heads = 0;
  std::uint64_t scores = 0;
  for (const AttendDescriptor& d : s.descriptors) {
    if (const Status bad = check_heads(d, s.op.layer, s.op.head_dim); !bad.ok()) return bad;
    if (d.flags != 0 || d.reserved_28 != 0) return status::invalid_field;
    if (d.r != 0 || d.k != 0 || d.l != 0) return status::kv_bad_parameters;
    if (d.first_token > d.token) return status::kv_bad_token;
    for (std::uint32_t h = 0; h < d.head_count; ++h)
      if (d.token >= ftl_.tokens({SequenceId{d.sequence}, s.op.layer, KvHead{d.first_head + h}}))
        return status::kv_bad_token;
    heads += d.head_count;
    scores += std::uint64_t{s.op.lists(d.head_count)} * range_of(d);
  }
  return heads == s.op.total_heads && scores == s.op.total_scores ? status::success : status::kv_shape_mismatch;
}

void KvService::start_engine(const std::shared_ptr<Score>& s) {
  const Half* q = nullptr;
  float* scores = nullptr;
  if (config_.carried) {
    std::size_t size = 0;
    for (const AttendDescriptor& d : s->descriptors) size += std::size_t{d.head_count} * s->op.group * range_of(d);
    s->of_queries.resize(size);
    q = s->q.as<const Half>();
    scores = s->of_queries.data();
  }
  std::vector<engine::HeadJob> jobs;
  jobs.reserve(s->op.total_heads);
  for (const AttendDescriptor& d : s->descriptors) {
    for (std::uint32_t h = 0; h < d.head_count; ++h) {
      engine::HeadJob& job = jobs.emplace_back();
      job.key = {SequenceId{d.sequence}, s->op.layer, KvHead{d.first_head + h}};
      job.method = Method::score;
      job.group = s->op.group;
      job.score = {.first = d.first_token, .end = d.token + 1, .precision = s->op.precision};
      if (!config_.carried) continue;
      job.q = q;
      job.scores = scores;
      q += std::size_t{s->op.group} * s->op.head_dim;
      scores += std::size_t{s->op.group} * range_of(d);
    }
  }
  run_jobs(*s->command, s->op.layer, std::move(jobs), s->descriptors, [this, s] {
    if (config_.carried) {
      s->lists = cleared_buffer(s->layout.size - s->layout.scores);
      combine_scores(*s, s->lists.as<float>());
    }
    write_section(*s->command, s->layout.scores, s->layout.size, s->lists,
                  [s](Status result) { s->command->complete(result); });
  });
}

/// The lists of a command from those of its query heads.
void KvService::combine_scores(const Score& s, float* lists) {
  const float* of_query = s.of_queries.data();
  for (const AttendDescriptor& d : s.descriptors) {
    const std::size_t tokens = range_of(d), count = s.op.lists(d.head_count);
    const std::size_t queries = std::size_t{d.head_count} * s.op.group / count;  // queries of a list
    for (std::size_t i = 0; i < count; ++i, lists += tokens) {
      begin_scores(s.op.aggregate, {lists, tokens});
      for (std::size_t g = 0; g < queries; ++g, of_query += tokens)
        add_scores(s.op.aggregate, {of_query, tokens}, {lists, tokens});
    }
  }
}

struct KvService::Fetch {
  Command* command = nullptr;
  nvme::KvFetch op;
  nvme::FetchLayout layout;
  std::vector<std::byte> head;  ///< descriptor and token indices
  AttendDescriptor descriptor;
  std::vector<std::uint32_t> tokens;
  std::set<ftl::KvLoss> losses;
  Bytes pages;    ///< bytes of all pages
  Bytes arrived;  ///< bytes of pages that have arrived
  Bytes sent;     ///< bytes of rows that have been sent
  DramBuffer rows;
};

void KvService::fetch(Command& command, const nvme::KvFetch& op) {
  const auto f = std::make_shared<Fetch>();
  f->command = &command;
  f->op = op;
  f->layout = nvme::fetch_layout(op);
  f->head.resize(f->layout.k.value);
  command.read_host(Bytes{0}, f->head, [this, f](Status s) {
    if (!s.ok()) return f->command->complete(s);
    fetch_lists_arrived(f);
  });
}

void KvService::fetch_lists_arrived(const std::shared_ptr<Fetch>& f) {
  std::copy_n(f->head.begin(), sizeof(AttendDescriptor), reinterpret_cast<std::byte*>(&f->descriptor));
  f->tokens.resize(f->op.token_count);
  std::copy_n(f->head.begin() + static_cast<std::ptrdiff_t>(f->layout.tokens.value), f->tokens.size() * 4,
              reinterpret_cast<std::byte*>(f->tokens.data()));
  const AttendDescriptor& d = f->descriptor;
  if (const Status s = check_heads(d, f->op.layer, f->op.head_dim); !s.ok()) return f->command->complete(s);
  if (d.head_count != f->op.head_count) return f->command->complete(status::kv_shape_mismatch);
  if (d.flags != 0 || d.first_token != 0 || d.reserved_28 != 0) return f->command->complete(status::invalid_field);
  if (d.r != 0 || d.k != 0 || d.l != 0) return f->command->complete(status::kv_bad_parameters);
  if (d.token != 0) return f->command->complete(status::kv_bad_token);

  for (std::uint32_t h = 0; h < d.head_count; ++h) {
    const std::uint32_t tokens = ftl_.tokens({SequenceId{d.sequence}, f->op.layer, KvHead{d.first_head + h}});
    if (std::ranges::any_of(f->tokens, [tokens](std::uint32_t token) { return token >= tokens; }))
      return f->command->complete(status::kv_bad_token);
  }

  ReadPlan plan;
  LossWatch watch;
  watch.heads.add({SequenceId{d.sequence}, f->op.layer}, {KvHead{d.first_head}, d.head_count});
  lookup_.watch(watch);
  for (std::uint32_t h = 0; h < d.head_count; ++h) {
    const HeadKey key{SequenceId{d.sequence}, f->op.layer, KvHead{d.first_head + h}};
    const engine::KvHeadView view = lookup_.view(key);
    std::vector<std::uint32_t> groups;
    for (const std::uint32_t token : f->tokens) {
      if (token < view.flushed_tokens) groups.push_back(token / view.tokens_per_page);
    }
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    lookup_.plan_token_groups(key, KvRows::both, groups, {}, plan);
  }
  lookup_.unwatch(watch);
  f->losses = std::move(watch.losses);
  for (const PageOp& op : plan.ops) f->pages += Bytes{op.channel_bytes};
  if (config_.carried && f->losses.empty()) copy_rows(*f);
  ftl_.pin(SequenceId{d.sequence});
  const auto read = [this, f, plan = std::move(plan)] { read_pages(plan, f); };
  map_lookups_.spend(config_.firmware.fetch * static_cast<std::int64_t>(f->tokens.size()), d.head_count, read);
}

void KvService::copy_rows(Fetch& f) {
  f.rows = cleared_buffer(f.layout.size - f.layout.k);
  const std::size_t rows = f.tokens.size() * f.op.head_dim;
  for (std::uint32_t h = 0; h < f.descriptor.head_count; ++h) {
    const HeadKey key{SequenceId{f.descriptor.sequence}, f.op.layer, KvHead{f.descriptor.first_head + h}};
    Half* const k = f.rows.as<Half>() + h * rows;
    Half* const v = f.rows.as<Half>(f.layout.v - f.layout.k) + h * rows;
    engine::fetch_rows(lookup_, key, KvKind::key, f.tokens, {k, rows});
    engine::fetch_rows(lookup_, key, KvKind::value, f.tokens, {v, rows});
  }
}

/// Bytes of pages have come from flash. Their share of the rows goes to the host at once, and the rest with the last.
void KvService::pages_arrived(const std::shared_ptr<Fetch>& f, Bytes size) {
  f->arrived += size;
  const bool last = f->arrived == f->pages;
  if (!f->losses.empty()) {
    if (!last) return;
    unpin(SequenceId{f->descriptor.sequence});
    return fail_lost(*f->command, f->losses, 1);
  }
  if (last) unpin(SequenceId{f->descriptor.sequence});
  // Whole packets: cutting the rows adds none.
  constexpr std::uint64_t kPiece = nvme::kSharedPiece.value;
  const std::uint64_t all = (f->layout.size - f->layout.k).value;
  const Bytes end{last ? all : all * f->arrived.value / f->pages.value / kPiece * kPiece};
  const Bytes begin = std::exchange(f->sent, end), length = end - begin, at = f->layout.k + begin;
  if (length.value == 0) return;
  port_.stream(DramTraffic::host_data, length);
  Command& command = *f->command;
  const auto done = [f](Status s) { f->command->complete(s); };
  if (!config_.carried)
    return last ? command.write_host_timing(at, length, done) : command.send_part_timing(at, length);
  const std::span<const std::byte> bytes = std::as_const(f->rows).bytes().subspan(begin.value, length.value);
  last ? command.write_host(at, bytes, done) : command.send_part(at, bytes);
}

/// Reads each page as soon as it is found.
void KvService::read_pages(const ReadPlan& plan, const std::shared_ptr<Fetch>& f) {
  if (plan.empty()) return pages_arrived(f, Bytes{});
  if (peer_reads_ != nullptr)
    return peer_reads_->read(plan.ops, plan.lookups, [this, f](Bytes size, bool) { pages_arrived(f, size); });
  for (std::size_t i = 0; i < plan.size(); ++i)
    map_lookups_.run(engine::lookups_of_page(plan, i), nullptr, [this, f, op = plan.ops[i]] {
      flash_.submit({&op, 1}, [this, f, size = Bytes{op.channel_bytes}] { pages_arrived(f, size); });
    });
}

}  // namespace csdsim::csd_model

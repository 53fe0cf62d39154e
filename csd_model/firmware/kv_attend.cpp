// The attention commands of the KV service: what they append, and the engine's work for them.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/fp16.h"
#include "csd_model/firmware/kv_service.h"

namespace csdsim::csd_model {

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
      if (std::uint64_t{d.token} + (appends ? 0 : 1) != tokens) return status::kv_bad_token;
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
    if ((d.flags & nvme::attend_flag::append) != 0) {
      if (attended_.overlap(layer_of(d, a->op.layer), heads_of(d))) return false;
      const std::size_t elements = std::size_t{d.head_count} * a->op.words();
      const Bytes offset{head_offset * a->op.words() * sizeof(Half)};
      ftl_.pass(sim_time_now());
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
    const std::uint64_t kinds = job.method == engine::Method::score ? 1 : 2;  // only K, or K and V
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
      if (nvme::runs_sparf(a->op.method)) {
        job.method = engine::Method::sparf;
        job.sparf = {.r = d.r, .k = d.k, .l = d.l};
      }
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

}  // namespace csdsim::csd_model

// The commands of the KV service that read the cache without attending: token scores, and rows of K and V.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/phase_intake.h"
#include "base/fp16.h"
#include "csd_model/firmware/kv_service.h"

namespace csdsim::csd_model {

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
      job.method = engine::Method::score;
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
    const std::size_t queries = std::size_t{d.head_count} * s.op.group / count;  // of a list
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
  ftl_.pin(SequenceId{d.sequence});
  const auto arrived = [this, f] {
    if (!f->losses.empty()) {
      unpin(SequenceId{f->descriptor.sequence});
      return fail_lost(*f->command, f->losses, 1);
    }
    if (config_.carried) {
      f->rows = cleared_buffer(f->layout.size - f->layout.k);
      const std::size_t rows = f->tokens.size() * f->op.head_dim;
      for (std::uint32_t h = 0; h < f->descriptor.head_count; ++h) {
        const HeadKey key{SequenceId{f->descriptor.sequence}, f->op.layer, KvHead{f->descriptor.first_head + h}};
        Half* const k = f->rows.as<Half>() + h * rows;
        Half* const v = f->rows.as<Half>(f->layout.v - f->layout.k) + h * rows;
        engine::fetch_rows(lookup_, key, KvKind::key, f->tokens, {k, rows});
        engine::fetch_rows(lookup_, key, KvKind::value, f->tokens, {v, rows});
      }
    }
    unpin(SequenceId{f->descriptor.sequence});
    write_section(*f->command, f->layout.k, f->layout.size, f->rows, [f](Status s) { f->command->complete(s); });
  };
  const auto read = [this, plan = std::move(plan), arrived] { read_pages(plan, arrived); };
  map_lookups_.spend(config_.firmware.fetch * static_cast<std::int64_t>(f->tokens.size()), d.head_count, read);
}

/// Reads each page as soon as it is found.
void KvService::read_pages(const ReadPlan& plan, Done done) {
  if (plan.empty()) return done();
  if (peer_reads_ != nullptr) return peer_reads_->read(plan.ops, plan.lookups, std::move(done));
  if (map_lookups_.are_free()) return flash_.submit(plan.ops, std::move(done));
  const auto all = std::make_shared<std::pair<std::size_t, Done>>(plan.size(), std::move(done));
  for (std::size_t i = 0; i < plan.size(); ++i)
    map_lookups_.run(engine::lookups_of_page(plan, i), nullptr, [this, all, op = plan.ops[i]] {
      flash_.submit({&op, 1}, [all] {
        if (--all->first == 0) all->second();
      });
    });
}

}  // namespace csdsim::csd_model

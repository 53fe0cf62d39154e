// Page reads of the scheduler: which pages a phase needs, and when it asks for them.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "attention_engine/core/head_scheduler.h"
#include "base/error.h"
#include "base/rounding.h"
#include "base/touched_blocks.h"
#include "contracts/quantised_integers.h"

namespace csdsim::engine {

void HeadScheduler::read_phase_a(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  const HeadKey key = j.job->key;
  // Windows may have been transposed since the start: what is planned and what stands in for it must agree.
  const std::uint32_t tokens = j.view.tokens;
  j.view = source_.view(key);
  if (j.view.tokens != tokens) throw InternalError("the cache of a head grew while attention on it was running");
  const PageGroups& selected = work_.select_components(id, *j.job, j.view);
  plan_.clear();
  if (j.view.transposed_tokens > 0) source_.plan_embedding_groups(key, selected.groups, selected.rows, plan_);
  const std::size_t embedding_pages = plan_.size();
  stats_.embedding_pages += embedding_pages;
  if (j.view.tail == TailScoring::token_pages && j.view.transposed_tokens < j.view.flushed_tokens) {
    const std::uint32_t first = j.view.transposed_tokens / j.view.tokens_per_page;
    source_.plan_token_groups(key, KvRows::keys, group_range(first, j.view.flushed_groups()), {}, plan_);
  }
  stats_.token_pages_a += plan_.size() - embedding_pages;
  if (j.view.quantised()) {
    TouchedBlocks scales(j.view.format.group);
    for (const std::uint32_t group : selected.groups)
      scales.add(std::uint64_t{group} * j.view.embedding_group, j.view.embedding_group);
    j.scales = scales.count();
  }
  const std::uint64_t of_rows = j.view.tail == TailScoring::token_pages ? j.view.row() : 0;
  take_in(j,
          component_bytes(j, j.view.transposed_tokens) + of_rows * (j.view.flushed_tokens - j.view.transposed_tokens));
  read(id, at);
}

/// The chosen components of so many tokens, and of few bits the scales of the groups that they are in.
std::uint64_t HeadScheduler::component_bytes(const Job& j, std::uint64_t tokens) const {
  const std::uint64_t r = std::min<std::uint64_t>(j.job->sparf.r, j.view.head_dim);
  return integer_bytes(j.view.format.bits, r * tokens) + j.scales * tokens * sizeof(Half);
}

/// Without filters, whole pages of plan_ reach the engine, which needs `wanted` bytes of them.
void HeadScheduler::take_in(Job& j, std::uint64_t wanted) {
  if (config_.filtered) return;
  std::uint64_t bytes = 0;
  for (const PageOp& op : plan_.ops) bytes += op.channel_bytes;
  // Uncorrectable pages have no rows.
  j.unwanted += {bytes - std::min(bytes, wanted)};
}

void HeadScheduler::read_phase_b(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  const HeadKey key = j.job->key;
  plan_.clear();
  if (j.method == Method::sparf) {
    const PageGroups& selected = work_.select_tokens(id, *j.job, j.view);
    source_.plan_token_groups(key, KvRows::both, selected.groups, selected.rows, plan_);
    take_in(j, 2 * std::accumulate(selected.rows.begin(), selected.rows.end(), std::uint64_t{0}) * j.view.row());
  } else {
    const std::uint32_t n = j.view.tokens_per_page;
    const TokenRange range = token_range(*j.job, j.view);
    const std::uint32_t end = std::min(static_cast<std::uint32_t>(ceil_div(range.end, n)), j.view.flushed_groups());
    source_.plan_token_groups(key, j.method == Method::dense ? KvRows::both : KvRows::keys,
                              group_range(std::min(range.first / n, end), end), {}, plan_);
    const std::uint64_t flushed = std::min(range.end, j.view.flushed_tokens), kinds = j.method == Method::dense ? 2 : 1;
    take_in(j, kinds * (flushed - std::min<std::uint64_t>(flushed, range.first)) * j.view.row());
  }
  stats_.token_pages_b += plan_.size();
  read(id, at);
}

void HeadScheduler::read(JobId id, SimTime at) {
  Job& j = jobs_[id.value];
  j.has_pages = !plan_.empty();
  j.pages += plan_.size();
  const std::optional<std::uint32_t> lanes = scoring_lanes(j);
  const std::uint64_t cycles = phase_cycles(j);
  // Keys stream into the scoring unit, where pages come one by one.
  const bool by_page = j.has_pages && (config_.takes_pages() || (lanes && config_.intake == Intake::automatic));
  const bool by_arrival = by_page && by_arrival_;
  intakes_[id.value].start(by_page ? plan_.size() : 1, cycles, by_arrival);
  if (!j.has_pages) {
    intakes_[id.value].arrive(0);
    return leave_stage(id, at);
  }
  for (const PageOp& op : plan_.ops) stats_.channel_bytes += {op.channel_bytes};
  if (!by_page) return send({id, 0}, plan_.ops, plan_.lookups, at);
  if (by_arrival) return read_by_arrival(id, at);
  if (j.method == Method::dense) pair_keys_with_values();
  read_by_page(id, at);
}

/// Puts the values of each group of tokens behind their keys, unless the logits of all keys have a place.
void HeadScheduler::pair_keys_with_values() {
  const std::size_t keys = plan_.values_from.value_or(0);
  if (keys <= kOnlineGroups || plan_.size() != 2 * keys) return;
  std::vector<PageOp> pairs;
  for (std::size_t i = 0; i < keys; ++i) {
    pairs.push_back(plan_.ops[i]);
    pairs.push_back(plan_.ops[keys + i]);
  }
  plan_.ops = std::move(pairs);
}

/// Asks for pages that a kernel takes in as they arrive. The page with the i-th values is asked for when a kernel has
/// taken in the i-th keys: no page in a buffer ever waits for one that has none. A dense job asks for more keys only as
/// it is through with values, so that it holds few logits.
void HeadScheduler::read_by_arrival(JobId id, SimTime at) {
  Arrivals& a = arrivals_[id.value];
  std::swap(a.plan, plan_);
  if (config_.page_buffers > 0) {
    a.channels.resize(a.plan.size());
    for (std::size_t i = 0; i < a.plan.size(); ++i)
      a.channels[i] = static_cast<std::uint32_t>(pages_per_channel_.quotient(a.plan.ops[i].ppa.value));
  }
  a.keys = a.plan.values_from.value_or(a.plan.size());
  a.next = 0;
  const bool online = jobs_[id.value].method == Method::dense && a.keys < a.plan.size();
  for (const std::size_t first = online ? kOnlineGroups : a.keys; a.next < std::min(first, a.keys);)
    send_page(id, a.next++, at);
  if (a.keys > 0) return;
  for (std::size_t i = 0; i < a.plan.size(); ++i) send_page(id, i, at);
}

void HeadScheduler::send_page(JobId id, std::size_t page, SimTime at) {
  const ReadPlan& plan = arrivals_[id.value].plan;
  send({id, static_cast<std::uint32_t>(page)}, {&plan.ops[page], 1}, lookups_of_page(plan, page), at);
}

/// A kernel is through with a page: asks for those that have waited for it.
void HeadScheduler::follow(PageRead read, SimTime at) {
  if (config_.page_buffers > 0) --arrived_on(read);
  Arrivals& a = arrivals_[read.job.value];
  const std::size_t values = a.keys + read.piece;
  const bool last_keys = read.piece + 1 == a.keys;
  if (read.piece < a.keys && values < a.plan.size()) {
    for (std::size_t i = values; i < (last_keys ? a.plan.size() : values + 1); ++i) send_page(read.job, i, at);
  } else if (a.next < a.keys) {
    send_page(read.job, a.next++, at);
  }
}

/// Pages of the channel of this one that have arrived and are not taken in.
std::uint32_t& HeadScheduler::arrived_on(PageRead read) {
  return arrived_on_[arrivals_[read.job.value].channels[read.piece]];
}

/// Asks for the pages of plan_ one by one, as page buffers come free.
void HeadScheduler::read_by_page(JobId id, SimTime at) {
  if (config_.page_buffers > 0) {
    issue_.want(id, plan_, at,
                [&](PageRead read, const PageOp& op, std::uint64_t lookups) { issue(read, op, lookups, at); });
  } else {
    for (std::uint32_t i = 0; i < plan_.size(); ++i) issue({id, i}, plan_.ops[i], lookups_of_page(plan_, i), at);
  }
}

void HeadScheduler::issue(PageRead read, const PageOp& op, std::uint64_t lookups, SimTime at) {
  stats_.peak_page_buffers = issue_.peak();
  send(read, {&op, 1}, lookups, at);
}

void HeadScheduler::send(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at) {
  if (turns_.overlap() || turns_.start_read(read, ops, lookups)) port_.read_pages(read, ops, lookups, at);
}

std::span<const std::uint32_t> HeadScheduler::group_range(std::uint32_t first, std::uint32_t last) {
  for (auto g = static_cast<std::uint32_t>(all_groups_.size()); g < last; ++g) all_groups_.push_back(g);
  return std::span<const std::uint32_t>(all_groups_).subspan(first, last - first);
}

}  // namespace csdsim::engine

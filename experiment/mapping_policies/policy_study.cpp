#include "experiment/mapping_policies/policy_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "csd_model/firmware/kv_lookup.h"
#include "nfc/core/flash_timeline.h"

namespace csdsim::experiment {

namespace {

class Study {
 public:
  Study(const PolicyStudyConfig& config, const PolicyVariant& variant, engine::SelectionSource& selection,
        const nfc::FlashObservers& observers)
      : config_(config),
        blocks_(config.geometry, {0, config.geometry.blocks_per_plane - config.blocks.spare_blocks}, config.blocks),
        store_(config.geometry, ftl::DataMode::timing),
        dram_(config.dram),
        ftl_(variant.kv, blocks_, store_, dram_, variant.make(config.geometry)),
        timeline_(config.geometry, config.flash),
        selection_(selection),
        budget_(config.sparf, config.head_dim),
        rng_(config.seed, "policy study") {
    timeline_.observe(observers);
    while (live_.size() < config_.live && arrived_ < config_.sequences) arrive();
  }

  PolicyFigures run() {
    while (!live_.empty()) {
      std::vector<std::uint32_t> ids;
      for (const auto& [id, s] : live_) ids.push_back(id);
      for (const std::uint32_t id : ids) grow(id);
    }
    return figures();
  }

 private:
  struct Sequence {
    std::uint32_t length = 0;
    std::uint32_t tokens = 0;
    std::uint32_t next_attend = 0;
  };

  void arrive() {
    const std::uint32_t id = arrived_++;
    const auto spread = std::uint64_t{config_.most_tokens} - config_.least_tokens + 1;
    const std::uint32_t length = config_.least_tokens + static_cast<std::uint32_t>(rng_.below(spread));
    const ftl::KvShape shape{config_.layers, config_.kv_heads, config_.head_dim, config_.most_tokens};
    if (const auto status = ftl_.create_sequence(SequenceId{id}, shape); status != ftl::KvStatus::ok) {
      throw UserError(
          fmt::format("mapping policy \"{}\" does not take sequences of {} layers, {} KV heads, d {} on pages "
                      "of {} bytes: {}",
                      ftl_.policy().name(), shape.layers, shape.kv_heads, shape.head_dim,
                      config_.geometry.page_size.value, ftl::to_string(status)));
    }
    live_[id] = {length, 0, config_.attend_every};
  }

  /// Appends the prefill or one token.
  void grow(std::uint32_t id) {
    Sequence& s = live_.at(id);
    const auto prompt = static_cast<std::uint32_t>(config_.prompt_share * s.length);
    const std::uint32_t count = s.tokens == 0 ? std::max(1u, prompt) : 1;
    for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
      if (append(id, layer, s.tokens, count)) continue;
      ++out_.refused_sequences;
      return leave(id);
    }
    s.tokens += count;
    out_.appended_tokens += count;
    if (s.tokens >= s.next_attend) {
      s.next_attend = s.tokens + config_.attend_every;
      attend(id, LayerId{static_cast<std::uint32_t>(out_.attends % config_.layers)}, s.tokens);
    }
    if (s.tokens >= s.length) leave(id);
  }

  void leave(std::uint32_t id) {
    erase(ftl_.free_sequence(SequenceId{id}).erases);
    live_.erase(id);
    if (arrived_ < config_.sequences) arrive();
  }

  bool append(std::uint32_t id, std::uint32_t layer, std::uint32_t first, std::uint32_t count) {
    // Flushes and erases complete at once, so a few rounds of garbage collection free all blocks that can be freed.
    for (std::uint64_t tries = 0; tries < config_.geometry.blocks(); ++tries) {
      ftl::AppendResult result =
          ftl_.append(SequenceId{id}, LayerId{layer}, TokenIndex{first}, count, {KvHead{0}, config_.kv_heads});
      for (const ftl::FlushJob& job : result.jobs) {
        out_.page_ops += job.reads.size() + job.programs.size();
        erase(ftl_.flush_done(job.id));
      }
      erase(result.erases);
      if (result.status != ftl::KvStatus::busy) return result.status == ftl::KvStatus::ok;
      if (result.jobs.empty() && result.erases.empty()) return false;
    }
    return false;
  }

  void erase(const std::vector<PageOp>& erases) {
    out_.page_ops += erases.size();
    for (const PageOp& op : erases) ftl_.erase_done(op.ppa);
  }

  void plan_groups(const HeadKey& key, KvRows rows, std::uint32_t first, std::uint32_t end, ReadPlan& out) {
    std::vector<std::uint32_t> groups(end - first);
    std::iota(groups.begin(), groups.end(), first);
    ftl_.plan_token_groups(key, rows, groups, {}, out);
  }

  void attend(std::uint32_t id, LayerId layer, std::uint32_t tokens) {
    const engine::SparfParams sparf{budget_.components(), budget_.top_k(tokens), budget_.local(tokens)};
    ReadPlan dense, scores, attended;
    for (std::uint32_t h = 0; h < config_.kv_heads; ++h) {
      const HeadKey key{SequenceId{id}, layer, KvHead{h}};
      const ftl::KvLayout& l = ftl_.layout(key.sequence);
      const engine::KvHeadView v = lookup_.view({key.sequence, layer, key.head});
      const std::uint32_t flushed = v.flushed_groups();
      plan_groups(key, KvRows::both, 0, flushed, dense);
      const std::uint32_t in_page = l.group_tokens / l.fetch_tokens();  // groups that are fetched by themselves
      out_.dense_bound += static_cast<double>(l.pages_per_group() * (flushed / in_page));
      engine::PageGroups touched;
      if (l.component_major && v.transposed_tokens > 0) {
        selection_.components({key.sequence, layer, key.head}, v, sparf, touched);
        ftl_.plan_embedding_groups(key, touched.groups, {}, scores);
        for (std::uint32_t w = 0; w < ftl_.transposed_windows(key); ++w) {
          out_.score_bound += static_cast<double>(distinct(touched.groups, l.window(w).group / l.fetch_components()));
        }
      }
      if (!l.component_major || v.tail == engine::TailScoring::token_pages) {
        const std::uint32_t first = v.transposed_tokens / l.fetch_tokens();
        plan_groups(key, KvRows::keys, first, flushed, scores);
        out_.score_bound += (flushed - first) / in_page;
      }
      selection_.tokens({key.sequence, layer, key.head}, v, sparf, touched);
      ftl_.plan_token_groups(key, KvRows::both, touched.groups, {}, attended);
      out_.attend_bound += static_cast<double>(l.pages_per_group() * distinct(touched.groups, in_page));
    }
    lookups_ += scores.lookups + attended.lookups;
    occupied_ += occupancy();
    ++out_.attends;
    out_.dense_pages += static_cast<double>(dense.size());
    out_.score_pages += static_cast<double>(scores.size());
    out_.attend_pages += static_cast<double>(attended.size());
    note_imbalance(dense.ops, out_.dense_imbalance, dense_attends_);
    const SimTime start = now_;
    run_flash(dense.ops);
    out_.dense_latency += now_ - start;
    const SimTime sparse = now_;
    run_flash(scores.ops);
    run_flash(attended.ops);
    out_.sparse_latency += now_ - sparse;
    scores.ops.insert(scores.ops.end(), attended.ops.begin(), attended.ops.end());
    note_imbalance(scores.ops, out_.sparse_imbalance, sparse_attends_);
  }

  static std::size_t distinct(const std::vector<std::uint32_t>& groups, std::uint32_t finer) {
    std::size_t count = 0;
    std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
    for (const std::uint32_t group : groups) {
      if (group / finer != last) ++count;
      last = group / finer;
    }
    return count;
  }

  /// Occupancy over all live sequences.
  double occupancy() const {
    const auto held = static_cast<double>(blocks_.valid_pages(ftl::Namespace::kv) * config_.geometry.page_size.value);
    double rows = 0;
    for (const auto& [id, s] : live_) {
      if (s.tokens == 0) continue;
      for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
        for (std::uint32_t h = 0; h < config_.kv_heads; ++h) {
          const HeadKey key{SequenceId{id}, LayerId{layer}, KvHead{h}};
          rows += static_cast<double>(ftl_.layout(key.sequence).row().value) *
                  (2.0 * ftl_.flushed_tokens(key) + ftl_.transposed_tokens(key));
        }
      }
    }
    return held > 0 ? rows / held : 1;
  }

  void note_imbalance(const std::vector<PageOp>& ops, double& sum, std::uint64_t& count) const {
    if (ops.empty()) return;
    std::vector<double> pages(config_.geometry.channels);
    for (const PageOp& op : ops) {
      pages[config_.geometry.channel_of(config_.geometry.plane_of(op.ppa)).value] += 1;
    }
    sum += *std::ranges::max_element(pages) * config_.geometry.channels / static_cast<double>(ops.size());
    ++count;
  }

  /// Runs the operations on otherwise idle flash until all are done.
  void run_flash(const std::vector<PageOp>& ops) {
    if (ops.empty()) return;
    out_.page_ops += ops.size();
    timeline_.submit(ops, now_);
    std::vector<FlashCompletion> done;
    while (done.empty()) {
      now_ = timeline_.run(SimTime::max());
      timeline_.take_completions(now_, done);
    }
  }

  PolicyFigures figures() {
    const auto heads = static_cast<double>(out_.attends * config_.kv_heads);
    if (out_.attends > 0) {
      for (double* const sum : {&out_.dense_pages, &out_.dense_bound, &out_.score_pages, &out_.score_bound,
                                &out_.attend_pages, &out_.attend_bound}) {
        *sum /= heads;
      }
      out_.lookups = static_cast<double>(lookups_) / heads;
      const auto attends = static_cast<std::int64_t>(out_.attends);
      out_.dense_latency.ps /= attends;
      out_.sparse_latency.ps /= attends;
      out_.occupancy = occupied_ / static_cast<double>(out_.attends);
      out_.dense_imbalance /= static_cast<double>(std::max<std::uint64_t>(1, dense_attends_));
      out_.sparse_imbalance /= static_cast<double>(std::max<std::uint64_t>(1, sparse_attends_));
    }
    out_.appended_tokens *= std::uint64_t{config_.layers} * config_.kv_heads;
    const ftl::KvFtlStats& s = ftl_.stats();
    out_.programmed_pages = s.work().programmed();
    out_.write_amplification = s.work().amplification();
    out_.gc_pages = s.gc_pages_moved;
    out_.rewritten_pages = s.partial_pages_programmed;
    out_.read_back_pages = s.read_back_pages;
    out_.misplaced_pages = s.misplaced_pages;
    const ftl::WearStatistics wear = blocks_.wear();
    out_.erases_mean = wear.mean;
    out_.erases_most = wear.max;
    out_.dram_peak = dram_.peak();
    out_.table_peak = dram_.peak(ftl::DramUse::map);
    out_.tail_peak = dram_.peak(ftl::DramUse::group_buffer) + dram_.peak(ftl::DramUse::component_tail);
    out_.simulated = now_;
    return out_;
  }

  const PolicyStudyConfig& config_;
  ftl::BlockManager blocks_;
  ftl::BackingStore store_;
  ftl::DramBudget dram_;
  ftl::KvFtl ftl_;
  csd_model::KvLookup lookup_{ftl_, config_.geometry, nfc::FilterLocation::none};
  nfc::FlashTimeline timeline_;
  engine::SelectionSource& selection_;
  host::SparfBudget budget_;
  Rng rng_;
  std::map<std::uint32_t, Sequence> live_;
  std::uint32_t arrived_ = 0;
  SimTime now_;
  std::uint64_t lookups_ = 0;
  double occupied_ = 0;
  std::uint64_t dense_attends_ = 0, sparse_attends_ = 0;
  PolicyFigures out_;
};

/// Counts the pages to read 16 tokens of one head of a context that is completely in flash.
void read_sixteen(const PolicyStudyConfig& config, const PolicyVariant& variant, PolicyFigures& out) {
  constexpr std::uint32_t kTokens = 16, kApart = 64;
  FlashGeometry geometry = config.geometry;
  const std::uint64_t row = std::uint64_t{config.head_dim} * ftl::kElementBytes;
  const std::uint64_t context = kTokens * std::max<std::uint64_t>(kApart, geometry.page_size.value / row);
  // V, K twice, and as much again for blocks that are not full.
  const std::uint64_t stored = 6 * context * config.kv_heads * row;
  const std::uint64_t blocks_of_planes =
      stored / (geometry.page_size.value * geometry.pages_per_block * geometry.planes());
  geometry.blocks_per_plane =
      static_cast<std::uint32_t>(std::max<std::uint64_t>({geometry.blocks_per_plane, 64, 2 + blocks_of_planes}));
  ftl::BlockManager blocks(geometry, {0, geometry.blocks_per_plane});
  ftl::BackingStore store(geometry, ftl::DataMode::timing);
  ftl::DramBudget dram(Bytes::gib(64));
  ftl::KvFtl ftl(variant.kv, blocks, store, dram, variant.make(geometry));
  const HeadKey key{SequenceId{0}, LayerId{0}, KvHead{config.kv_heads / 2}};
  ftl.create_sequence(key.sequence, {1, config.kv_heads, config.head_dim, kTokens * kApart, false});
  const std::uint32_t n = ftl.layout(key.sequence).fetch_tokens();
  const std::uint32_t apart = std::max(kApart, n);
  const auto result = ftl.append(key.sequence, key.layer, TokenIndex{0}, kTokens * apart, {KvHead{0}, config.kv_heads});
  if (result.status != ftl::KvStatus::ok) {
    throw UserError(fmt::format("16 tokens cannot be read where a context of {} does not fit: {}", kTokens * apart,
                                ftl::to_string(result.status)));
  }
  for (const ftl::FlushJob& job : result.jobs) ftl.flush_done(job.id);
  const auto pages = [&](std::uint32_t distance) {
    std::vector<std::uint32_t> groups;
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      const std::uint32_t group = t * distance / n;
      if (groups.empty() || groups.back() != group) groups.push_back(group);
    }
    ReadPlan plan;
    ftl.plan_token_groups(key, KvRows::both, groups, {}, plan);
    return static_cast<std::uint32_t>(plan.size());
  };
  out.near_pages = pages(1);
  out.scattered_pages = pages(apart);
  const std::uint64_t bytes = std::uint64_t{2} * kTokens * config.head_dim * ftl::kElementBytes;
  const std::uint64_t full = (bytes + geometry.page_size.value - 1) / geometry.page_size.value;
  out.near_amplification = static_cast<double>(out.near_pages) / static_cast<double>(full);
  out.scattered_amplification = static_cast<double>(out.scattered_pages) / static_cast<double>(full);
}

}  // namespace

PolicyFigures study_policy(const PolicyStudyConfig& config, const PolicyVariant& variant,
                           engine::SelectionSource& selection, const nfc::FlashObservers& observers) {
  PolicyFigures figures = Study(config, variant, selection, observers).run();
  read_sixteen(config, variant, figures);
  return figures;
}

}  // namespace csdsim::experiment

#include "host_runtime/core/features/lost_kv/lost_kv.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::host {

void LostTokens::check_run(config::Problems& problems, const FeatureContext& run) const {
  constexpr std::string_view kHere = "workload.lost_kv";
  problems.require(run.kv_in_drives && !run.chooses_tokens, {kHere, "system.kind"},
                   fmt::format("workload.lost_kv: {} {}: use stop", run.system,
                               run.kv_in_drives ? "scores and fetches tokens, and lost tokens can only be left out of "
                                                  "attention in a drive"
                                                : "keeps no K and V in the KV namespace of a drive"));
  problems.require(run.flash_errors, {kHere},
                   "workload.lost_kv: nothing is lost without platform.device.flash.reliability");
  if (way_ != LostKv::recompute || !run.kv_in_drives) return;
  problems.require(run.restores_lost_kv, {kHere, "system.kind", "system.shard"},
                   fmt::format("workload.lost_kv: recompute: {} does not write lost tokens again; use an instinfer "
                               "system whose drives divide heads and keep 16 bits, or drop",
                               run.system));
  problems.require(!run.requests || !run.carried, {kHere, "workload.requests", "simulation.data"},
                   "workload.lost_kv: recompute: carried runs replay a mini-batch whose sequences run together from "
                   "start to end, not requests of their own lengths; use simulation.data: timing");
}

CarriedFeature* LostTokens::carry(DecoderData& data, const CheckpointSources&) {
  data_ = &data;
  return nullptr;
}

void LostTokens::attending(const Operation& attend, std::size_t index) {
  if (data_ == nullptr || attend.tag.layer->value != 0) return;
  const auto& work = std::get<DriveWork>(attend.work);
  const SequenceWork& s = work.sequences.at(index);
  attended_[{s.sequence, s.context()}] = {work.method, work.components, s.top_k, s.local};
}

std::vector<ComputeWork> LostTokens::work(const Operation& attend, std::uint32_t tokens, std::uint32_t end) const {
  std::vector<ComputeWork> work{model_.embed(end)};
  for (std::uint32_t before = 0; before < attend.tag.layer->value; ++before)
    for (const ComputeWork& part :
         {model_.attention_inputs(end), model_.prefill_attention(std::span(&end, 1)), model_.finish_layer(end)})
      work.push_back(part);
  work.push_back(model_.recompute_kv(tokens));
  return work;
}

void LostTokens::load(const Operation& attend, SequenceId sequence, std::uint32_t first, std::uint32_t count,
                      HeadRange heads, std::span<Half> k, std::span<Half> v) {
  std::unique_ptr<KvReplay>& replay = replays_[attend.tag.mini_batch];
  std::vector<KvReplay::Text> texts;
  for (const StepSequence& s : data_->sequences_of(attend))
    texts.push_back({s.sequence, data_->prompt_of(s.sequence), data_->tokens_of(s.sequence)});
  // The rotation of a key depends on all sequences of its step, of which some may have ended since.
  for (const KvReplay::Text& text : texts)
    if (data_->decoder().config().rotary.changes_at(static_cast<std::uint32_t>(text.tokens.size())))
      throw UserError(
          fmt::format("sequence {} has {} tokens: lost K and V cannot be computed again under dynamic rotary positions",
                      text.sequence.value, text.tokens.size()));
  if (!replay) replay = std::make_unique<KvReplay>(data_->decoder(), attended_, texts);
  replay->advance(texts);
  replay->copy(sequence, *attend.tag.layer, first, count, heads, k, v);
}

void LostTokens::computed(std::uint64_t rows, SimTime computing) {
  rows_ += rows;
  computing_ += computing;
}

std::vector<FeatureMetric> LostTokens::metrics() const {
  if (way_ != LostKv::recompute) return {};
  return {{.info = {.name = "kv_rows_recomputed",
                    .unit = "rows",
                    .meaning = "With flash.reliability and workload.lost_kv: recompute: tokens whose K and V were "
                               "computed again, counted for each layer and KV head."},
           .value = [this](const FeatureCounts&) { return double(rows_); },
           .whole = true},
          {.info = {.name = "kv_bytes_rewritten",
                    .unit = "B",
                    .meaning = "The same runs: K and V that the host has sent again."},
           .value = [this](const FeatureCounts&) { return double(written_.value); },
           .whole = true},
          {.info = {.name = "kv_recompute_s",
                    .unit = "s",
                    .meaning = "The same runs: time that attention has waited for K and V to be computed again, "
                               "summed over commands."},
           .value = [this](const FeatureCounts&) { return computing_.seconds(); }}};
}

}  // namespace csdsim::host

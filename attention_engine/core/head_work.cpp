#include "attention_engine/core/head_work.h"

#include <algorithm>
#include <cmath>

#include "attention_engine/core/exponentials.h"
#include "base/error.h"
#include "base/simd.h"

namespace csdsim::engine {

CarriedWork::CarriedWork(const KvSource& source, std::uint32_t jobs_in_flight)
    : source_(source), sparf_(jobs_in_flight) {}

void CarriedWork::widen_q(const HeadJob& job, std::uint32_t head_dim) {
  if (job.q == nullptr) throw InternalError("a head job of a run that carries data has no q");
  q_.resize(std::size_t{job.group} * head_dim);
  simd::widen(job.q, q_.data(), q_.size());
}

const PageGroups& CarriedWork::select_components(JobId id, const HeadJob& job, const KvHeadView& view) {
  widen_q(job, view.head_dim);
  sparf_[id.value].select_components(view, job.sparf, q_, job.group);
  return sparf_[id.value].embedding_groups();
}

void CarriedWork::score_tokens(JobId id, const HeadJob& job) { sparf_[id.value].score_tokens(source_, job.key); }

const PageGroups& CarriedWork::select_tokens(JobId id, const HeadJob&, const KvHeadView&) {
  sparf_[id.value].select_tokens();
  return sparf_[id.value].token_groups();
}

void CarriedWork::attend(JobId id, const HeadJob& job, Method method) {
  const KvHeadView view = source_.view(job.key);
  if (method != Method::sparf) widen_q(job, view.head_dim);
  if (method == Method::score) {
    if (job.scores == nullptr) throw InternalError("a score job of a run that carries data has no scores");
    const ScoreRange& r = job.score;
    score_head(source_, job.key, r.precision, q_, job.group, r.first, r.end,
               {job.scores, std::size_t{job.group} * (r.end - r.first)});
    return;
  }
  out_.resize(std::size_t{job.group} * view.head_dim);
  softmax_.resize(job.softmax != nullptr ? job.group : 0);
  if (method == Method::sparf) {
    sparf_[id.value].attend(source_, job.key, out_);
    sum_chosen(id, job, view);
  } else {
    dense_.attend(source_, job.key, q_, job.group, out_, softmax_);
  }
  if (job.out == nullptr) throw InternalError("a head job of a run that carries data has no out");
  simd::narrow(out_.data(), job.out, out_.size());
  if (job.out_fp32 != nullptr) std::copy(out_.begin(), out_.end(), job.out_fp32);
  for (std::size_t g = 0; g < softmax_.size(); ++g) {
    job.softmax[2 * g] = softmax_[g].most;
    job.softmax[2 * g + 1] = softmax_[g].sum;
  }
}

/// m of the tokens that SparF has chosen, and the sum of their exponentials over the share that they have of all.
void CarriedWork::sum_chosen(JobId id, const HeadJob& job, const KvHeadView& view) {
  if (softmax_.empty()) return;
  widen_q(job, view.head_dim);
  const SparfAttention& sparf = sparf_[id.value];
  const std::size_t d = view.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const std::vector<TokenRange> dropped = source_.dropped(job.key);
  for (std::size_t g = 0; g < softmax_.size(); ++g) {
    logits_.clear();
    for (std::size_t c = 0; c < sparf.tokens().size(); ++c)
      if (!left_out(dropped, sparf.tokens()[c]))
        logits_.push_back(simd::dot(q_.data() + g * d, sparf.key_rows()[c], d) * scale);
    const Exponentials sums = exponentials(logits_.data(), logits_.size());
    const float share = job.sparf.reallocate ? sparf.alpha()[g] : 1.0f;
    softmax_[g] = {sums.largest, share > 0.0f ? sums.sum / share : sums.sum};
  }
}

}  // namespace csdsim::engine

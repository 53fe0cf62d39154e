// Arithmetic of a head job, apart from its times: the scheduler runs the same phases whether data are carried or not.
#pragma once

#include <vector>

#include "attention_engine/core/attention.h"
#include "attention_engine/core/head_job.h"
#include "attention_engine/core/kv_source.h"
#include "attention_engine/core/page_groups.h"
#include "attention_engine/core/selection.h"
#include "attention_engine/core/sparf.h"

namespace csdsim::engine {

/// Called by the scheduler as a job passes its phases. Returned references hold until the next call for the same job.
class HeadWork {
 public:
  virtual ~HeadWork() = default;
  /// SparF, argtopk over |q| is done: E.
  virtual const PageGroups& select_components(JobId id, const HeadJob& job, const KvHeadView& view) = 0;
  /// SparF, all pages of phase A have arrived.
  virtual void score_tokens(JobId id, const HeadJob& job) = 0;
  /// SparF, argtopk over the scores is done: U.
  virtual const PageGroups& select_tokens(JobId id, const HeadJob& job, const KvHeadView& view) = 0;
  /// All pages of the last phase have arrived; `method` is what becomes of the job (effective_method).
  virtual void attend(JobId id, const HeadJob& job, Method method) = 0;
};

/// Computes the real answer from the real keys and values.
class CarriedWork : public HeadWork {
 public:
  /// `source` must outlive the work; `jobs_in_flight` is that of the engine.
  CarriedWork(const KvSource& source, std::uint32_t jobs_in_flight);
  const PageGroups& select_components(JobId id, const HeadJob& job, const KvHeadView& view) override;
  void score_tokens(JobId id, const HeadJob& job) override;
  const PageGroups& select_tokens(JobId id, const HeadJob& job, const KvHeadView& view) override;
  void attend(JobId id, const HeadJob& job, Method method) override;

 private:
  void widen_q(const HeadJob& job, std::uint32_t head_dim);
  void sum_chosen(JobId id, const HeadJob& job, const KvHeadView& view);

  const KvSource& source_;
  std::vector<SparfAttention> sparf_;  ///< by JobId
  DenseAttention dense_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<float> logits_;
  std::vector<SoftmaxSums> softmax_;
};

/// Takes E and U from a selection source and computes nothing.
class TimingWork : public HeadWork {
 public:
  /// `selection` must outlive the work.
  explicit TimingWork(SelectionSource& selection) : selection_(selection) {}
  const PageGroups& select_components(JobId, const HeadJob& job, const KvHeadView& view) override {
    selection_.components(job.key, view, job.sparf, groups_);
    return groups_;
  }
  void score_tokens(JobId, const HeadJob&) override {}
  const PageGroups& select_tokens(JobId, const HeadJob& job, const KvHeadView& view) override {
    selection_.tokens(job.key, view, job.sparf, groups_);
    return groups_;
  }
  void attend(JobId, const HeadJob&, Method) override {}

 private:
  SelectionSource& selection_;
  PageGroups groups_;
};

}  // namespace csdsim::engine

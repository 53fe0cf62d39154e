// A head's share of an attention command.
#pragma once

#include <cstdint>
#include <span>

#include "attention_engine/core/kv_source.h"
#include "attention_engine/core/sparf.h"
#include "base/units.h"
#include "contracts/method.h"
#include "contracts/token_score.h"

namespace csdsim::engine {

using csdsim::Method;

/// The range of a score job: tokens [first, end).
struct ScoreRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  ScorePrecision precision = ScorePrecision::fp16;

  bool operator==(const ScoreRange&) const = default;
};

/// Work on one KV head. The pointers are null in timing runs.
struct HeadJob {
  HeadKey key = {};
  Method method = Method::dense;
  std::uint32_t group = 1;    ///< G, query heads that share the KV head
  SparfParams sparf = {};     ///< for Method::sparf
  ScoreRange score = {};      ///< for Method::score
  const Half* q = nullptr;    ///< [G][d]
  Half* out = nullptr;        ///< dense, sparf: [G][d], what travels to the host
  float* out_fp32 = nullptr;  ///< dense, sparf: [G][d], before narrowing; optional
  float* scores = nullptr;    ///< score: [G][tokens of the range]
  float* softmax = nullptr;   ///< not for score: [G][2], m and z of KvAttend's section softmax; null: nobody merges
};

/// The method of a job once S is known: SparF on a head with S <= k is dense.
constexpr Method effective_method(const HeadJob& job, std::uint32_t tokens) {
  return job.method == Method::sparf && runs_dense(job.sparf, tokens) ? Method::dense : job.method;
}

/// The tokens that a job is about: its range, or all.
constexpr TokenRange token_range(const HeadJob& job, const KvHeadView& view) {
  return job.method == Method::score ? TokenRange{job.score.first, job.score.end} : TokenRange{0, view.tokens};
}

/// Pages of keys of a dense job whose logits the engine holds at most: softmax and output are computed online.
inline constexpr std::uint32_t kOnlineGroups = 64;

/// The bytes that a job holds in the engine's buffer from start to end. With S tokens (score: of its range), n in a
/// page:
///   dense  4 G min(S, kOnlineGroups n) (logits) + 8 G d (q and output in fp32)
///   sparf  4 G S + 4 G k (logits over J) + 8 G d
///   score  4 S + 4 G d
/// Rows of K and V are not in it: they stream from the flash controllers through a kernel, which keeps sums (m and z
/// among them).
Bytes job_footprint(const HeadJob& job, const KvHeadView& view);

using TaskId = StrongId<struct AttendTaskTag, std::uint64_t>;  ///< tasks of one scheduler, counted from 0
/// Slot of a job, below jobs_in_flight: unique among the jobs in flight, reused after a job's end.
using JobId = StrongId<struct HeadJobTag>;

/// Pages that a job asks for together: piece `piece` of its phase, counted from 0. With Intake::phase a phase is one
/// piece, with Intake::page each page is.
struct PageRead {
  JobId job;
  std::uint32_t piece = 0;
  bool operator==(const PageRead&) const = default;
};

}  // namespace csdsim::engine

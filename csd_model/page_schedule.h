// When the pages of an attention come, one by one: what rates leave out where there are few of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csd_model/drive_config.h"

namespace csdsim::csd_model {

/// Dense attention of a layer in one drive, behind reads of the block namespace. Times are in seconds.
struct ScheduledAttention {
  std::uint32_t heads = 1, sequences = 1;  ///< a job is a KV head of a sequence
  std::uint32_t groups = 0;                ///< of tokens of a head: each is a page of K and a page of V
  double tail_bytes = 0;                   ///< of all jobs, in no page
  double kernel = 0;                       ///< time of a job on a kernel
  std::uint64_t blocks = 0;                ///< pages of the block namespace, read from the beginning
  double queries_after = 0;                ///< from then on until the queries come
  double way = 0;                          ///< seconds in which a byte of the blocks leaves the drive
  std::uint32_t layers = 1;                ///< of the model: each has its pages in other planes
};

/// Seconds of a layer before which the drive is idle.
struct ScheduledTimes {
  double end = 0;        ///< until the last output
  double link_idle = 0;  ///< from the last page on the internal link to `end`; only behind a switch
};

/// Follows each page through its plane, its channel and, behind a switch, the internal link, and each job through its
/// slot and its kernel. Pages are where the mapping policy puts them; those of the block namespace follow the stripe.
/// Deterministic, and without a simulation kernel.
class PageSchedule {
 public:
  /// Whether the drive has only what the schedule knows: flash without cache registers, suspension, priorities and
  /// filters, a policy that chooses planes, an engine that starts a job when its last page is there.
  static bool covers(const DriveConfig& drive);
  /// Precondition: covers(drive). The drive must outlive the schedule.
  explicit PageSchedule(const DriveConfig& drive);
  ~PageSchedule();

  /// Pages of both namespaces that end() follows.
  static std::uint64_t pages(const ScheduledAttention& work) {
    return work.blocks + std::uint64_t{2} * work.groups * work.heads * work.sequences;
  }
  /// Of a layer, from the beginning of the reads to the last output, or to the last block where there are no jobs, on
  /// average over the first layers. Behind reads, the layers follow one another: what flash and the internal link have
  /// not done when a layer has its outputs delays the next one. What travels over the drive's link is left out.
  double end(const ScheduledAttention& work, std::uint32_t head_dim) const;
  /// The same where there are no blocks: the drive is idle before the queries. On average over the first layers.
  ScheduledTimes idle_before(const ScheduledAttention& work, std::uint32_t head_dim) const;
  /// The same for any number of pages: about 4,096 are followed, of the first sequences. Each further sequence takes as
  /// long as one in the second half of these.
  ScheduledTimes of_many(const ScheduledAttention& work, std::uint32_t head_dim) const;

 private:
  class Run;
  const DriveConfig& drive_;
  std::unique_ptr<ftl::KvMappingPolicy> mapping_;
};

}  // namespace csdsim::csd_model

// What a mapping policy costs: the same sequences come, grow, are attended and go under each policy, and its figures
// are taken. Mapping and flash are the real ones; there are no bytes, no engine and no host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "attention_engine/core/selection.h"
#include "base/address.h"
#include "base/units.h"
#include "ftl/core/kv_ftl.h"
#include "host_runtime/core/planner/sparf_budget.h"
#include "nfc/core/flash_timing.h"

namespace csdsim::experiment {

/// The drive and the sequences. Lengths are uniform in [least_tokens, most_tokens]; of each, `prompt_share` comes as
/// one prefill and the rest token by token. As soon as one has its length it is freed and the next one comes.
struct PolicyStudyConfig {
  FlashGeometry geometry;
  nfc::FlashTiming flash;
  ftl::BlockManagerConfig blocks;
  Bytes dram;
  std::uint32_t layers = 2;
  std::uint32_t kv_heads = 16;
  std::uint32_t head_dim = 128;
  std::uint32_t sequences = 32;  ///< in all
  std::uint32_t live = 8;        ///< at a time
  std::uint32_t least_tokens = 512;
  std::uint32_t most_tokens = 2048;
  double prompt_share = 0.5;
  std::uint32_t attend_every = 128;  ///< tokens of a sequence between two attends that are measured
  host::SparfParameters sparf;
  std::uint64_t seed = 1;
};

/// A policy with its tail policy and its embedding groups.
struct PolicyVariant {
  std::string policy;
  std::function<std::unique_ptr<ftl::KvMappingPolicy>(const FlashGeometry&)> make;
  ftl::KvFtlConfig kv;
};

/// Means are over the attends that were measured: all KV heads of one layer of one sequence, all flushes done, on flash
/// that does nothing else.
struct PolicyFigures {
  std::uint64_t appended_tokens = 0;    ///< x layers x heads
  std::uint64_t refused_sequences = 0;  ///< ended early: out of DRAM, or out of flash
  std::uint64_t attends = 0;

  // A head.
  double dense_pages = 0;
  double dense_bound = 0;  ///< 2 pages a full token group, 1 where K and V share it
  double score_pages = 0;  ///< phase A of SparF
  double score_bound =
      0;  ///< |E| per window, and one page per token group that is in no window yet (algorithms.md 3.3)
  double attend_pages = 0;  ///< phase B
  double attend_bound = 0;  ///< 2|U|, |U| where K and V share a page (algorithms.md 3.4)
  double lookups = 0;       ///< of a sparse attend

  double dense_imbalance = 0;  ///< pages of the busiest channel over the mean of all channels
  double sparse_imbalance = 0;
  SimTime dense_latency;  ///< of all heads, from the first page to the last
  SimTime sparse_latency;

  double write_amplification = 0;  ///< pages programmed over pages that hold groups and full windows once
  std::uint64_t programmed_pages = 0;
  std::uint64_t gc_pages = 0;         ///< moved by garbage collection
  std::uint64_t rewritten_pages = 0;  ///< embedding pages programmed before their window was full
  std::uint64_t read_back_pages = 0;  ///< K pages read to be transposed
  std::uint64_t misplaced_pages = 0;  ///< not in the plane that the policy asked for
  double erases_mean = 0;             ///< of a block
  std::uint32_t erases_most = 0;
  double occupancy = 0;  ///< bytes of rows over bytes of the pages that hold them

  Bytes dram_peak;
  Bytes table_peak;
  Bytes tail_peak;  ///< group buffers and component-major tails

  /// Pages, K and V, to read 16 tokens of one head: neighbours, and each in a group of its own; and how many times the
  /// pages that 16 rows of K and of V fill that is.
  std::uint32_t near_pages = 0;
  std::uint32_t scattered_pages = 0;
  double near_amplification = 0;
  double scattered_amplification = 0;

  std::uint64_t page_ops = 0;
  SimTime simulated;  ///< of all attends
};

/// UserError for a shape that the policy refuses, and for what the policy throws.
PolicyFigures study_policy(const PolicyStudyConfig& config, const PolicyVariant& variant,
                           engine::SelectionSource& selection);

}  // namespace csdsim::experiment

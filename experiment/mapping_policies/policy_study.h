// Measures the cost of mapping policies: every policy serves the same sequences, which are created, grow, are attended
// and are freed. The study uses the FTL and the flash model, without data, attention engine and host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "attention_engine/core/selection.h"
#include "base/address.h"
#include "base/units.h"
#include "ftl/kv/kv_ftl.h"
#include "host_runtime/core/plan/sparf_budget.h"
#include "nfc/core/flash_observers.h"
#include "nfc/core/flash_timing.h"

namespace csdsim::experiment {

/// The drive and the sequences. Lengths are uniform in [least_tokens, most_tokens]. The share `prompt_share` of a
/// sequence is one prefill, the rest comes token by token. A complete sequence is freed and the next one is created.
struct PolicyStudyConfig {
  FlashGeometry geometry;
  nfc::FlashTiming flash;
  ftl::BlockManagerConfig blocks;
  Bytes dram;
  std::uint32_t layers = 2;
  std::uint32_t kv_heads = 16;
  std::uint32_t head_dim = 128;
  std::uint32_t sequences = 32;  ///< total number
  std::uint32_t live = 8;        ///< number at a time
  std::uint32_t least_tokens = 512;
  std::uint32_t most_tokens = 2048;
  double prompt_share = 0.5;
  std::uint32_t attend_every = 128;  ///< tokens of a sequence between two measured attends
  host::SparfParameters sparf;
  std::uint64_t seed = 1;
};

/// A policy with its tail policy and its embedding groups.
struct PolicyVariant {
  std::string policy;
  std::function<std::unique_ptr<ftl::KvMappingPolicy>(const FlashGeometry&)> make;
  ftl::KvFtlConfig kv;
};

/// Figures of a policy. Means are over the measured attends. An attend reads all KV heads of one layer of one sequence
/// from otherwise idle flash, with all flushes done.
struct PolicyFigures {
  std::uint64_t appended_tokens = 0;    ///< x layers x heads
  std::uint64_t refused_sequences = 0;  ///< sequences that ended early: out of DRAM, or out of flash
  std::uint64_t attends = 0;

  // Means per head.
  double dense_pages = 0;
  double dense_bound = 0;  ///< 2 pages per full token group, 1 where K and V share a page
  double score_pages = 0;  ///< phase A of SparF
  /// |E| per window, and one page per token group that is in no window yet (docs/algorithms.md, Step A and Tail).
  double score_bound = 0;
  double attend_pages = 0;  ///< phase B
  double attend_bound = 0;  ///< 2|U|, |U| where K and V share a page (docs/algorithms.md, Step B)
  double lookups = 0;       ///< map lookups of a sparse attend

  double dense_imbalance = 0;  ///< pages of the busiest channel over the mean of all channels
  double sparse_imbalance = 0;
  SimTime dense_latency;  ///< all heads, from the first page to the last
  SimTime sparse_latency;

  double write_amplification = 0;  ///< programmed pages over the pages of token groups and full windows, counted once
  std::uint64_t programmed_pages = 0;
  std::uint64_t gc_pages = 0;         ///< pages moved by garbage collection
  std::uint64_t rewritten_pages = 0;  ///< embedding pages programmed before their window was full
  std::uint64_t read_back_pages = 0;  ///< K pages read back to be transposed
  std::uint64_t misplaced_pages = 0;  ///< pages outside the plane that the policy requested
  double erases_mean = 0;             ///< mean number of erases per block
  std::uint32_t erases_most = 0;      ///< maximum number of erases of a block
  double occupancy = 0;               ///< bytes of rows over bytes of the pages that hold them

  Bytes dram_peak;
  Bytes table_peak;
  Bytes tail_peak;  ///< group buffers and component-major tails

  /// K and V pages to read 16 tokens of one head: adjacent tokens, and tokens in 16 different groups. An amplification
  /// divides by the number of pages that 16 rows of K and V fill.
  std::uint32_t near_pages = 0;
  std::uint32_t scattered_pages = 0;
  double near_amplification = 0;
  double scattered_amplification = 0;

  std::uint64_t page_ops = 0;
  SimTime simulated;  ///< simulated time of all attends
};

/// Measures a policy; `observers` are told what the flash does. Throws UserError when the policy refuses the shape, and
/// for exceptions of the policy.
PolicyFigures study_policy(const PolicyStudyConfig& config, const PolicyVariant& variant,
                           engine::SelectionSource& selection, const nfc::FlashObservers& observers = {});

}  // namespace csdsim::experiment

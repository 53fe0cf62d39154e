// A feed-forward command as the engine sees it: one job over the records of a list of neurons.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_engine/core/feed_forward.h"
#include "base/units.h"
#include "contracts/page_op.h"

namespace csdsim::engine {

struct NeuronJob;

/// The pages of a job's records, and what is in them.
struct NeuronPages {
  std::vector<PageOp> pages;  ///< to be read from flash, in the order in which the neurons use them
  std::uint64_t lookups = 0;  ///< map entries that are looked up to find these pages
  /// [neuron]: pages that must have arrived, counted from the first one, before a kernel can start on the neuron.
  std::vector<std::uint32_t> needed;
  const Half* rows = nullptr;  ///< [neuron][matrix][D], valid until the end of the job; null in timing runs

  void clear() {
    pages.clear();
    lookups = 0;
    needed.clear();
    rows = nullptr;
  }
};

/// Finds the records of a job.
class NeuronSource {
 public:
  virtual ~NeuronSource() = default;
  /// Called when the job starts; its pages are read from then on. Fills `out`, which is empty.
  virtual void plan_records(const NeuronJob& job, NeuronPages& out) = 0;
};

/// The pointers are null in timing runs.
struct NeuronJob {
  FeedForwardShape shape = {};
  std::uint32_t neurons = 0;       ///< neurons of the list, at least 1
  NeuronSource* source = nullptr;  ///< must outlive the job
  std::uint64_t tag = 0;           ///< the source's own
  const Half* x = nullptr;         ///< [n][D]
  const Half* bias = nullptr;      ///< [neuron], null for 0
  float* y = nullptr;              ///< [n][D], what is added to
};

/// The bytes that a job holds in the engine's buffer from start to end: 8 n D, x and y in fp32. The rows of the records
/// are not in it: they stream from the flash controllers through a kernel.
constexpr Bytes job_footprint(const NeuronJob& job) { return {std::uint64_t{8} * job.shape.tokens * job.shape.width}; }

}  // namespace csdsim::engine

// The kernels take in the records of a feed-forward job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention_engine/core/neuron_job.h"

namespace csdsim::engine {

/// The kernels take the neurons in the order of the list, each when its pages and all pages before them have arrived.
/// All neurons of a job cost the same, so they also end in this order, and y is summed in it. At most `kernels` neurons
/// of a job are on kernels or queue for one: jobs that run side by side share the kernels.
class NeuronIntake {
 public:
  NeuronPages reads;  ///< reads of the job

  /// Starts a job; `reads` has been filled.
  void start(std::uint32_t kernels) {
    kernels_ = kernels;
    arrived_.assign(reads.pages.size(), false);
    prefix_ = begun_ = ended_ = taken_ = 0;
  }
  std::uint32_t neurons() const { return static_cast<std::uint32_t>(reads.needed.size()); }

  bool awaits(std::uint32_t page) const { return page < arrived_.size() && !arrived_[page]; }
  void arrive(std::uint32_t page) {
    arrived_[page] = true;
    while (prefix_ < arrived_.size() && arrived_[prefix_]) ++prefix_;
  }

  /// The next neuron may go to a kernel.
  bool ready() const { return begun_ < neurons() && begun_ < ended_ + kernels_ && reads.needed[begun_] <= prefix_; }
  void begin() { ++begun_; }
  void end() { ++ended_; }
  bool over() const { return ended_ == neurons(); }

  /// True if a page leaves its page buffer now, because a neuron that is next for a kernel needs it; pages leave in
  /// their order. The page is then take()n.
  bool can_take() const {
    const std::uint32_t next = std::min(neurons(), ended_ + kernels_);
    return taken_ < prefix_ && taken_ < reads.needed[next - 1];
  }
  std::uint32_t take() { return taken_++; }

 private:
  std::uint32_t kernels_ = 1;
  std::vector<bool> arrived_;
  std::uint32_t prefix_ = 0;  ///< pages that have arrived, from the first one on without a gap
  std::uint32_t begun_ = 0;   ///< neurons that went to a kernel
  std::uint32_t ended_ = 0;
  std::uint32_t taken_ = 0;
};

}  // namespace csdsim::engine

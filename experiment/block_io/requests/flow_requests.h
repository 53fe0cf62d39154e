// Several generators beside each other, each on its own part of the working set.
#pragma once

#include <memory>
#include <vector>

#include "experiment/block_io/requests/synthetic.h"

namespace csdsim::experiment::workload {

/// An endless source: stream i is flow i. In an open loop, where all flows have arrivals, next() ignores its argument
/// and merges the flows in the order of their times.
class FlowRequests final : public RequestSource {
 public:
  /// One flow. Its part of the working set begins at a multiple of `grain` and has `working_set` bytes, rounded down to
  /// `grain`.
  struct Flow {
    SyntheticConfig config;
    Bytes grain;
    std::optional<std::uint16_t> placement = std::nullopt;  ///< identifier of its writes
  };

  /// Throws UserError when the part of a flow cannot hold one of its requests.
  explicit FlowRequests(const std::vector<Flow>& flows);

  std::optional<BlockRequest> next(std::uint32_t stream) override;
  Bytes footprint() const override { return end_; }

 private:
  struct Part {
    std::unique_ptr<SyntheticRequests> requests;
    Bytes begin;
    std::optional<std::uint16_t> placement;
    std::optional<BlockRequest> arriving;  ///< open loops: the next request
  };
  BlockRequest make(std::uint32_t flow);

  std::vector<Part> parts_;
  Bytes end_;
  bool open_;
};

}  // namespace csdsim::experiment::workload

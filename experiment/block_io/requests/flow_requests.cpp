#include "experiment/block_io/requests/flow_requests.h"

#include <algorithm>
#include <utility>

namespace csdsim::experiment::workload {

FlowRequests::FlowRequests(const std::vector<Flow>& flows) : open_(flows.front().config.arrivals.has_value()) {
  for (const Flow& flow : flows) {
    const std::uint64_t grain = flow.grain.value;
    SyntheticConfig config = flow.config;
    config.working_set = Bytes{config.working_set.value / grain * grain};
    const Bytes begin{(end_.value + grain - 1) / grain * grain};
    parts_.push_back({std::make_unique<SyntheticRequests>(config), begin, flow.placement, std::nullopt});
    end_ = begin + config.working_set;
  }
  for (std::uint32_t flow = 0; open_ && flow < parts_.size(); ++flow) parts_[flow].arriving = make(flow);
}

BlockRequest FlowRequests::make(std::uint32_t flow) {
  Part& part = parts_.at(flow);
  BlockRequest request = part.requests->next(0).value();
  request.offset += part.begin;
  request.stream = flow;
  if (request.kind == RequestKind::write) request.placement = part.placement;
  return request;
}

std::optional<BlockRequest> FlowRequests::next(std::uint32_t stream) {
  if (!open_) return make(stream);
  const auto first = std::ranges::min_element(parts_, {}, [](const Part& part) { return part.arriving->at; });
  return std::exchange(first->arriving, make(static_cast<std::uint32_t>(first - parts_.begin())));
}

}  // namespace csdsim::experiment::workload

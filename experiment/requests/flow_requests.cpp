#include "experiment/requests/flow_requests.h"

namespace csdsim::experiment::workload {

FlowRequests::FlowRequests(const std::vector<Flow>& flows) {
  for (const Flow& flow : flows) {
    const std::uint64_t grain = flow.grain.value;
    SyntheticConfig config = flow.config;
    config.working_set = Bytes{config.working_set.value / grain * grain};
    const Bytes begin{(end_.value + grain - 1) / grain * grain};
    parts_.push_back({std::make_unique<SyntheticRequests>(config), begin});
    end_ = begin + config.working_set;
  }
}

std::optional<Request> FlowRequests::next(std::uint32_t stream) {
  Part& part = parts_.at(stream);
  std::optional<Request> request = part.requests->next(0);
  request->offset += part.begin;
  request->stream = stream;
  return request;
}

}  // namespace csdsim::experiment::workload

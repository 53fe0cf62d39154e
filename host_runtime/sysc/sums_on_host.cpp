#include "host_runtime/sysc/sums_on_host.h"

#include "attention_engine/core/feed_forward.h"
#include "host_runtime/core/plan/neuron_run.h"
#include "host_runtime/sysc/drive_feed_forward.h"

namespace csdsim::host {

NeuronSums sums_on_host(Bytes mdts) {
  return [mdts](const NeuronWork& work, std::span<const Half> x, std::span<const Half> rows,
                std::span<const Half> bias) {
    const engine::FeedForwardShape shape{
        .tokens = work.tokens,
        .width = work.width,
        .activation = work.activation == NeuronActivation::silu ? engine::Activation::silu : engine::Activation::relu,
        .gated = work.gated,
        .threshold = work.threshold};
    std::vector<float> sum(x.size());
    bool first = true;
    for (const auto& command : feed_forward_commands(work, mdts)) {
      const std::size_t neurons = neuron_count(command), elements = neurons * shape.row_elements();
      std::vector<float> part(x.size());
      engine::feed_forward(shape, x, rows.first(elements), bias.first(bias.empty() ? 0 : neurons), part);
      rows = rows.subspan(elements);
      if (!bias.empty()) bias = bias.subspan(neurons);
      if (first) sum = part;
      for (std::size_t i = 0; i < sum.size() && !first; ++i) sum[i] += part[i];
      first = false;
    }
    return sum;
  };
}

}  // namespace csdsim::host

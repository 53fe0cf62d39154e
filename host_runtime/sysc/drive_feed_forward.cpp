#include "host_runtime/sysc/drive_feed_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "host_runtime/sysc/kv_sections.h"
#include "nvme_if/spec/encode.h"

namespace csdsim::host {

namespace {

constexpr std::uint32_t kMostNeurons = 0xFFFF;  ///< most neurons of a command

nvme::FeedForward command_of(const NeuronWork& work, std::span<const NeuronRun> runs) {
  std::uint8_t flags = 0;
  if (work.gated) flags |= nvme::feed_forward_flag::gated;
  if (work.bias) flags |= nvme::feed_forward_flag::bias;
  return {.tokens = static_cast<std::uint16_t>(work.tokens),
          .width = static_cast<std::uint16_t>(work.width),
          .runs = static_cast<std::uint16_t>(runs.size()),
          .neurons = static_cast<std::uint16_t>(neuron_count(runs)),
          .activation =
              work.activation == NeuronActivation::silu ? nvme::NeuronActivation::silu : nvme::NeuronActivation::relu,
          .flags = flags,
          .threshold = work.threshold};
}

nvme::NeuronRun run_of(const NeuronRun& run) {
  return {.up = run.up.value,
          .gate = run.gate.value,
          .down = run.down.value,
          .count = run.count,
          .stride = static_cast<std::uint32_t>(run.stride.value)};
}

/// The results of an operation's commands, in carried runs.
struct Sums {
  std::vector<std::vector<float>> parts;  ///< [command]
  std::size_t missing = 0;
};

void hand_over(OperationData& data, const Operation& op, Sums& sums) {
  std::vector<float>& y = sums.parts.front();
  for (std::size_t part = 1; part < sums.parts.size(); ++part)
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += sums.parts[part][i];
  data.store_partial_sum(op, y);
}

}  // namespace

std::vector<std::vector<NeuronRun>> feed_forward_commands(const NeuronWork& work, Bytes mdts) {
  if (work.tokens == 0 || work.tokens > 0xFFFF || work.width == 0 || work.width > 0xFFFF)
    throw InternalError(fmt::format("feed-forward in a drive over {} tokens of width {}", work.tokens, work.width));
  const std::uint32_t neurons = neuron_count(work.runs);
  std::vector<std::vector<NeuronRun>> commands;
  for (std::uint32_t first = 0; first < neurons;) {
    // The largest count whose buffer fits, by bisection: the size grows with the count.
    std::uint32_t fits = 0, most = std::min(neurons - first, kMostNeurons);
    while (fits < most) {
      const std::uint32_t count = fits + (most - fits + 1) / 2;
      const std::vector<NeuronRun> slice = neuron_slice(work.runs, first, count);
      if (nvme::feed_forward_layout(command_of(work, slice)).size <= mdts) {
        fits = count;
      } else {
        most = count - 1;
      }
    }
    if (fits == 0)
      throw UserError(
          fmt::format("the feed-forward network of {} tokens of width {} in a drive exceeds the largest "
                      "transfer of a command, {} bytes (platform.device.nvme.mdts)",
                      work.tokens, work.width, mdts.value));
    commands.push_back(neuron_slice(work.runs, first, fits));
    first += fits;
  }
  return commands;
}

std::optional<SimTime> start_feed_forward(DriveCommands& commands, OperationData* data, const Operation& op,
                                          SimTime now) {
  const auto& work = std::get<NeuronWork>(op.work);
  const auto cut = feed_forward_commands(work, commands.platform().driver(op.resource.index).mdts());
  const std::size_t elements = std::size_t{work.tokens} * work.width;
  if (cut.empty()) {
    if (data != nullptr) data->store_partial_sum(op, std::vector<float>(elements));
    return SimTime{};
  }
  const auto sums = std::make_shared<Sums>();
  sums->parts.resize(cut.size());
  sums->missing = cut.size();
  const auto running = commands.begin_batch(op, now);
  std::uint32_t first = 0;
  for (std::size_t part = 0; part < cut.size(); ++part) {
    const nvme::FeedForward command = command_of(work, cut[part]);
    const nvme::FeedForwardLayout layout = nvme::feed_forward_layout(command);
    const DriveCommands::Buffer buffer = commands.allocate(work.memory, layout.size);
    for (std::size_t r = 0; r < cut[part].size(); ++r) {
      const nvme::NeuronRun run = run_of(cut[part][r]);
      std::memcpy(buffer.bytes + r * sizeof(run), &run, sizeof(run));
    }
    if (data != nullptr)
      data->load_network_input(op, first, halves(buffer.bytes + layout.x.value, elements),
                               halves(buffer.bytes + layout.bias.value, work.bias ? command.neurons : 0));
    first += command.neurons;
    commands.submit(running, commands.next_queue(running->drive()), nvme::encode(kKvNamespace, command), buffer,
                    operation_name(op.kind, op.tag), [&commands, data, &op, sums, part, buffer, layout, elements] {
                      if (data != nullptr) {
                        const std::span<const float> y = floats(buffer.bytes + layout.y.value, elements);
                        sums->parts[part].assign(y.begin(), y.end());
                        if (--sums->missing == 0) hand_over(*data, op, *sums);
                      }
                      commands.release(buffer);
                    });
  }
  commands.end_batch(running);
  return std::nullopt;
}

}  // namespace csdsim::host

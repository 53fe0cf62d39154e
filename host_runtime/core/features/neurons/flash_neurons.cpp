#include "host_runtime/core/features/neurons/flash_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::host {

namespace {

void sort_unique(std::vector<std::uint32_t>& neurons) {
  std::ranges::sort(neurons);
  neurons.erase(std::unique(neurons.begin(), neurons.end()), neurons.end());
}

}  // namespace

FlashNeurons::FlashNeurons(const FlashWeights& weights) : weights_(weights) {
  if (!weights.predicts()) throw InternalError("neurons in memory without a predictor");
  const std::uint32_t window = weights.options().window;
  for (std::uint32_t i = 0; i < weights.model().layers; ++i) {
    layers_.push_back({.memory = NeuronMemory(weights.model().ffn, weights.memory_rows())});
    if (window > 0) layers_.back().window.emplace(weights.model().ffn, window);
  }
}

const NeuronStep& FlashNeurons::step(LayerId layer, std::span<const std::uint32_t> active) {
  const std::vector<std::uint32_t> kept(active.begin(), active.end());
  return step(layer, active, {&kept, 1});
}

const NeuronStep& FlashNeurons::step(LayerId layer, std::span<const std::uint32_t> active,
                                     std::span<const std::vector<std::uint32_t>> kept) {
  Layer& of = layers_.at(layer.value);
  if (active.size() > of.memory.rows())
    throw UserError(
        fmt::format("system.memory_share: {} neurons of layer {} are active in one step, but memory has "
                    "room for {} of a layer; give it more, or take a smaller batch",
                    active.size(), layer.value, of.memory.rows()));
  NeuronStep& step = of.latest.emplace();
  step.active.assign(active.begin(), active.end());
  if (of.window) {
    std::vector<std::uint32_t> drop = std::exchange(of.passing, {});
    for (const std::vector<std::uint32_t>& of_token : kept) {
      const std::vector<std::uint32_t>& left = of.window->step(of_token).drop;
      drop.insert(drop.end(), left.begin(), left.end());
    }
    sort_unique(drop);
    std::erase_if(drop, [&](std::uint32_t neuron) {
      return of.window->contains(neuron) || std::ranges::binary_search(active, neuron);
    });
    step.update = of.memory.update(active, drop);
    std::ranges::copy_if(active, std::back_inserter(of.passing),
                         [&](std::uint32_t neuron) { return !of.window->contains(neuron); });
  } else {
    // Nothing stays from one token to the next.
    std::vector<std::uint32_t> all;
    for (std::uint32_t row = 0; row < of.memory.used(); ++row) all.push_back(of.memory.neuron_at(row));
    of.memory.update({}, all);
    step.update = of.memory.update(active, {});
  }
  step.kept = of.memory.used() - static_cast<std::uint32_t>(step.update.placed.size());
  loaded_ += step.update.placed.size();
  std::vector<std::uint32_t> load;
  for (const NeuronMemory::Placed& placed : step.update.placed) load.push_back(placed.neuron);
  step.reads = weights_.directory().reads(weights_.on_drive(layer), load, weights_.options().chunk);
  for (const RecordRead& read : step.reads)
    step.read_bytes += weights_.directory().format().block_size * read.extent.blocks;
  return step;
}

const NeuronStep& FlashNeurons::latest(LayerId layer) const {
  const std::optional<NeuronStep>& latest = layers_.at(layer.value).latest;
  if (!latest) throw InternalError(fmt::format("layer {} has had no decode step", layer.value));
  return *latest;
}

/// Rows are read and written; nothing starts if there are none.
ComputeWork FlashNeurons::copies(std::size_t rows) const {
  return {.op = OperatorClass::elementwise, .activations = weights_.row() * (2 * rows), .launches = rows > 0 ? 1U : 0U};
}

std::optional<Work> FlashNeurons::resolve(const Operation& op) const {
  if (op.tag.phase != Phase::decode || !op.tag.layer) return std::nullopt;
  const auto step = [&]() -> const NeuronStep& { return latest(*op.tag.layer); };
  const auto over = [&](std::uint32_t neurons) {
    std::uint64_t tokens = 0;
    for (const StepSequence& s : *op.tag.sequences) tokens += s.tokens;
    return weights_.feed_forward(tokens, neurons);
  };
  switch (op.kind) {
    case OpKind::read_blocks: {
      BlockWork work = std::get<BlockWork>(op.work);
      if (!work.extents.empty()) return std::nullopt;  // other weights
      for (const RecordRead& read : step().reads) work.extents.push_back(read.extent);
      return work;
    }
    case OpKind::transfer: {
      LinkWork work = std::get<LinkWork>(op.work);
      if (work.payload != LinkPayload::weights || work.bytes.value > 0) return std::nullopt;
      work.bytes = step().read_bytes;
      return work;
    }
    case OpKind::delete_records:
      return copies(step().update.moves.size());
    case OpKind::insert_records:
      return copies(step().update.placed.size());
    case OpKind::partial_feed_forward:
      return over(step().kept);
    case OpKind::feed_forward:
      return over(weights_.options().overlap_flash ? step().in_memory() - step().kept : step().in_memory());
    default:
      return std::nullopt;
  }
}

namespace {

std::variant<FlashNeurons, DriveNeurons> neurons_of(const FlashWeights& weights) {
  if (weights.options().in_drives) return DriveNeurons(weights);
  return FlashNeurons(weights);
}

}  // namespace

ModelledNeurons::ModelledNeurons(const FlashWeights& weights, std::unique_ptr<NeuronActivity> activity)
    : neurons_(neurons_of(weights)),
      activity_(std::move(activity)),
      steps_(weights.model().layers),
      accepted_(weights.model().layers) {}

ModelledNeurons::ModelledNeurons(const FlashWeights& weights, std::uint64_t seed)
    : ModelledNeurons(weights, std::make_unique<LocalityModel>(weights.options().locality, weights.model().ffn, seed)) {
}

void ModelledNeurons::speculate(const Speculation& speculation, std::uint64_t seed) {
  speculation_ = speculation;
  seed_ = seed;
}

std::uint32_t ModelledNeurons::accepted(std::uint32_t step, SequenceId sequence) const {
  const std::uint64_t of_step = counter_random(counter_random(seed_, sequence.value), step);
  std::uint32_t accepted = 0;
  while (accepted < speculation_.draft_tokens &&
         static_cast<double>(counter_random(of_step, accepted) >> 11) * 0x1p-53 < speculation_.acceptance)
    ++accepted;
  return accepted;
}

void ModelledNeurons::next(LayerId layer, MiniBatch mini_batch, std::span<const SequenceId> sequences) {
  const std::uint32_t drafted = speculation_.draft_tokens;
  active_.clear();
  kept_ = std::exchange(accepted_[layer.value], {});
  kept_.emplace_back();
  auto& drafts = accepted_[layer.value];
  for (const SequenceId sequence : sequences) {
    const std::uint32_t last = accepted(steps_[layer.value], sequence);
    if (drafts.size() < last) drafts.resize(last);
    for (std::uint32_t token = 0; token <= drafted; ++token) {
      activity_->next(sequence, layer, of_token_);
      active_.insert(active_.end(), of_token_.begin(), of_token_.end());
      if (token <= last) {
        std::vector<std::uint32_t>& stays = token == 0 ? kept_.back() : drafts[token - 1];
        stays.insert(stays.end(), of_token_.begin(), of_token_.end());
      }
      if (token == last && token < drafted) activity_->mark(sequence, layer);
    }
    if (last < drafted) activity_->go_back(sequence, layer);
  }
  sort_unique(active_);
  for (std::vector<std::uint32_t>& of_token : kept_) sort_unique(of_token);
  if (auto* const in_drives = std::get_if<DriveNeurons>(&neurons_))
    in_drives->step(layer, mini_batch, active_);
  else
    std::get<FlashNeurons>(neurons_).step(layer, active_, kept_);
  if (sequences.front() == SequenceId{0}) ++steps_[layer.value];
}

std::optional<Work> ModelledNeurons::resolve(const Operation& op) {
  if (op.kind == OpKind::select_neurons) {
    std::vector<SequenceId> sequences;
    for (const StepSequence& s : *op.tag.sequences) sequences.push_back(s.sequence);
    next(*op.tag.layer, op.tag.mini_batch, sequences);
    return std::nullopt;
  }
  return std::visit([&](const auto& neurons) { return neurons.resolve(op); }, neurons_);
}

void ModelledNeurons::skip_to(std::uint32_t step, std::uint32_t layers, std::uint32_t sequences) {
  std::vector<SequenceId> all(sequences);
  for (std::uint32_t i = 0; i < sequences; ++i) all[i] = SequenceId{i};
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    while (steps_.at(layer) < step) next(LayerId{layer}, MiniBatch{0}, all);
}

}  // namespace csdsim::host

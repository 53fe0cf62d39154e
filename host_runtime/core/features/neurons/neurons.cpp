#include "host_runtime/core/features/neurons/neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "host_runtime/core/features/neurons/flash_loading.h"

namespace csdsim::host {

const FlashNeurons* Neurons::in_memory() const {
  if (carried_) return carried_->neurons();
  return modelled_ ? modelled_->neurons() : nullptr;
}

void Neurons::check(config::Problems& problems, const CheckpointSources& sources) const {
  if (!weights_.asks_trained()) return;
  const char* at = "system.predictor";
  try {
    const auto trained = sources.trained();
    at = "system.predictor_rank";
    if (const auto& ranks = weights_.options().predictor_rank; !ranks.empty()) trained->check_ranks(ranks);
  } catch (const UserError& e) {
    problems.error_at(at, fmt::format("{}: {}", at, e.what()));
  }
}

void Neurons::complete(PlannerInputs& inputs, const CheckpointSources& sources) const {
  if (weights_.asks_trained()) inputs.predictor_rank = {sources.trained()->rank};
}

std::string Neurons::layers_differ() const {
  if (weights_.layers_alike()) return {};
  return weights_.tables().value > 0 ? "the system reads embeddings, which are outside the layers"
                                     : "predictors of different ranks make layers differ";
}

/// From the step on in which the window is full, all steps load equally much. While a long window fills, the load falls
/// steeply at first: steps 2, 4, 8, ... tell such parts apart.
std::vector<std::uint32_t> Neurons::breaks(std::uint32_t steps) const {
  const std::uint32_t window = weights_.options().window;
  if (!weights_.predicts() || window == 0) return {};
  std::vector<std::uint32_t> breaks;
  constexpr std::uint32_t kLong = 8;
  if (window > kLong)
    for (std::uint32_t step = 2; step < std::min(window, steps); step *= 2) breaks.push_back(step);
  if (window < steps) breaks.push_back(window);
  return breaks;
}

/// The network of a step runs over all neurons in memory, so that drafts change what a trained predictor leaves out.
HostRun Neurons::on_host() const {
  return {.follows_plan = true,
          .needs_drives = weights_.options().in_drives,
          .speculation = weights_.asks_trained(),
          .weights = weights_.options().quantisation};
}

std::unique_ptr<Planner> Neurons::loading() const { return std::make_unique<FlashLoading>(weights_); }

void Neurons::begin(const ModelledSources& sources) {
  if (!weights_.predicts()) return;
  if (sources.neurons)
    modelled_.emplace(weights_, sources.neurons());
  else
    modelled_.emplace(weights_, sources.seed);
  modelled_->speculate(speculation_, sources.seed);
}

CarriedFeature* Neurons::carry(DecoderData& data, const CheckpointSources& sources) {
  if (!predictor_ && weights_.asks_trained())
    predictor_ = std::make_shared<LowRankPredictor>(data.decoder(), sources.trained(),
                                                    weights_.options().threshold.value(), weights_.predictor_ranks());
  carried_.emplace(weights_, data.decoder(), *sources.weights, predictor_);
  carried_->set_sums(sources.sums);
  data_ = std::make_unique<NeuronData>(*carried_, data);
  return data_.get();
}

void Neurons::skip_to(std::uint32_t step, std::uint32_t layers, std::span<const std::uint32_t> prompts) {
  if (modelled_) modelled_->skip_to(step, layers, static_cast<std::uint32_t>(prompts.size()));
}

std::optional<Work> Neurons::resolve(const Operation& op) {
  if (carried_) return carried_->resolve(op);
  return modelled_ ? modelled_->resolve(op) : std::nullopt;
}

/// Operations are reported in the order of their ends.
void Neurons::observe(const OperationRecord& record, bool measured) {
  const bool in_drive = record.resource.kind == ResourceKind::drive_blocks;
  if (record.kind == OpKind::read_blocks || (record.kind == OpKind::feed_forward && in_drive)) {
    flash_bytes_ += record.moved;
    if (measured && record.tag.layer) layer_bytes_[record.tag.layer->value] += double(record.moved.value);
    SimTime start = record.start;
    while (!reads_.empty() && reads_.back().end >= start) {
      const Interval& joined = reads_.back();
      start = std::min(start, joined.start);
      flash_time_ -= joined.end - joined.start;
      reads_.pop_back();
    }
    reads_.push_back({start, record.end});
    flash_time_ += record.end - start;
  }
  if (record.kind == OpKind::delete_records || record.kind == OpKind::insert_records)
    memory_time_ += record.end - record.start;
}

void Neurons::count(std::vector<double>& totals) const {
  const FlashNeurons* const neurons = in_memory();
  totals.insert(totals.end(), {flash_time_.seconds(), memory_time_.seconds(), double(flash_bytes_.value),
                               neurons != nullptr ? double(neurons->loaded()) : 0});
}

/// Error by the steps between the measured ones, and by the layers beyond the simulated ones: both read as differently
/// as the measured ones do.
double Neurons::bytes_error(const FeatureCounts& counts) const {
  const double steps = counts.error(kFlashBytes);
  const auto model_layers = double(counts.layers), layers = double(layer_bytes_.size()),
             left_out = model_layers - layers;
  if (layers < 2 || left_out <= 0) return steps;
  double mean = 0, squares = 0;
  for (const auto& [layer, bytes] : layer_bytes_) mean += bytes / layers;
  for (const auto& [layer, bytes] : layer_bytes_) squares += (bytes - mean) * (bytes - mean);
  if (mean == 0) return steps;
  // What the layers left out read is so many times the mean of the simulated ones.
  const double deviation = std::sqrt(squares / (layers - 1)), of_sum = left_out * std::sqrt(1 / layers + 1 / left_out);
  return steps + 2 * deviation * of_sum / (model_layers * mean);
}

std::vector<FeatureMetric> Neurons::metrics() const {
  using Figure = double (*)(const FeatureCounts&);
  const auto per_step = [](Figure total) {
    return [total](const FeatureCounts& c) -> std::optional<double> {
      if (c.decode_steps == 0 || c.prefill[kFlashBytes] == 0) return std::nullopt;
      return total(c) / c.decode_steps;
    };
  };
  return {
      {.info = {.name = "flash_io_s_per_step",
                .unit = "s",
                .meaning =
                    "Weights in flash: time per decode step with a read of weights, or with a feed-forward network in "
                    "a drive."},
       .value = per_step([](const FeatureCounts& c) { return c.decode[kFlashTime]; })},
      {.info = {.name = "memory_management_s_per_step",
                .unit = "s",
                .meaning =
                    "Weights in flash: time per decode step in which neurons are deleted from memory and inserted."},
       .value = per_step([](const FeatureCounts& c) { return c.decode[kMemoryTime]; })},
      {.info = {.name = "compute_s_per_step",
                .unit = "s",
                .meaning = "Weights in flash: time per decode step in which the GPU computes."},
       .value = per_step([](const FeatureCounts& c) { return c.gpu_busy_s - c.decode[kMemoryTime]; })},
      {.info = {.name = "flash_bytes_per_step",
                .unit = "B",
                .meaning = "Weights in flash: bytes read per decode step, whole blocks."},
       .value = per_step([](const FeatureCounts& c) { return c.decode[kFlashBytes]; })},
      {.info = {.name = "flash_bytes_error_estimate",
                .unit = "1",
                .meaning = "Weights in flash: estimated relative error of flash_bytes_per_step by sampling."},
       .value = [this](const FeatureCounts& c) -> std::optional<double> {
         if (c.decode_steps == 0 || c.prefill[kFlashBytes] == 0) return std::nullopt;
         return bytes_error(c);
       }},
      {.info = {.name = "neurons_loaded_per_step",
                .unit = "neurons",
                .meaning = "Weights in flash: neurons read into memory per decode step, over all layers."},
       .value = per_step([](const FeatureCounts& c) { return c.decode[kLoaded]; })},
      {.info = {.name = "neurons_in_drives_per_step",
                .unit = "neurons",
                .meaning = "Networks in the drive: neurons that drives compute per decode step, over all layers."},
       .value = [](const FeatureCounts& c) -> std::optional<double> {
         return c.drive_neurons > 0 ? std::optional(c.drive_neurons / c.decode_steps) : std::nullopt;
       }}};
}

std::string Neurons::verify(nlohmann::ordered_json& stats) const {
  if (!carried_) return {};
  stats["wrong_records"] = carried_->wrong_rows();
  if (!weights_.predicts())
    stats["weights_read"] =
        "feed-forward networks; attention weights and embeddings are in memory in runs that carry data";
  if (weights_.asks_trained()) stats["predictor_rank"] = weights_.predictor_ranks();
  if (weights_.options().in_drives) stats["wrong_sums"] = carried_->wrong_sums();
  if (carried_->wrong_rows() > 0)
    return fmt::format("{} rows of weights read from drives are not the checkpoint's; the first: {}",
                       carried_->wrong_rows(), carried_->first_wrong());
  if (carried_->wrong_sums() > 0)
    return fmt::format("{} sums of drives are not those of the checkpoint's neurons; the first: {}",
                       carried_->wrong_sums(), carried_->first_wrong());
  return {};
}

}  // namespace csdsim::host

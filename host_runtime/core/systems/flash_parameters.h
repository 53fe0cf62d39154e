// The parameters of systems that keep weights in the block namespaces of drives.
#pragma once

#include <string>
#include <vector>

#include "host_runtime/core/features/neurons/flash_weights.h"
#include "host_runtime/core/plan/system.h"
#include "host_runtime/core/systems/element_bits.h"

namespace csdsim::host {

/// Each technique includes the ones before it, but for `hybrid`: instead of half the model, `predictor` and those after
/// it keep attention and embeddings in memory.
enum class FlashTechnique : std::uint8_t { naive, hybrid, predictor, windowing, bundling };

enum class RecordAlignment : std::uint8_t { aligned, packed };

struct FlashParameters {
  FlashTechnique technique = FlashTechnique::bundling;
  std::uint32_t window = 5;
  RecordAlignment layout = RecordAlignment::aligned;
  ElementBits weight_bits = ElementBits::sixteen;
  std::uint32_t weight_group = 64;
  std::optional<Ratio> resident_share;
  Ratio memory_share{1, 4};
  std::optional<Bytes> memory;
  PredictorKind predictor = PredictorKind::oracle;
  std::vector<std::uint32_t> predictor_rank;  ///< rank for all layers, or of each one; empty: auto
  Ratio threshold{1, 2};
  std::uint32_t threads = 32;
  Bytes chunk = Bytes::kib(32);
  bool overlap_flash = false;
  bool overlap_memory = false;
  Ratio active_share = Ratio::of(21, 200);
  Ratio concentration{3, 1};
  Ratio persistence = Ratio::of(2, 5);
  // Set by systems whose drives compute with the neurons; users cannot set them.
  bool in_drives = false;
  NeuronDivision division = NeuronDivision::layers;

  bool predicts() const { return technique >= FlashTechnique::predictor; }
  /// `carried`: the run carries data, and computes with attention weights in memory.
  FlashOptions options(bool carried = false) const;
};

void describe_flash(ParamVisitor& v, FlashParameters& flash);
/// Parts of describe_flash().
void describe_predictor(ParamVisitor& v, FlashParameters& flash);
void describe_reads(ParamVisitor& v, FlashParameters& flash);
void describe_locality(ParamVisitor& v, FlashParameters& flash);
void check_flash(config::Problems& problems, const SystemContext& context, const FlashParameters& flash);
std::vector<std::string> unused_flash_parameters(const FlashParameters& flash);
/// All weights by place, and the memory that reads need at the GPU; with `through_host` at the host, too.
std::vector<Resident> flash_residents(const FlashWeights& weights, const PlannerInputs& run, bool through_host = false);

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::FlashTechnique> {
  static constexpr EnumValue<host::FlashTechnique> values[] = {
      {host::FlashTechnique::naive, "naive", "All weights are read in every step."},
      {host::FlashTechnique::hybrid, "hybrid", "A share of the weights stays in memory, the others are read."},
      {host::FlashTechnique::predictor, "predictor",
       "Attention and embeddings stay in memory; of the feed-forward networks, the neurons that a predictor chooses "
       "are "
       "read, row by row."},
      {host::FlashTechnique::windowing, "windowing", "As predictor; neurons of the last tokens stay in memory."},
      {host::FlashTechnique::bundling, "bundling", "As windowing; the rows of a neuron are read together."}};
};

template <>
struct EnumValues<host::RecordAlignment> {
  static constexpr EnumValue<host::RecordAlignment> values[] = {
      {host::RecordAlignment::aligned, "aligned", "Every record starts at a logical block."},
      {host::RecordAlignment::packed, "packed", "Records follow one another without gaps."}};
};

template <>
struct EnumValues<host::PredictorKind> {
  static constexpr EnumValue<host::PredictorKind> values[] = {
      {host::PredictorKind::oracle, "oracle", "Exactly the neurons that fire, as the whole network would."},
      {host::PredictorKind::trained, "trained", "The low-rank predictor beside the checkpoint."}};
};

}  // namespace csdsim

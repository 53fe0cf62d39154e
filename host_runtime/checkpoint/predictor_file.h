// The file of a neuron predictor, which scripts/train/train_predictor.py writes.
#pragma once

#include <filesystem>
#include <memory>

#include "host_runtime/core/features/neurons/model/neuron_predictor.h"

namespace csdsim::host {

/// Reads a safetensors file with the tensors of LowRankWeights::load() and, in its metadata, `format`
/// (csdsim-neuron-predictor-1), `checkpoint_bytes` and `checkpoint_crc32` (WeightsDigest of the checkpoint that it was
/// trained on), and `fatrelu` if it was trained with FATReLU.
///
/// `config` is that of the checkpoint in `directory`, with the FATReLU of the run. UserError for a file that is broken,
/// of another checkpoint, of another FATReLU threshold, or of another shape.
std::shared_ptr<const LowRankWeights> open_predictor(const std::filesystem::path& file,
                                                     const std::filesystem::path& directory, const ModelConfig& config);

}  // namespace csdsim::host

// config.json of Hugging Face checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// Reads the shape of the model. UserError, all problems of the file at once as `file: field: expected ..., found ...`,
/// for fields that are missing, of the wrong type, out of range or contradictory, for variants that the decoder does
/// not implement, and for an unknown model_type (the known ones are listed).
/// Keys that nothing reads are refused, except those that say nothing about the computation. What the user should know,
/// such as a context that is longer than max_position_embeddings, is added to `notes` as `file: note: ...`.
ModelConfig read_config(const std::filesystem::path& path, std::vector<std::string>* notes = nullptr);

}  // namespace csdsim::host

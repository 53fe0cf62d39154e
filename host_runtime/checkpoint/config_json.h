// config.json of Hugging Face checkpoints.
#pragma once

#include <filesystem>

#include "host_runtime/core/model_config.h"

namespace csdsim::host {

/// Reads the shape of the model. UserError, all problems of the file at once as `file: field: expected ..., found ...`,
/// for fields that are missing, of the wrong type, out of range or contradictory, for variants that the decoder does
/// not implement, and for an unknown model_type (the known ones are listed).
ModelConfig read_config(const std::filesystem::path& path);

}  // namespace csdsim::host

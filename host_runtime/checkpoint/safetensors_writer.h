// Writes files in the safetensors format; see safetensors.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace csdsim::host {

/// A tensor of fp32, row-major.
struct FloatTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::span<const float> values;
};

/// Writes the tensors in the given order. UserError if the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const std::vector<FloatTensor>& tensors);

}  // namespace csdsim::host

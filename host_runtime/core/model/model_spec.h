// The configuration of the model: a preset, a checkpoint, or its sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fp16.h"
#include "base/param.h"
#include "base/units.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/model_shape.h"

namespace csdsim::host {

enum class Embeddings : std::uint8_t { tied, untied };
constexpr Embeddings embeddings_of(const ModelConfig& model) {
  return model.tied_embeddings ? Embeddings::tied : Embeddings::untied;
}

/// Section `model`: the decoder and the source of its sizes.
struct ModelSpec : ModelConfig {
  std::string preset;
  std::optional<InputPath> path;    ///< directory of a checkpoint; its sizes are read while loading
  std::optional<InputPath> config;  ///< a config.json without weights; its sizes are read while loading

  /// K or V of one token and head.
  Bytes row_bytes() const { return Bytes{std::uint64_t{head_dim} * sizeof(Half)}; }
  /// The sizes from which the costs of the model follow.
  ModelShape shape() const;
  Bytes weight_bytes() const { return shape().weight_bytes(); }
};

void describe(ParamVisitor& v, ModelSpec& c);

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::Architecture> {
  static constexpr EnumValue<host::Architecture> values[] = {
      {host::Architecture::opt, name_of(host::Architecture::opt),
       "Learned positions, two matrices and ReLU, biases everywhere."},
      {host::Architecture::llama, name_of(host::Architecture::llama),
       "Rotary positions, three matrices and a gate, no biases."},
      {host::Architecture::qwen2, name_of(host::Architecture::qwen2), "Like llama, with biases for Q, K and V."},
      {host::Architecture::mistral, name_of(host::Architecture::mistral), "Like llama."},
      {host::Architecture::qwen3, name_of(host::Architecture::qwen3),
       "Like llama, with norms of the heads of Q and K."}};
};
template <>
struct EnumValues<host::Embeddings> {
  static constexpr EnumValue<host::Embeddings> values[] = {
      {host::Embeddings::tied, "tied", "The output projection is the embedding table."},
      {host::Embeddings::untied, "untied", "The output projection has a separate table."}};
};

}  // namespace csdsim

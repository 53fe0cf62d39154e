// Writes checkpoints for tests: safetensors byte by byte (also wrong ones), and a tiny random OPT.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "tests/support/temporary_directory.h"

namespace csdsim::test {

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Length, header, data; `length` overrides the true header length.
inline std::string safetensors_bytes(const std::string& header, const std::string& data,
                                     std::uint64_t length = ~std::uint64_t{0}) {
  if (length == ~std::uint64_t{0}) length = header.size();
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes + header + data;
}

struct TensorData {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, TensorData>;

/// Encodes tensors as `dtype` (F32, F16 or BF16).
inline std::string encode_safetensors(const Tensors& tensors, const std::string& dtype) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    for (const float value : tensor.values) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      if (dtype == "F16") bits = float_to_half(value);
      if (dtype == "BF16") bits >>= 16;
      data.append(reinterpret_cast<const char*>(&bits), dtype == "F32" ? 4 : 2);
    }
    header[name] = {{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_bytes(header.dump(), data);
}

/// config.json of a tiny OPT: 2 layers, width 24, 3 heads of 8, FFN 40, 50 tokens, 32 positions.
inline nlohmann::json tiny_config() {
  return {{"model_type", "opt"},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 3},
          {"ffn_dim", 40},
          {"vocab_size", 50},
          {"max_position_embeddings", 32},
          {"tie_word_embeddings", true},
          {"word_embed_proj_dim", 24}};
}

/// config.json of a tiny Llama with grouped queries: 2 layers, width 24, 4 heads of 6 over 2, FFN 40.
inline nlohmann::json tiny_llama_config() {
  return {
      {"model_type", "llama"},    {"hidden_size", 24},       {"num_hidden_layers", 2}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}, {"intermediate_size", 40}, {"vocab_size", 50},       {"max_position_embeddings", 32},
      {"rms_norm_eps", 1e-5}};
}

/// Weights of tiny_config(): multiples of 1/64 below 2, so that every dtype holds them exactly.
inline Tensors tiny_weights(unsigned seed, const std::string& prefix = "model.decoder.") {
  std::mt19937 rng(seed);
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape, int spread = 16) {
    std::size_t count = 1;
    for (const auto extent : shape) count *= extent;
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(static_cast<int>(rng() % (2 * spread + 1)) - spread) / 64.0f;
    tensors[prefix + name] = {std::move(shape), std::move(values)};
  };
  const auto affine = [&](const std::string& name, std::uint64_t out, std::uint64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {24}, 64);
    add(name + ".bias", {24});
  };
  add("embed_tokens.weight", {50, 24}, 64);
  add("embed_positions.weight", {34, 24}, 64);
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    norm(layer + "self_attn_layer_norm");
    norm(layer + "final_layer_norm");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) affine(layer + "self_attn." + name, 24, 24);
    affine(layer + "fc1", 40, 24);
    affine(layer + "fc2", 24, 40);
  }
  norm("final_layer_norm");
  return tensors;
}

inline void write_checkpoint(const std::filesystem::path& directory, const nlohmann::json& config,
                             const Tensors& weights, const std::string& dtype) {
  write_file(directory / "config.json", config.dump());
  write_file(directory / "model.safetensors", encode_safetensors(weights, dtype));
}

/// What the UserError of `action` says.
inline std::string user_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

}  // namespace csdsim::test

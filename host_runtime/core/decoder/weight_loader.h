// Loads the parameters of a decoder and checks them against its configuration.
#pragma once

#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// A matrix and its bias; a norm's gain and shift.
struct Affine {
  Weight weight;
  Weight bias;
};

/// What the names of a decoder's tensors begin with: "model." + `prefix`, or `prefix` where the checkpoint is a bare
/// decoder. `probe` is a name (after the prefix) that decides between the two.
std::string tensor_prefix(const WeightSource& weights, const std::string& prefix, const std::string& probe);

/// Embeddings `table` that the output projection shares. UserError if the checkpoint has a projection with other
/// values; true if it has one with the same.
bool check_tied(const WeightSource& weights, const std::string& table);
/// UserError naming tensors of the checkpoint that are not `loaded`: the model would compute without them. Buffers that
/// older versions of transformers saved do not count.
void check_all_loaded(const WeightSource& weights, const std::set<std::string>& loaded);

class WeightLoader {
 public:
  /// The names begin with tensor_prefix(). `weights` and `backend` must outlive the loader.
  WeightLoader(const WeightSource& weights, Backend& backend, const std::string& prefix, const std::string& probe);

  /// UserError naming what is missing if the backend lacks one of `operators`.
  void need(Architecture architecture, std::span<const Operator> operators) const;

  /// A tensor by its full name. UserError if it is missing or has another shape than config.json implies.
  Weight matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) { return load(name, {rows, cols}); }
  Weight vector(const std::string& name, std::uint64_t size) { return load(name, {size}); }
  /// `name`.weight [out][in] and `name`.bias [out].
  Affine affine(const std::string& name, std::uint64_t out, std::uint64_t in) {
    return {matrix(name + ".weight", out, in), vector(name + ".bias", out)};
  }
  void check_tied(const std::string& table);
  void check_all_loaded() const { host::check_all_loaded(weights_, loaded_); }

  /// The full name of a tensor of the decoder.
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  Weight load(const std::string& name, const std::vector<std::uint64_t>& expected);

  const WeightSource& weights_;
  Backend& backend_;
  std::string prefix_;
  std::set<std::string> loaded_;
};

}  // namespace csdsim::host

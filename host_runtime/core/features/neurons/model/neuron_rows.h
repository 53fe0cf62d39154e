// The rows of a checkpoint's feed-forward networks, neuron by neuron, as records store them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

/// The feed-forward matrices of a checkpoint. The rows of a neuron are its row of up, its row of the gate if there is
/// one, and its column of down.
class NeuronRowSource {
 public:
  using Matrices = std::vector<std::vector<std::byte>>;  ///< as stored tensors, in the order of the rows

  /// `source` must outlive this. UserError for a checkpoint whose elements do not have 2 bytes.
  NeuronRowSource(const ModelConfig& config, const WeightSource& source, const RowQuantisation& quantisation);

  std::uint32_t matrices() const { return matrices_; }
  /// Bytes of a row as records have it.
  Bytes row() const { return quantisation_.row(width_, kElement); }
  /// Row `matrix` of a neuron, of row() bytes.
  void read(LayerId layer, std::uint32_t neuron, std::uint32_t matrix, std::span<std::byte> to) const;
  /// Puts a row into the matrix that it belongs to.
  void place(Matrices& matrices, std::uint32_t neuron, std::uint32_t matrix, std::span<const std::byte> row) const;
  Matrices zeros() const;
  /// The matrix as a tensor of the checkpoint's shape.
  StoredTensor tensor(LayerId layer, std::uint32_t matrix, std::span<const std::byte> bytes) const;
  /// The matrix with every row quantised and dequantised.
  std::vector<std::byte> rounded(LayerId layer, std::uint32_t matrix) const;
  const std::string& name(LayerId layer, std::uint32_t matrix) const { return layers_.at(layer.value).at(matrix).name; }

 private:
  static constexpr std::uint32_t kElement = 2;
  struct Stored {
    std::string name;
    StoredTensor tensor;
  };

  bool is_down(std::uint32_t matrix) const { return matrix + 1 == matrices_; }
  std::uint32_t neurons_;
  std::uint32_t width_;
  std::uint32_t matrices_ = 2;
  RowQuantisation quantisation_;
  std::vector<std::vector<Stored>> layers_;  ///< [layer][matrix]
};

/// A checkpoint whose feed-forward matrices have the values of quantised rows. The other tensors are as they are.
class RoundedWeights final : public WeightSource {
 public:
  /// `source` must outlive this. UserError as NeuronRowSource.
  RoundedWeights(const ModelConfig& config, const WeightSource& source, const RowQuantisation& quantisation);
  bool contains(std::string_view name) const override { return source_.contains(name); }
  StoredTensor tensor(std::string_view name) const override;
  std::vector<std::string> names() const override { return source_.names(); }
  void release(std::string_view name) const override { source_.release(name); }
  std::string description() const override { return source_.description(); }

 private:
  struct Matrix {
    LayerId layer;
    std::uint32_t matrix = 0;
  };
  const WeightSource& source_;
  NeuronRowSource rows_;
  std::map<std::string, Matrix, std::less<>> places_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> rounded_;  ///< those that were asked for
};

}  // namespace csdsim::host

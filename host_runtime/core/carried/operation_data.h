// The tensors behind a planner's operations, in runs that carry data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

class RunFeatures;

/// The function that a drive computes (feed_forward of NeuronWork): x is [token][width], `rows` are those of the
/// neurons in the order of the work's list, each up, gate (if any), down, and `bias` has one value per neuron or none.
/// The result is [token][width], with the bits of the drive.
using NeuronSums = std::function<std::vector<float>(const NeuronWork& work, std::span<const Half> x,
                                                    std::span<const Half> rows, std::span<const Half> bias)>;

/// Work of processors and links (OperationWork), and what commands of drives carry. `index` is the position of a
/// sequence (or extent) in the operation's work; heads are KV heads of the model, G query heads each; d is the head
/// dimension. Inputs are asked for when the operation starts, outputs are handed over when they arrive. Whoever does
/// not override a function refuses such operations with an InternalError.
class OperationData : public OperationWork {
 public:
  /// K and V of tokens [first, first + count) of what the operation appends, as [head][token][d].
  virtual void load_append(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                           HeadRange heads, std::span<Half> k, std::span<Half> v);

  /// Inputs of decoding attention of one sequence: q as [head * G][d], k and v as [head][d], empty where nothing is
  /// appended.
  virtual void load_attend(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q,
                           std::span<Half> k, std::span<Half> v);
  /// Its output, as [head * G][d].
  virtual void store_output(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out);
  /// The output of a partial attend (DriveWork::partial): o as [head * G][d], normalised, and m and z as [head * G][2].
  virtual void store_partial(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out,
                             std::span<const float> softmax);

  /// q of score_kv, as [head * G][d].
  virtual void load_queries(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q);
  /// Its scores of tokens first, first + 1, ... as the drive numbers them, as [list][token]: one list per head with
  /// per_head, otherwise one list over all heads of the operation. Called once per command, in any order: the parts of
  /// a sequence cover all lists and its range of tokens.
  virtual void store_scores(const Operation& op, std::size_t index, HeadRange heads, std::uint32_t first,
                            std::span<const float> scores);

  /// K and V of chosen tokens [first, first + count) of a fetch_kv, as [head][token][d].
  virtual void store_rows(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                          HeadRange heads, std::span<const Half> k, std::span<const Half> v);

  /// What write_blocks writes to extent `index`, and what read_blocks has read there.
  virtual void load_blocks(const Operation& op, std::size_t index, std::span<std::byte> bytes);
  virtual void store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes);

  /// Inputs of feed_forward of a drive: x as [token][width], and the biases of neurons [first, first + bias.size()) of
  /// the operation's list, empty where the network has none. Asked for once per command.
  virtual void load_network_input(const Operation& op, std::uint32_t first, std::span<Half> x, std::span<Half> bias);
  /// Its result, the sum over all neurons of the list, as [token][width].
  virtual void store_partial_sum(const Operation& op, std::span<const float> y);

  /// The features of the run; null: it has none.
  virtual const RunFeatures* features() const { return nullptr; }

  /// What steps have made of the tokens that they verified; null: each step makes one token.
  virtual const TokenProgress* progress() const { return nullptr; }

  /// Bytes from `at` on of range `index` of a file operation: what write_file writes there, and what read_file has
  /// read. Called once per I/O, in any order; inputs when the I/O starts.
  virtual void load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes);
  virtual void store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes);

 private:
  [[noreturn]] static void refuse(const Operation& op, std::string_view what);
};

}  // namespace csdsim::host

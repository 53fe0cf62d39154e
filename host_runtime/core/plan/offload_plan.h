// Plan and report of a decoder that runs for real on a GPU with K and V in host memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace csdsim::host {

/// The order of a step. Row by row: all layers of a mini-batch, then the next mini-batch. Column by column: all
/// mini-batches of a layer, then the next layer, so that the weights of a layer are used by all of them; the hidden
/// states of the mini-batches that wait are in host memory.
enum class LayerOrder : std::uint8_t { row_by_row, column_by_column };

struct OffloadPlan {
  /// Tokens of each sequence of a mini-batch that a step recomputes; at most its prompt.
  using Split = std::function<std::vector<std::uint32_t>(std::span<const std::uint32_t> cached,
                                                         std::span<const std::uint32_t> prompts)>;

  LayerOrder order = LayerOrder::row_by_row;
  std::uint32_t mini_batches = 1;
  bool weights_on_host = false;      ///< those of the layers are copied to the GPU when they are needed
  std::uint32_t weight_buffers = 2;  ///< layers of them that the GPU holds
  std::uint32_t kv_buffers = 2;      ///< layers of K and V of a mini-batch that the GPU holds
  Split split = {};                  ///< unset: nothing is recomputed, and no activations are kept
  bool activations_on_gpu = false;   ///< the kept ones, from which K and V are recomputed; otherwise in host memory
  bool hides_recomputation = true;   ///< it starts when W_K and W_V are there, not when all weights of a layer are
  bool waits_for_layers = false;     ///< the host waits for every layer before it starts the next one
};

/// The streams that copy between host and GPU.
enum class CopyStream : std::uint8_t { weights_in, kv_in, activations_in, recomputation_in, kv_out, activations_out };
inline constexpr std::size_t kCopyStreams = 6;
constexpr std::array<std::string_view, kCopyStreams> kCopyStreamNames{"weights_in",       "kv_in",  "activations_in",
                                                                      "recomputation_in", "kv_out", "activations_out"};

struct StreamUse {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< during which it copied, or computed, by CUDA events
};

struct OffloadReport {
  std::array<StreamUse, kCopyStreams> copies{};
  StreamUse compute{};                    ///< has no bytes
  double prefill_s = 0, decode_s = 0;     ///< seconds on the clock of the host, sampling included
  std::vector<std::uint64_t> recomputed;  ///< tokens of all sequences, by decode step
  std::vector<std::uint64_t> cached;      ///< likewise

  const StreamUse& of(CopyStream stream) const { return copies[static_cast<std::size_t>(stream)]; }
};

}  // namespace csdsim::host

// A method of attention on the GPU: its state beside the cache, and its choice of tokens.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/cuda/attention/choosing.h"
#include "host_runtime/cuda/attention/slot_array.h"
#include "host_runtime/cuda/cuda_backend.h"

namespace csdsim::host::cuda {

/// The sequences of a call, whose new tokens are in the caches of a layer; as arrays on the host and on the device.
struct Batch {
  std::vector<std::uint32_t> slots, rows, firsts, lengths;  ///< see SequenceView
  DeviceBuffer<std::uint32_t> on_device;                    ///< the four, one after another
  SequenceView view;
};

struct LayerCache {
  LayerId layer;
  CacheShape shape;
  const __half* keys = nullptr;
  const __half* values = nullptr;
};

/// The tokens to attend to, for decode_attention(); all tokens if there are no lists.
struct Choice {
  DeviceBuffer<std::uint32_t> chosen;  ///< [sequences][lists][stride]
  DeviceBuffer<std::uint32_t> counts;  ///< [sequences][lists]
  std::uint32_t lists = 0;
  std::uint32_t stride = 0;
  std::uint32_t most = 0;  ///< upper bound of the counts
};

/// Calls come in the order of an AttentionProvider, for one layer and several sequences; extend() follows each addition
/// to the cache. choose() may leave data in the object for finish() and describe().
class DeviceMethod {
 public:
  DeviceMethod(Context& context, const ModelConfig& config) : context_(context), config_(config) {}
  virtual ~DeviceMethod() = default;

  /// Makes room for slots of `capacity` tokens. It is called before the first use of a slot or token beyond the former
  /// size.
  virtual void reserve(std::size_t slots, std::size_t capacity) = 0;
  virtual void extend(const LayerCache&, const Batch&) {}
  virtual bool learns_from_prompt() const { return false; }
  /// q [rows][heads * d], on the host and on the device.
  virtual void learn(const LayerCache&, const Batch&, std::span<const float>, const __half*) {}
  virtual bool speculates() const { return false; }
  virtual void speculate(LayerId, std::span<const std::uint32_t>, const __half*) {}
  virtual void forget(std::uint32_t) {}

  /// q is [sequences][heads * d].
  virtual Choice choose(const LayerCache& cache, const Batch& batch, const __half* q) = 0;
  /// Called after the attention to the chosen tokens, whose result is `out`.
  virtual void finish(const LayerCache&, const Batch&, const Choice&, const __half*, float*) {}
  /// Fills the selections [sequence][kv head], except for `tokens`, which are filled already.
  virtual void describe(const Batch& batch, std::span<HeadSelection> selections);

 protected:
  const Stream& stream() const { return context_.stream; }
  DevicePool& pool() const { return context_.pool; }
  DeviceBuffer<std::uint32_t> on_device(std::span<const std::uint32_t> values) const;
  std::vector<std::uint32_t> budgets(const TokenBudget& budget, const Batch& batch) const;
  Choice empty_choice(const Batch& batch, std::uint32_t lists) const;
  /// Gives every list the count of its sequence.
  static std::vector<std::uint32_t> repeated(std::span<const std::uint32_t> values, std::uint32_t times);

  Context& context_;
  ModelConfig config_;
};

/// True if make_device_method() supports the method.
bool supports_on_device(const MethodOptions& options, const ModelConfig& config);
std::unique_ptr<DeviceMethod> make_device_method(Context& context, const ModelConfig& config,
                                                 const MethodOptions& options);

std::unique_ptr<DeviceMethod> make_sparq(Context& context, const ModelConfig& config, const SparqOptions& options);
std::unique_ptr<DeviceMethod> make_h2o(Context& context, const ModelConfig& config, const H2oOptions& options);
std::unique_ptr<DeviceMethod> make_infinigen(Context& context, const ModelConfig& config,
                                             const InfinigenOptions& options);
std::unique_ptr<DeviceMethod> make_chunks(Context& context, const ModelConfig& config, const ChunkOptions& options);
std::unique_ptr<DeviceMethod> make_importance(Context& context, const ModelConfig& config,
                                              const ImportanceOptions& options);

}  // namespace csdsim::host::cuda

// Names and places of the tensors that operations read, write and drop, in timing runs and in carried runs.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "contracts/kv_address.h"
#include "host_runtime/core/place.h"

namespace csdsim::host {

using MiniBatch = StrongId<struct MiniBatchTag>;  ///< part of the batch that is processed together, from 0

enum class Phase : std::uint8_t { prefill, decode };

/// The tokens that a step adds to a sequence of its mini-batch.
struct StepSequence {
  SequenceId sequence;
  std::uint32_t first_token = 0;  ///< tokens in the cache before the step
  std::uint32_t tokens = 0;       ///< tokens that the step adds: those of the prompt, or 1

  /// Tokens in the cache after the step.
  constexpr std::uint32_t context() const { return first_token + tokens; }
};

/// Position of an operation in the run.
struct OpTag {
  Phase phase = Phase::prefill;
  std::uint32_t step = 0;             ///< decode step, from 0; 0 in the prefill
  std::optional<LayerId> layer = {};  ///< empty for work outside the layers (embed, sample)
  MiniBatch mini_batch = {};
  /// The sequences of the mini-batch that take part in the step, in the order of their rows in its tensors. Null: all
  /// of them, the prefill of whole prompts followed by decode steps in lockstep.
  std::shared_ptr<const std::vector<StepSequence>> sequences = {};
};

enum class TensorClass : std::uint8_t {
  weights,           ///< parameters
  hidden,            ///< residual stream of a mini-batch
  layer_input,       ///< activations that enter a layer, kept to recompute K and V
  queries,           ///< q of the tokens of a step
  new_kv,            ///< k and v of the tokens of a step, before they join the cache
  kv_cache,          ///< K and V of all tokens so far
  fetched_kv,        ///< K and V of chosen tokens
  scores,            ///< importance of every token
  token_choice,      ///< indices of chosen tokens
  partial_output,    ///< o, m and z of attention over a part of the tokens
  attention_output,  ///< attention over all tokens
  records,           ///< rows of a feed-forward network, or other contents of blocks
  workspace,         ///< memory that an operation needs while it runs
  network_input,     ///< what enters a feed-forward network, in fp16
  partial_sum,       ///< outputs of some neurons of a feed-forward network, summed in fp32
};
inline constexpr std::size_t kTensorClasses = 15;
constexpr std::array<std::string_view, kTensorClasses> kTensorClassNames{
    "weights",          "hidden",     "layer_input", "queries",       "new_kv",
    "kv_cache",         "fetched_kv", "scores",      "token_choice",  "partial_output",
    "attention_output", "records",    "workspace",   "network_input", "partial_sum"};

/// Name of a tensor. A tensor that one step makes and uses has the number of the step in its name, so that two steps in
/// flight have different tensors. Tensors that are kept over steps have step 0.
struct TensorName {
  TensorClass what = TensorClass::hidden;
  std::uint32_t step = 0;  ///< 0: prefill, or kept over steps; s + 1: decode step s
  std::optional<LayerId> layer = {};
  MiniBatch mini_batch = {};
  HeadRange heads = {};    ///< KV heads of this part; empty: not split by heads
  std::uint32_t part = 0;  ///< tells tensors of the same heads over disjoint tokens apart
  auto operator<=>(const TensorName&) const = default;

  /// A tensor of the step, layer and mini-batch of an operation.
  static TensorName of(TensorClass what, const OpTag& tag, HeadRange heads = {}, std::uint32_t part = 0) {
    const bool first = tag.phase == Phase::prefill && tag.step == 0;
    return {what, first ? 0 : tag.step + 1, tag.layer, tag.mini_batch, heads, part};
  }
  /// A tensor that is kept over steps.
  static TensorName kept(TensorClass what, std::optional<LayerId> layer, MiniBatch mini_batch = {},
                         HeadRange heads = {}, std::uint32_t part = 0) {
    return {what, 0, layer, mini_batch, heads, part};
  }
};

struct SizedTensor {
  TensorName name;
  Bytes bytes;
};

struct PlacedTensor {
  TensorName name;
  Place place;
  Bytes bytes;
};

struct TensorAt {
  TensorName name;
  Place place;
};

/// Tokens [first, first + count) of a sequence in a tensor.
struct TokenSlice {
  SequenceId sequence;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// The tensors of an operation. The places of reads and writes follow from the operation (input_place(),
/// output_place()). A write states the size of the whole tensor after the operation, so that a cache can grow.
struct TensorUses {
  std::vector<TensorName> reads = {};
  std::vector<SizedTensor> writes = {};
  std::vector<TensorAt> drops = {};  ///< copies that are freed when the operation ends
  /// A transfer of K and V or of activations, or recompute_kv, takes these tokens only, and a transfer writes them
  /// under the name of its write. Empty: all tokens.
  std::vector<TokenSlice> tokens = {};
  /// The sizes are bounds: how much a transfer moves depends on data.
  bool bounds = false;
};

/// "new_kv of decode step 4, layer 3, mini-batch 0, KV heads 0..3".
std::string tensor_name(const TensorName& name);

}  // namespace csdsim::host

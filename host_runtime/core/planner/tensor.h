// Tensors by name and place: what operations read, write and leave behind, whether or not a run carries their bytes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/kv_address.h"
#include "base/units.h"

namespace csdsim::host {

using DriveIndex = StrongId<struct DriveIndexTag>;  ///< drive of the platform, from 0
using MiniBatch = StrongId<struct MiniBatchTag>;    ///< part of the batch that moves as one, from 0

enum class Phase : std::uint8_t { prefill, decode };

/// Where in the run an operation stands.
struct OpTag {
  Phase phase = Phase::prefill;
  std::uint32_t step = 0;             ///< decode step, from 0; 0 in the prefill
  std::optional<LayerId> layer = {};  ///< empty for work outside the layers (embed, sample)
  MiniBatch mini_batch = {};
};

using csdsim::HeadRange;

enum class PlaceKind : std::uint8_t { gpu, host, drive };
inline constexpr std::size_t kPlaceKinds = 3;

/// Where tensors live. `index` tells drives (or GPUs) apart; a host has one memory.
struct Place {
  PlaceKind kind = PlaceKind::gpu;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const Place&) const = default;

  static constexpr Place gpu(std::uint32_t index = 0) { return {PlaceKind::gpu, index}; }
  static constexpr Place host() { return {PlaceKind::host, 0}; }
  static constexpr Place drive(DriveIndex d) { return {PlaceKind::drive, d.value}; }
};

enum class TensorClass : std::uint8_t {
  weights,           ///< parameters
  hidden,            ///< residual stream of a mini-batch
  layer_input,       ///< hidden states that enter a layer, before its norm, kept to project K and V from them again
  queries,           ///< q of the tokens of a step
  new_kv,            ///< k and v of the tokens of a step, before they join the cache
  kv_cache,          ///< K and V of all tokens so far
  fetched_kv,        ///< K and V of chosen tokens
  scores,            ///< importance of every token
  token_choice,      ///< indices of chosen tokens
  partial_output,    ///< o, m and z of attention over a part of the tokens
  attention_output,  ///< attention over all tokens
  records,           ///< rows of a feed-forward network, or other contents of blocks
};
inline constexpr std::size_t kTensorClasses = 12;
constexpr std::array<std::string_view, kTensorClasses> kTensorClassNames{
    "weights",    "hidden", "layer_input",  "queries",        "new_kv",           "kv_cache",
    "fetched_kv", "scores", "token_choice", "partial_output", "attention_output", "records"};

/// One tensor. What a step makes and uses up bears the step's name, so that two steps in flight do not meet; what is
/// kept over steps has step 0.
struct TensorName {
  TensorClass what = TensorClass::hidden;
  std::uint32_t step = 0;  ///< 0: of the prefill, or kept over steps; s + 1: of decode step s
  std::optional<LayerId> layer = {};
  MiniBatch mini_batch = {};
  HeadRange heads = {};    ///< KV heads of the part; none: not split by heads
  std::uint32_t part = 0;  ///< tells tensors of the same heads over disjoint tokens apart
  auto operator<=>(const TensorName&) const = default;

  /// Of the step, layer and mini-batch of an operation.
  static TensorName of(TensorClass what, const OpTag& tag, HeadRange heads = {}, std::uint32_t part = 0) {
    return {what, tag.phase == Phase::prefill ? 0 : tag.step + 1, tag.layer, tag.mini_batch, heads, part};
  }
  /// Kept over steps.
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

/// What an operation does with tensors. Places of reads and writes follow from the operation (input_place(),
/// output_place()). A write gives the size of the whole tensor after the operation: a cache grows by being written.
struct TensorUses {
  std::vector<TensorName> reads = {};
  std::vector<SizedTensor> writes = {};
  std::vector<TensorAt> drops = {};  ///< nobody needs them there once the operation has ended
};

/// "gpu", "host", "drive 3".
std::string place_name(Place place);

/// "new_kv of decode step 4, layer 3, mini-batch 0, KV heads 0..3".
std::string tensor_name(const TensorName& name);

}  // namespace csdsim::host

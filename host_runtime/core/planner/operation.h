// The unit that planners emit and the executor runs: a kind of work, the resource it occupies and what it waits for.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/address.h"
#include "base/kv_address.h"
#include "base/units.h"

namespace csdsim::host {

using OperationId = StrongId<struct OperationTagType, std::uint64_t>;  ///< counts up from 0 in emission order
using DriveIndex = StrongId<struct DriveIndexTag>;                     ///< drive of the platform, from 0
using MiniBatch = StrongId<struct MiniBatchTag>;                       ///< part of the batch that moves as one, from 0

enum class Phase : std::uint8_t { prefill, decode };

/// What is done. A runtime that carries data maps each kind to work; nothing else of an operation is code.
enum class OpKind : std::uint8_t {
  embed,             ///< token and position embeddings of the mini-batch
  attention_inputs,  ///< norm and Q, K, V projections of a layer
  attention,         ///< attention outside the drive (prefill: dense and causal)
  append_kv,         ///< K and V of a layer travel to a drive, which keeps them
  attend,            ///< q, k, v of one token a sequence to a drive; it appends k, v, attends and returns the output
  finish_layer,      ///< output projection, norm, feed-forward network
  sample,            ///< language-model head and the choice of the next token; ends the mini-batch's step
  transfer,          ///< bytes over a link between host and GPU
};
inline constexpr std::size_t kOpKinds = 8;
constexpr std::array<std::string_view, kOpKinds> kOpKindNames{"embed",  "attention_inputs", "attention", "append_kv",
                                                              "attend", "finish_layer",     "sample",    "transfer"};

enum class ResourceKind : std::uint8_t { gpu, host, host_to_gpu, gpu_to_host, drive };

/// What an operation occupies while it runs. `index` tells drives (or GPUs) apart.
struct Resource {
  ResourceKind kind = ResourceKind::gpu;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const Resource&) const = default;

  static constexpr Resource gpu() { return {ResourceKind::gpu, 0}; }
  static constexpr Resource drive(DriveIndex d) { return {ResourceKind::drive, d.value}; }
};

/// Where in the run an operation stands.
struct OpTag {
  Phase phase = Phase::prefill;
  std::uint32_t step = 0;             ///< decode step, from 0; 0 in the prefill
  std::optional<LayerId> layer = {};  ///< empty for work outside the layers (embed, sample)
  MiniBatch mini_batch = {};
};

/// Selects the efficiency of the roofline.
enum class OperatorClass : std::uint8_t { gemm, attention, elementwise };
inline constexpr std::size_t kOperatorClasses = 3;

/// Work of a processor: `flops` counts a multiply-add as two.
struct ComputeWork {
  OperatorClass op = OperatorClass::gemm;
  std::uint64_t flops = 0;
  Bytes weights = {};          ///< parameters read
  Bytes activations = {};      ///< everything else read or written
  std::uint32_t launches = 1;  ///< kernels
  constexpr auto operator<=>(const ComputeWork&) const = default;
  constexpr Bytes bytes() const { return weights + activations; }
};

using csdsim::HeadRange;

enum class DriveMethod : std::uint8_t { dense, sparf };

/// One sequence's share of a drive operation.
struct SequenceWork {
  SequenceId sequence;
  TokenIndex first_token;    ///< first token appended
  std::uint32_t tokens = 0;  ///< tokens appended; 1 for attend
  std::uint32_t top_k = 0;   ///< tokens attended to (SparF's k); the context for dense
  std::uint32_t local = 0;   ///< newest tokens that are always among them (SparF's l)

  /// Tokens in the cache after the append: what attend runs over, the current token included.
  constexpr std::uint32_t context() const { return first_token.value + tokens; }
};

/// Work of a drive on one layer (OpTag::layer), for the KV heads it holds.
struct DriveWork {
  HeadRange heads;
  DriveMethod method = DriveMethod::dense;
  std::uint32_t components = 0;  ///< components of q that SparF scores with (r); 0 for dense
  std::vector<SequenceWork> sequences = {};
  Bytes to_drive = {};    ///< payload the drive reads: K and V, for attend also q
  Bytes from_drive = {};  ///< payload the drive writes: attention outputs
};

enum class LinkPayload : std::uint8_t { kv, activations, weights };

/// Bytes over the link that the operation's resource names.
struct LinkWork {
  Bytes bytes;
  LinkPayload payload = LinkPayload::activations;
};

using Work = std::variant<ComputeWork, DriveWork, LinkWork>;

struct Operation {
  OperationId id;
  OpKind kind = OpKind::embed;
  Resource resource;
  OpTag tag;
  std::vector<OperationId> deps;  ///< all smaller than `id`; may be of earlier layers and steps
  Work work;
};

/// "gpu", "drive 3": how reports and traces name a resource.
std::string resource_name(Resource resource);

/// "decode 17 layer 3 mini-batch 0 attend".
std::string operation_name(OpKind kind, const OpTag& tag);

}  // namespace csdsim::host

// An offload system: it streams the operations of a generation run, one step at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/planner/model_shape.h"
#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// Collects the operations of a step and numbers them.
class OperationSink {
 public:
  /// Appends an operation and returns its id. InternalError if a dependency has not been emitted before.
  OperationId add(OpKind kind, Resource resource, const OpTag& tag, Work work, std::vector<OperationId> deps,
                  TensorUses tensors = {});

  const std::vector<Operation>& operations() const { return operations_; }
  /// Hands over what was emitted since the last call; numbering goes on.
  std::vector<Operation> take();

 private:
  std::vector<Operation> operations_;
  std::uint64_t next_id_ = 0;
};

/// Streams a run into a bounded window of steps. A step is the prefill or one decode step of the whole batch; each of
/// its mini-batches ends with OpKind::sample.
class Planner {
 public:
  virtual ~Planner() = default;
  /// What lies where before the first step: weights, and in a span without the prefill K and V.
  virtual std::vector<PlacedTensor> resident() const { return {}; }
  /// Emits all operations of the next step, dependencies first. False when there is none left (nothing emitted).
  virtual bool next_step(OperationSink& sink) = 0;
};

/// A batch that generates the same number of tokens after prompts of any lengths. Sequence i is SequenceId{i}.
/// The prefill yields the first token; output_tokens - 1 decode steps follow. In decode step s, from 0, sequence i
/// appends token prompt_tokens[i] + s and attends over prompt_tokens[i] + s + 1 tokens.
struct BatchLengths {
  std::vector<std::uint32_t> prompt_tokens = {};
  std::uint32_t output_tokens = 1;

  std::uint32_t decode_steps() const { return output_tokens - 1; }
  /// UserError for an empty batch, an empty prompt or no output.
  void validate() const;
};

/// The stretch of a run to emit: the prefill, if wanted, then `decode_steps` steps from `first_step` on.
struct PlanSpan {
  bool prefill = true;
  std::uint32_t first_step = 0;
  std::uint32_t decode_steps = 0;
};

/// What every system plans from; a system's own parameters stand beside its planner.
struct PlannerInputs {
  ModelShape model;
  BatchLengths workload;
  PlanSpan span = {};
  std::uint32_t drives = 1;
  std::uint32_t mini_batches = 2;  ///< source: assumed, InstInfer states no micro-batch size
  /// Between GPU and drives, through host memory: a copy over the GPU's link before and after. Unset: peer to peer.
  bool through_host = false;
};

/// `total` items in `parts` consecutive runs whose lengths differ by at most one, longer ones first: {first, count}.
struct Share {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};
std::vector<Share> even_shares(std::uint32_t total, std::uint32_t parts);

/// The KV heads that each drive holds. UserError if there are more drives than heads.
std::vector<HeadRange> shard_heads(std::uint32_t kv_heads, std::uint32_t drives);

}  // namespace csdsim::host

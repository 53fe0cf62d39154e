// The interface of planners: a planner emits the operations of a generation run, one step at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/core/request.h"

namespace csdsim::host {

/// Collects the operations of a step and numbers them.
class OperationSink {
 public:
  /// Appends an operation and returns its id. Throws InternalError if a dependency has not been emitted before.
  OperationId add(OpKind kind, Resource resource, const OpTag& tag, Work work, std::vector<OperationId> deps,
                  TensorUses tensors = {});

  const std::vector<Operation>& operations() const { return operations_; }
  /// Returns and removes the operations emitted since the last call; the numbering continues.
  std::vector<Operation> take();

  /// Simulated time at which the step is asked for; set by the executor.
  SimTime now() const { return now_; }
  void set_now(SimTime now) { now_ = now; }
  /// Instead of a step: the planner is to be asked again at `time`. InternalError if this is not in the future.
  void wait_until(SimTime time);
  /// Returns and removes the time given to wait_until() since the last call.
  std::optional<SimTime> take_wait() { return std::exchange(wait_, std::nullopt); }

 private:
  std::vector<Operation> operations_;
  std::uint64_t next_id_ = 0;
  SimTime now_{};
  std::optional<SimTime> wait_;
};

/// A file that a plan reads and writes.
struct PlannedFile {
  DriveIndex drive;
  std::string name;
  Bytes size;  ///< at the end of the run
  /// What the steps before the span have written or read, in the order of its last use. For runs that skip steps.
  std::vector<FileRange> written = {};
};

/// Blocks [0, blocks) of a drive's block namespace that hold data before the run.
struct PlannedBlocks {
  DriveIndex drive;
  std::uint64_t blocks = 0;
};

/// Emits the operations of a run step by step. A step is the prefill or one decode step of the whole batch; each of its
/// mini-batches ends with OpKind::sample.
class Planner {
 public:
  virtual ~Planner() = default;
  /// Tensors that exist before the first step: weights, and K and V if the span has no prefill.
  virtual std::vector<PlacedTensor> resident() const { return {}; }
  /// The files of the plan, in the order of their use in a step.
  virtual std::vector<PlannedFile> files() const { return {}; }
  /// Contents of the block namespaces before the first step, apart from files.
  virtual std::vector<PlannedBlocks> blocks() const { return {}; }
  /// Share of the bytes in files() that is accessed between two accesses that find the same bytes again: a page cache
  /// that holds less of them finds none. One for a cyclic scan.
  virtual double reuse_distance() const { return 1; }
  /// Emits all operations of the next step, dependencies first. Returns false, and emits nothing, after the last step.
  virtual bool next_step(OperationSink& sink) = 0;
  /// Layers of which copies, or work on them, begin before the GPU computes the layer. Those of the first layers of a
  /// step begin in the step before it.
  virtual std::uint32_t layers_ahead() const { return 0; }
  /// True: the next step depends on the time. The executor asks for it when all earlier steps have sampled; otherwise
  /// as soon as its window has room.
  virtual bool decides_late() const { return false; }
  /// An operation of the plan starts or has ended, after its data has moved.
  virtual void started(const Operation&, SimTime) {}
  virtual void ended(const Operation&, SimTime) {}
  /// The requests of the run, in the order of the workload, with the times of their lives so far.
  virtual std::span<const Request> requests() const { return {}; }
};

/// Speculative decoding (Leviathan et al., arXiv 2211.17192): a small model drafts tokens, and one decode step verifies
/// them together with the latest token. A draft token is accepted with a probability if those before it are; the step
/// yields the accepted ones and one more, which the model itself chooses.
struct Speculation {
  std::uint32_t draft_tokens = 0;  ///< 0: no speculation
  double acceptance = 0;
  SimTime draft_time{};  ///< per draft token, of the processor that decodes

  /// Mean tokens that a step yields.
  double gain() const;
};

/// What a run whose steps verify real tokens knows after each step.
class TokenProgress {
 public:
  virtual ~TokenProgress() = default;
  /// Tokens that a sequence has generated.
  virtual std::uint32_t generated(SequenceId sequence) const = 0;
  /// Tokens that its next step verifies behind the latest one.
  virtual std::uint32_t proposed(SequenceId sequence) const = 0;
};

/// A batch of prompts of any lengths, which generate equally many tokens, or each its own number. Request i has
/// SequenceId{i}. The prefill yields the first token; output_tokens - 1 decode steps follow. In decode step s, from 0,
/// request i appends token prompt + s and attends over prompt + s + 1 tokens. It leaves the batch after the step that
/// yields its last token, and its K and V are freed.
struct BatchLengths {
  std::vector<Request> requests = {};
  std::uint32_t output_tokens = 1;  ///< output tokens of every request; with their own outputs, the largest of them
  bool own = false;                 ///< Request::output counts; otherwise output_tokens
  /// Requests are in the order of their arrivals and each waits for one of `places`, first come, first served. False:
  /// they are one batch.
  bool arrive = false;
  std::uint32_t places = 0;  ///< if they arrive: most requests that run at a time
  /// With draft tokens, all sequences generate output_tokens, and a step s begins when generated_before(s) are there.
  Speculation speculation = {};

  BatchLengths() = default;
  BatchLengths(const std::vector<std::uint32_t>& prompts, std::uint32_t output, Speculation drafts = {});
  /// Requests that generate their own numbers of tokens. InternalError for other numbers of outputs than of prompts.
  static BatchLengths with_outputs(const std::vector<std::uint32_t>& prompts,
                                   const std::vector<std::uint32_t>& outputs);
  static BatchLengths with_outputs(std::vector<Request> requests);

  bool own_outputs() const { return own; }
  bool served() const { return arrive; }
  std::size_t size() const { return requests.size(); }
  std::uint32_t prompt_of(SequenceId sequence) const { return requests[sequence.value].prompt; }
  std::vector<std::uint32_t> prompts() const;
  void set_prompts(const std::vector<std::uint32_t>& prompts);
  /// Sequences in the cache at a time, at most.
  std::uint32_t batch() const { return served() ? places : static_cast<std::uint32_t>(size()); }
  std::uint32_t output_of(std::size_t sequence) const { return own ? requests[sequence].output : output_tokens; }
  /// Tokens of the prompt and the output.
  std::uint32_t length_of(std::size_t sequence) const { return requests[sequence].prompt + output_of(sequence); }
  /// Steps until the last sequence ends.
  std::uint32_t decode_steps() const;
  /// Tokens that a sequence has generated before a decode step.
  std::uint32_t generated_before(std::uint32_t step) const;
  /// Tokens that the run generates, over all sequences.
  std::uint64_t generated() const;
  /// The largest number of tokens that are in the cache at a time, over all sequences; with arrivals an upper bound,
  /// because it depends on time who runs together.
  std::uint64_t longest_contexts() const;
  /// Tokens that ever join the cache, over all sequences: what files hold, which do not shrink when sequences end. With
  /// arrivals, the longest request at each place.
  std::uint64_t kept_tokens() const;
  /// Tokens that join the cache: all but the last one, which is never fed.
  std::uint64_t fed_tokens() const;
  /// The longest prompt with its output.
  std::uint64_t longest_sequence() const;
  /// The batch of its first sequences.
  BatchLengths first(std::size_t sequences) const;
  /// Throws UserError for an empty batch, an empty prompt or no output, InternalError for an output_tokens that is not
  /// the largest output.
  void validate() const;

 private:
  std::uint64_t most_contexts_of_places() const;
  void validate_arrivals() const;
};

/// A consecutive range of items.
struct Share {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// The part of a run to emit: the prefill if `prefill` is set, then `decode_steps` steps from `first_step` on. Steps
/// with some of the layers keep processors and drives busy before and after the steps that a sample measures.
struct PlanSpan {
  bool prefill = true;
  std::uint32_t first_step = 0;
  std::uint32_t decode_steps = 0;
  std::uint32_t late_steps = 0;  ///< the first ones of them, which have only the last `late_layers` layers
  std::uint32_t late_layers = 0;
  std::uint32_t early_steps = 0;  ///< the last ones of them, which have only the first `early_layers` layers
  std::uint32_t early_layers = 0;

  /// The layers of a decode step in a model of `layers`.
  Share layers_of(std::uint32_t step, std::uint32_t layers) const;
};

/// Inputs of every planner; parameters of one system are separate.
struct PlannerInputs {
  ModelShape model;
  BatchLengths workload;
  PlanSpan span = {};
  std::uint32_t drives = 1;
  /// Data parallel: mini-batch m runs on GPU m modulo `gpus`, and every GPU has all weights. At most the mini-batches.
  std::uint32_t gpus = 1;
  std::uint32_t mini_batches = 2;  ///< source: assumed, InstInfer states no micro-batch size
  /// False: a mini-batch begins a layer only when the mini-batch before it on the same GPU has finished its layer.
  bool overlap_mini_batches = true;
  /// True: data between GPU and drives passes through host memory and is copied over the GPU's link. False: peer to
  /// peer.
  bool through_host = false;
  Bytes block_size{4096};  ///< block size of the drives' block namespaces
  bool carried = false;    ///< the run carries data
  /// Layers of the whole model where `model` has some of them, in sampled runs: what is a share of the model is a share
  /// of the whole one. 0: model.layers.
  std::uint32_t whole_layers = 0;
  /// Inner dimension of the checkpoint's predictor of neurons: of all layers, or of each one. Empty: there is none.
  std::vector<std::uint32_t> predictor_rank = {};
  /// Says how many tokens steps accept; must outlive the planner. Null: they are accepted with the probability of
  /// BatchLengths::speculation.
  const TokenProgress* progress = nullptr;
};

/// Divides `total` items into `parts` ranges whose lengths differ by at most one, longer ones first.
std::vector<Share> even_shares(std::uint32_t total, std::uint32_t parts);

/// The KV heads of each drive. Throws UserError if there are more drives than heads.
std::vector<HeadRange> shard_heads(std::uint32_t kv_heads, std::uint32_t drives);

}  // namespace csdsim::host

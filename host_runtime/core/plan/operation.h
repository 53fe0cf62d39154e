// Operations, which planners emit and the executor runs: a kind of work, the resource that it occupies and its
// dependencies.
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
#include "base/units.h"
#include "contracts/kv_address.h"
#include "contracts/method.h"
#include "contracts/token_score.h"
#include "host_runtime/core/plan/extent.h"
#include "host_runtime/core/plan/neuron_run.h"
#include "host_runtime/core/plan/tensor.h"

namespace csdsim::host {

using OperationId = StrongId<struct OperationTagType, std::uint64_t>;  ///< counts up from 0 in emission order

/// The kind of work. In runs that carry data, the runtime maps each kind to code.
enum class OpKind : std::uint8_t {
  embed,             ///< token and position embeddings of the mini-batch
  attention_inputs,  ///< norm and Q, K, V projections of a layer
  attention,         ///< attention on a processor: in prefill dense and causal, in decode over K and V in its memory
  append_kv,         ///< transfers K and V of a layer to a drive, which stores them
  attend,            ///< sends q (and k, v of a new token) to a drive, which appends k, v and returns the output
  finish_layer,      ///< output projection, norm, feed-forward network
  sample,            ///< language-model head and the choice of the next token; ends the mini-batch's step
  transfer,          ///< tensors over a link between host and GPU
  create_kv,         ///< a drive creates sequences
  fork_kv,           ///< a drive creates sequences that share the tokens of another, without copying them
  free_kv,           ///< a drive frees sequences; a processor, their part of the kv_cache tensors that it writes
  score_kv,          ///< a drive scores a range of its tokens: q . k, combined over query heads
  fetch_kv,          ///< a drive returns K and V of chosen tokens
  select_tokens,     ///< choice of tokens by their scores
  merge_attention,   ///< partial results (o, m, z) of several places become one attention output
  recompute_kv,      ///< K and V from the activations that enter their projections
  feed_forward,      ///< feed-forward network over the available records (neurons)
  read_blocks,       ///< extents of a drive's block namespace are read
  write_blocks,      ///< extents of a drive's block namespace are written
  read_file,         ///< ranges of a file are read by threads of the host
  write_file,        ///< ranges of a file are written by threads of the host
  finish_attention,  ///< output projection, residual and norm: finish_layer without the feed-forward network
  select_neurons,    ///< a predictor chooses the neurons of a layer that take part in the step
  delete_records,    ///< records that left the window make room in the matrix of those in memory
  insert_records,    ///< records that were read are copied to that matrix
  partial_feed_forward,  ///< feed-forward network over the records in memory while others are read
  merge_feed_forward,    ///< sums of feed_forward of drives, the bias and the residual become the hidden states
  merge_scores,          ///< scores that a drive has sent join those that the host has
  gather_kv,             ///< K and V of chosen tokens are copied together in host memory
  update_pools,          ///< promoted tokens join those in host memory, demoted ones leave it
};
inline constexpr std::size_t kOpKinds = 30;
constexpr std::array<std::string_view, kOpKinds> kOpKindNames{"embed",
                                                              "attention_inputs",
                                                              "attention",
                                                              "append_kv",
                                                              "attend",
                                                              "finish_layer",
                                                              "sample",
                                                              "transfer",
                                                              "create_kv",
                                                              "fork_kv",
                                                              "free_kv",
                                                              "score_kv",
                                                              "fetch_kv",
                                                              "select_tokens",
                                                              "merge_attention",
                                                              "recompute_kv",
                                                              "feed_forward",
                                                              "read_blocks",
                                                              "write_blocks",
                                                              "read_file",
                                                              "write_file",
                                                              "finish_attention",
                                                              "select_neurons",
                                                              "delete_records",
                                                              "insert_records",
                                                              "partial_feed_forward",
                                                              "merge_feed_forward",
                                                              "merge_scores",
                                                              "gather_kv",
                                                              "update_pools"};

/// Each direction of a link is a separate resource. A drive has two resources: commands of its KV namespace and of its
/// block namespace. Its link is part of the drive's model. `file` is the path of the host's threads to files on a
/// drive.
enum class ResourceKind : std::uint8_t { gpu, host, host_to_gpu, gpu_to_host, drive_kv, drive_blocks, file };
inline constexpr std::size_t kResourceKinds = 7;

/// The resource that an operation occupies while it runs. `index` distinguishes drives (or GPUs).
struct Resource {
  ResourceKind kind = ResourceKind::gpu;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const Resource&) const = default;

  static constexpr Resource gpu(std::uint32_t index = 0) { return {ResourceKind::gpu, index}; }
  static constexpr Resource host() { return {ResourceKind::host, 0}; }
  static constexpr Resource drive(DriveIndex d) { return {ResourceKind::drive_kv, d.value}; }
  static constexpr Resource drive_blocks(DriveIndex d) { return {ResourceKind::drive_blocks, d.value}; }
  static constexpr Resource file(DriveIndex d) { return {ResourceKind::file, d.value}; }
};

/// Selects the efficiency in the roofline model.
enum class OperatorClass : std::uint8_t { gemm, attention, elementwise };
inline constexpr std::size_t kOperatorClasses = 3;

/// Work of a processor: `flops` counts a multiply-add as two.
struct ComputeWork {
  OperatorClass op = OperatorClass::gemm;
  std::uint64_t flops = 0;
  Bytes weights = {};          ///< parameters read
  Bytes activations = {};      ///< everything else read or written
  std::uint32_t launches = 1;  ///< number of kernels
  SimTime software{};          ///< further time, in which the software of the host keeps the processor waiting
  constexpr auto operator<=>(const ComputeWork&) const = default;
  constexpr Bytes bytes() const { return weights + activations; }
};

/// One sequence's share of an append or attend operation.
struct SequenceWork {
  SequenceId sequence;
  TokenIndex first_token;    ///< first token appended, as the drive numbers the tokens that it holds, from 0
  std::uint32_t tokens = 0;  ///< tokens appended; for attend 1, or 0 to attend without appending
  std::uint32_t top_k = 0;   ///< tokens attended to (SparF's k); the context for dense
  std::uint32_t local = 0;   ///< newest tokens that are always among them (SparF's l)

  /// Tokens in the drive's cache after the append, which attend runs over, an appended token included.
  constexpr std::uint32_t context() const { return first_token.value + tokens; }
};

/// append_kv or attend of a drive on one layer (OpTag::layer), for KV heads of the drive.
struct DriveWork {
  HeadRange heads;
  Method method = Method::dense;  ///< method of attention
  std::uint32_t components = 0;   ///< components of q that SparF scores with (r); 0 for dense
  std::vector<SequenceWork> sequences = {};
  Bytes to_drive = {};    ///< payload that the drive reads: K and V, for attend also q
  Bytes from_drive = {};  ///< payload that the drive writes: attention outputs
  Place memory = Place::gpu();
  /// attend: the output covers the drive's tokens only and comes with m and z, for merge_attention; it is
  /// TensorClass::partial_output then.
  bool partial = false;
};

/// score_kv on one layer: raw inner products of q and the keys of a range of tokens. Scores are fp32, with per_head
/// [sequence][head][token], with sum_raw and max_raw one list over all `heads`, [sequence][token].
struct ScoreWork {
  struct Sequence {
    SequenceId sequence;
    std::uint32_t first = 0;    ///< tokens [first, context) are scored, as the drive numbers the tokens that it holds
    std::uint32_t context = 0;  ///< at most the tokens that the drive holds

    constexpr std::uint32_t tokens() const { return context - first; }
  };
  HeadRange heads;
  std::vector<Sequence> sequences = {};
  ScorePrecision precision = ScorePrecision::fp16;
  ScoreAggregate aggregate = ScoreAggregate::per_head;
  Place memory = Place::host();

  /// Lists of scores of a sequence over `some` of the heads.
  constexpr std::uint32_t lists(std::uint32_t some) const { return aggregate == ScoreAggregate::per_head ? some : 1; }
};

/// fetch_kv on one layer: K and V rows of the tokens, in the given order, the same tokens for all heads. A planner that
/// does not know the tokens leaves them empty; the run's features set them when the operation starts.
struct FetchWork {
  struct Sequence {
    SequenceId sequence;
    std::vector<TokenIndex> tokens = {};
  };
  HeadRange heads;
  std::vector<Sequence> sequences = {};
  Place memory = Place::gpu();
};

/// create_kv, fork_kv or free_kv of a drive; free_kv of a processor.
struct SequencesWork {
  std::vector<SequenceId> sequences = {};  ///< sequences to create, to fork from the parent, or to free
  SequenceId parent = {};                  ///< for fork_kv
};

/// Kind of data in a transfer.
enum class LinkPayload : std::uint8_t { kv, activations, weights };
struct LinkWork {
  Bytes bytes;
  LinkPayload payload = LinkPayload::activations;
};

/// read_blocks or write_blocks: one buffer with all extents in order. If the extents depend on data (records of the
/// active neurons), the run's features set them when the operation starts.
struct BlockWork {
  std::vector<Extent> extents = {};
  LinkPayload payload = LinkPayload::weights;
  Place memory = Place::host();
  std::uint32_t outstanding = 0;  ///< most requests that wait for the drive at a time (threads); 0: no limit
  Bytes chunk = {};        ///< largest request: longer extents are cut at its multiples; whole blocks; 0: no cuts
  Bytes block_size{4096};  ///< block size of the namespace
};

/// The function between the matrices of a feed-forward network.
enum class NeuronActivation : std::uint8_t { relu, silu };

/// feed_forward of a drive: the network of chosen neurons of a layer, whose records are in its block namespace. Inputs
/// and result are in the buffer's memory. If the neurons depend on data, the run's features set their runs when the
/// operation starts.
struct NeuronWork {
  std::vector<NeuronRun> runs = {};  ///< the neurons, in the order in which they are summed
  std::uint32_t tokens = 1;
  std::uint32_t width = 0;  ///< width of the model
  NeuronActivation activation = NeuronActivation::relu;
  bool gated = false;   ///< three rows per neuron
  bool bias = false;    ///< bias of the row before the activation
  float threshold = 0;  ///< activations below it become 0 (FATReLU); minus infinity: none
  Place memory = Place::gpu();
};

/// Bytes [offset, offset + size) of a file.
struct FileRange {
  Bytes offset;
  Bytes size;
  constexpr auto operator<=>(const FileRange&) const = default;
};

/// Rows of single heads in a file (head_rows.h): what a file operation writes, or what it chooses its ranges from.
struct HeadRows {
  enum class Kind : std::uint8_t {
    tokens,     ///< for each head K of all tokens, then V of all tokens
    components  ///< for each head and component its elements of K of all tokens
  };
  struct Sequence {
    SequenceId sequence;
    std::uint64_t tokens_before = 0;  ///< room of the sequences before it in the file
    std::uint32_t room = 0;           ///< tokens of the sequence at the end of the run
    std::uint32_t first = 0;          ///< a write: tokens [first, stored); a read: 0
    std::uint32_t stored = 0;         ///< tokens in the file, after a write
    std::uint32_t context = 0;        ///< tokens that are attended over, the current one included
    std::uint32_t top_k = 0;          ///< tokens attended to (k); the context: all of them
    std::uint32_t local = 0;          ///< newest tokens that are always among them (l)

    constexpr bool sparse() const { return top_k < context; }
  };
  Kind kind = Kind::tokens;
  HeadRange heads;
  std::uint32_t head_dim = 0;
  std::uint32_t element_bytes = 2;
  std::uint32_t components = 0;  ///< components of q that choose tokens (r)
  std::vector<Sequence> sequences = {};
};

/// read_file or write_file: ranges of one file (FileTable), any bytes for a read, whole blocks for a write. Ranges that
/// depend on data are named by the run's features when the operation starts.
struct FileWork {
  std::string file;
  std::vector<FileRange> ranges = {};
  LinkPayload payload = LinkPayload::weights;
  Place memory = Place::host();
  std::optional<HeadRows> rows = {};  ///< rows of a read: a feature chooses the ranges from them
};

using Work = std::variant<ComputeWork, DriveWork, LinkWork, ScoreWork, FetchWork, SequencesWork, BlockWork, FileWork,
                          NeuronWork>;

struct Operation {
  OperationId id;
  OpKind kind = OpKind::embed;
  Resource resource;
  OpTag tag;
  std::vector<OperationId> deps;  ///< all smaller than `id`; may belong to earlier layers and steps
  Work work;
  TensorUses tensors = {};
};

/// Name of a resource in reports and traces: "gpu" (the first one), "gpu 1", "drive 3".
std::string resource_name(Resource resource);

/// The place from which an operation reads a tensor, or to which it writes one: the memory of the processor; an end of
/// the link; for a drive operation the drive for K/V caches, records and block contents, its buffer for all other
/// tensors.
Place input_place(const Operation& op, TensorClass what);
Place output_place(const Operation& op, TensorClass what);

/// Bytes that a transfer or an operation on blocks or files moves; 0 for other work.
Bytes moved_bytes(const Work& work);

/// True if a drive reads or writes the memory of a GPU.
bool uses_peer_to_peer(const Operation& op);

/// "decode 17 layer 3 mini-batch 0 attend".
std::string operation_name(OpKind kind, const OpTag& tag);

}  // namespace csdsim::host

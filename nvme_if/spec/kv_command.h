// The vendor I/O commands that put the KV cache and attention into the drive. This header is a contract: people write
// host software against it. Change it only by adding.
//
// All of them use the NVMe vendor command format: CDW10 is NDT, the number of dwords in the data transfer (the exact
// size of the buffer that the PRPs describe), CDW11 is NDM and must be 0. The data direction stands in bits 1:0 of the
// opcode. Where several 16-bit fields share a dword the first named one is the low half. Tensors are fp16, row-major,
// without padding inside a section; sections of a bidirectional buffer start on multiples of 64 bytes. d is the head
// dimension, G the number of query heads that share a KV head, w the 16-bit words of a row, which is K or V of a token
// and KV head: d, or fewer where it has few bits (create_flag). A drive that only times reads descriptors and index
// lists, but moves no tensor bytes.
//
// opcode          CDW12              CDW13                  CDW14                 CDW15
// kv_create  80h  sequence           layers, kv_heads       head_dim, flags       max_tokens (a hint, 0: unknown)
// kv_append  81h  sequence           layer, token_count     first_token           first_head, head_count
// kv_rewrite 85h  sequence           layer, token_count     first_token           first_head, head_count
// kv_attend  83h  layer, n           method(8) G(8), d(16)  total_heads           w (0: d), 0
// kv_free    84h  sequence           0                      0                     0
// kv_fork    88h  parent             child                  0                     0
// kv_score   87h  layer, n           mode(8) G(8), d(16)    total_heads           total_scores
// kv_fetch   8Bh  layer, d           token_count            head_count, 0         0
//
// method of kv_attend: 0 dense, 1 sparf, 2 dense_partial, 3 sparf_partial. dense_partial requires kv_version 2 in
// Identify Controller, sparf_partial 4; a drive of an earlier version answers kv_bad_parameters. mode of kv_score:
// score_mode(); modes other than 0, and ranges of tokens, require kv_version 3. A drive of an earlier version answers
// kv_bad_parameters, and invalid_field or kv_bad_token. Rows of few bits require kv_version 7; a drive of an earlier
// version answers invalid_field. With K component-major, too, they require kv_version 8; a drive of version 7 answers
// kv_bad_parameters.
// CDW2 bit 0 (kv_version 9) says that the host issues the command again after the drive has lost its power: what the
// command did before is not done again. Then a create of a sequence that exists, a fork to a child that exists, a free
// of a sequence that does not exist, and an append of tokens that all of its heads hold are successful, and an attend
// appends no token that is there. A host does not free a sequence, or create it anew, while other commands on it are
// under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "contracts/row_quantisation.h"
#include "contracts/token_score.h"
#include "nvme_if/spec/command.h"

namespace csdsim::nvme {

/// CDW2 of all commands of this header.
inline constexpr std::uint32_t kIssuedAgain = 1u << 0;

namespace kv_opcode {
inline constexpr std::uint8_t create = 0x80;   ///< no data
inline constexpr std::uint8_t append = 0x81;   ///< host to drive: K[heads][tokens][d], V[heads][tokens][d]
inline constexpr std::uint8_t rewrite = 0x85;  ///< the same as append
inline constexpr std::uint8_t attend = 0x83;   ///< bidirectional: [AttendDescriptor x n | q | k | v | out | softmax]
inline constexpr std::uint8_t free = 0x84;     ///< no data
inline constexpr std::uint8_t fork = 0x88;     ///< no data
inline constexpr std::uint8_t score = 0x87;    ///< bidirectional: [AttendDescriptor x n | q | scores]
inline constexpr std::uint8_t fetch = 0x8B;    ///< bidirectional: [AttendDescriptor | token indices | K rows | V rows]
}  // namespace kv_opcode
constexpr bool is_kv(std::uint8_t opcode) {
  switch (opcode) {
    case kv_opcode::create:
    case kv_opcode::append:
    case kv_opcode::rewrite:
    case kv_opcode::attend:
    case kv_opcode::free:
    case kv_opcode::fork:
    case kv_opcode::score:
    case kv_opcode::fetch:
      return true;
    default:
      return false;
  }
}
static_assert(data_direction(kv_opcode::create) == DataDirection::none);
static_assert(data_direction(kv_opcode::append) == DataDirection::host_to_drive);
static_assert(data_direction(kv_opcode::rewrite) == DataDirection::host_to_drive);
static_assert(data_direction(kv_opcode::attend) == DataDirection::bidirectional);
static_assert(data_direction(kv_opcode::free) == DataDirection::none);
static_assert(data_direction(kv_opcode::fork) == DataDirection::none);
static_assert(data_direction(kv_opcode::score) == DataDirection::bidirectional);
static_assert(data_direction(kv_opcode::fetch) == DataDirection::bidirectional);

/// The partial methods also return the section `softmax` (see KvAttend), with which a host can merge the output with
/// attention over other tokens of the same heads.
enum class AttendMethod : std::uint8_t { dense = 0, sparf = 1, dense_partial = 2, sparf_partial = 3 };

constexpr bool runs_sparf(AttendMethod m) { return m == AttendMethod::sparf || m == AttendMethod::sparf_partial; }
constexpr bool returns_softmax(AttendMethod m) {
  return m == AttendMethod::dense_partial || m == AttendMethod::sparf_partial;
}

/// Flags of an AttendDescriptor.
namespace attend_flag {
inline constexpr std::uint16_t append = 1u << 0;  ///< append the k and v of this descriptor as token `token` first
/// Tokens whose pages cannot be read back take no part, in this and in all later attention of their heads (kv_version
/// 5). All descriptors of a command have the flag, or none.
inline constexpr std::uint16_t drop_lost = 1u << 1;
}  // namespace attend_flag

/// The part of one sequence in an attend, score or fetch command, 32 bytes. attend: `token` is the index of the current
/// token; tokens 0..token take part. With the append flag, k and v are stored as that token, which must be the next one
/// of these heads; without the flag the token must be stored already and k and v are ignored. score: tokens
/// first_token..token are scored. fetch: `token`, `flags`, r, k and l are 0. Reserved fields are 0, and so is
/// first_token of attend and fetch.
struct AttendDescriptor {
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;
  std::uint16_t first_head = 0;   ///< first KV head
  std::uint16_t head_count = 0;   ///< KV heads, at least 1
  std::uint16_t r = 0;            ///< sparf: components of q that score, 1..d (0 for dense methods)
  std::uint16_t flags = 0;        ///< attend_flag
  std::uint32_t k = 0;            ///< sparf: tokens attended to, at least 1 (0 for dense methods)
  std::uint32_t l = 0;            ///< sparf: newest tokens that are always among the k
  std::uint32_t first_token = 0;  ///< score: the first token of the range
  std::uint32_t reserved_28 = 0;
};
static_assert(sizeof(AttendDescriptor) == 32 && std::is_trivially_copyable_v<AttendDescriptor>);
static_assert(offsetof(AttendDescriptor, first_head) == 8 && offsetof(AttendDescriptor, k) == 16);

/// What a lost page held, 32 bytes. An attend, score or fetch that meets pages that cannot be read back ends with
/// unrecovered_read_error, and returns no other data. DW0 of its completion is the number of these pages; records of
/// the first ones, at most as many as the command has descriptors, take the place of the descriptors. Tokens that were
/// dropped (attend_flag::drop_lost) are reported in the same way to commands without this flag.
struct KvLossRecord {
  std::uint32_t sequence = 0;
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  std::uint16_t layer = 0;
  std::uint16_t first_head = 0;
  std::uint16_t head_count = 0;
  std::uint8_t content = 0;  ///< 0 K, 1 V, 2 K and V, 3 some components of K
  std::uint8_t reserved_19 = 0;
  std::uint32_t reserved_20[3] = {};
};
static_assert(sizeof(KvLossRecord) == sizeof(AttendDescriptor) && std::is_trivially_copyable_v<KvLossRecord>);

/// Flags of kv_create.
namespace create_flag {
inline constexpr std::uint16_t token_major = 1u << 0;  ///< keep K in token order only: enough for dense attention
/// Elements are integers of 8 or of 4 bits, and rows are those of RowQuantisation. Bits 15:4 of the flags are then the
/// number of scales of a row, which divides d, and otherwise 0.
inline constexpr std::uint16_t bits_8 = 1u << 1;
inline constexpr std::uint16_t bits_4 = 1u << 2;
}  // namespace create_flag

/// The flags of kv_create that state how rows of `head_dim` elements are kept. Its groups divide them.
inline std::uint16_t format_flags(const RowQuantisation& format, std::uint16_t head_dim) {
  if (!format.quantised()) return 0;
  const std::uint32_t bits = format.bits == 8 ? create_flag::bits_8 : create_flag::bits_4;
  return static_cast<std::uint16_t>(bits | head_dim / format.group << 4);
}
/// The format that flags state. Groups of 0 elements: the flags are wrong.
constexpr RowQuantisation format_of(std::uint16_t flags, std::uint16_t head_dim) {
  const bool eight = (flags & create_flag::bits_8) != 0, four = (flags & create_flag::bits_4) != 0;
  const std::uint32_t scales = flags >> 4;
  if (!eight && !four) return {.bits = 16, .group = scales == 0 ? 64u : 0u};
  const bool good = eight != four && scales > 0 && head_dim % scales == 0 && head_dim % (eight ? 2 : 4) == 0;
  return {.bits = eight ? 8u : 4u, .group = good ? head_dim / scales : 0u};
}

/// Creates the sequence `sequence` in the drive. Data: none. DW0 of the completion: 0.
/// kv_sequence_exists, kv_out_of_dram, kv_bad_parameters (head_dim the layout cannot hold).
struct KvCreate {
  SequenceId sequence;
  std::uint16_t layers = 0;
  std::uint16_t kv_heads = 0;
  std::uint16_t head_dim = 0;
  std::uint16_t flags = 0;  ///< create_flag
  std::uint32_t max_tokens = 0;
};

/// Deletes a sequence and frees its flash and DRAM. Error: kv_unknown_sequence.
struct KvFree {
  SequenceId sequence;
};

/// Creates `child` as a sequence with the tokens of `parent`, without copying them: both share the flash pages of full
/// groups; tokens that either of them appends later belong to it alone. Every layer and head of `parent` must hold the
/// same number of tokens (kv_bad_token). kv_unknown_sequence (parent), kv_sequence_exists (child), kv_out_of_dram.
struct KvFork {
  SequenceId parent;
  SequenceId child;
};

/// Appends tokens first_token.. of one layer and a range of heads. Buffer: K[head_count][token_count][w], then V alike,
/// no padding between the two. NDT fixes w: NDT*4 = 4*head_count*token_count*w; a w that is not the sequence's is
/// kv_shape_mismatch. Tokens of a head are appended in order without a gap (kv_bad_token).
struct KvAppend {
  SequenceId sequence;
  LayerId layer;
  TokenIndex first_token;
  std::uint16_t token_count = 0;
  KvHead first_head;
  std::uint16_t head_count = 0;
};

/// Writes K and V of tokens again whose pages cannot be read back: their tokens as a KvLossRecord names them, with its
/// heads. Fields and buffer are those of KvAppend. Tokens must exist (kv_bad_token), and heads that share pages must
/// come together (kv_bad_head). Pages that can be read are left as they are. The command is complete as an append is;
/// from then on the tokens can be read. Requires kv_version 6; a drive of an earlier version answers invalid_opcode.
struct KvRewrite : KvAppend {};

/// Attention of n descriptors at one layer. Sections q and out are [descriptor][head_count*G][d] of fp16, k
/// and v [descriptor][head_count][w], descriptors one after the other (head counts may differ). total_heads is
/// the sum of their head counts (kv_shape_mismatch otherwise).
///
/// dense_partial adds the section softmax, fp32 [descriptor][head_count*G][2]. It contains m, the largest logit
/// q . k / sqrt(d) over the head's tokens in the drive, and z, the sum of exp(logit - m) over these tokens. `out` is
/// normalised, as for dense: o = (sum of exp(logit - m) v) / z. Parts i over disjoint tokens merge to m = max m_i,
/// w_i = z_i exp(m_i - m), o = sum w_i o_i / sum w_i (host_runtime/core/attention/partial_attention.h). If all logits
/// of a head are -inf, the answer is o = 0, m = -inf, z = 0; such a part does not change the merged result.
///
/// sparf_partial does the same for SparF, which attends to some of the head's tokens and lets the mean of V stand for
/// the others: m and the sum are those of the chosen tokens, and z is this sum over alpha, the share of the probability
/// that SparF gives them, so that the part weighs as much as all its tokens. Where alpha is 0, z is the sum. A head
/// that has no more than k tokens is attended to densely.
struct KvAttend {
  LayerId layer;
  std::uint16_t n = 0;  ///< descriptors, at least 1
  AttendMethod method = AttendMethod::dense;
  std::uint8_t group = 0;  ///< G, at least 1
  std::uint16_t head_dim = 0;
  std::uint32_t total_heads = 0;
  std::uint16_t row_words = 0;  ///< w of all sequences (kv_shape_mismatch otherwise); 0: d

  constexpr std::uint16_t words() const { return row_words == 0 ? head_dim : row_words; }
};

/// Importance of a range of tokens (HillInfer): q . k, unscaled and before softmax, of every query head, combined over
/// query heads. q is [descriptor][head_count*G][d] fp16. scores are fp32: [descriptor][head_count][tokens of its range]
/// with per_head, [descriptor][tokens of its range] with sum_raw and max_raw, which combine all heads of the
/// descriptor. total_scores is the number of fp32 values. kv_bad_parameters where the drive has not got the precision.
struct KvScore {
  LayerId layer;
  std::uint16_t n = 0;
  AttendMethod method = AttendMethod::dense;  ///< no other
  std::uint8_t group = 0;
  std::uint16_t head_dim = 0;
  std::uint32_t total_heads = 0;
  std::uint32_t total_scores = 0;
  ScorePrecision precision = ScorePrecision::fp16;
  ScoreAggregate aggregate = ScoreAggregate::per_head;

  /// Lists of scores of a descriptor.
  constexpr std::uint32_t lists(std::uint32_t head_count) const {
    return aggregate == ScoreAggregate::per_head ? head_count : 1;
  }
};

/// Precision in bits 3:0 (0 fp16, 1 INT8, 2 INT4), what is combined in bits 7:4 (0 per_head, 1 sum_raw, 2 max_raw).
constexpr std::uint8_t score_mode(ScorePrecision precision, ScoreAggregate aggregate) {
  const int lists = aggregate == ScoreAggregate::per_head ? 0 : aggregate == ScoreAggregate::sum_raw ? 1 : 2;
  return static_cast<std::uint8_t>(static_cast<int>(precision) | lists << 4);
}
static_assert(score_mode(ScorePrecision::int4, ScoreAggregate::max_raw) == 0x22);

/// Returns K and V rows of chosen tokens. Buffer: one AttendDescriptor, token_count u32 token indices (any order,
/// repeats allowed; the same for every head), then K rows [head_count][token_count][d] fp16, V rows alike. head_count
/// repeats the descriptor's.
struct KvFetch {
  LayerId layer;
  std::uint16_t head_dim = 0;
  std::uint32_t token_count = 0;
  std::uint16_t head_count = 0;
};

/// Alignment of the sections of a bidirectional buffer.
inline constexpr std::uint64_t kKvSectionAlignment = 64;
constexpr Bytes align_section(Bytes b) {
  return {(b.value + kKvSectionAlignment - 1) / kKvSectionAlignment * kKvSectionAlignment};
}

/// Offsets of the sections of an attend buffer. `size` is the size given by NDT; the last section is padded as well.
/// The section softmax is empty unless the method returns it.
struct AttendLayout {
  Bytes q, k, v, out, softmax, size;
};
constexpr AttendLayout attend_layout(const KvAttend& c) {
  const Bytes q_size = align_section({std::uint64_t{c.total_heads} * c.group * c.head_dim * 2});
  const Bytes kv_size = align_section({std::uint64_t{c.total_heads} * c.words() * 2});
  AttendLayout l{};
  l.q = align_section({std::uint64_t{c.n} * sizeof(AttendDescriptor)});
  l.k = l.q + q_size;
  l.v = l.k + kv_size;
  l.out = l.v + kv_size;
  l.softmax = l.out + q_size;
  l.size = l.softmax +
           (returns_softmax(c.method) ? align_section({std::uint64_t{c.total_heads} * c.group * 2 * 4}) : Bytes{});
  return l;
}

/// Offsets of the sections of a score buffer.
struct ScoreLayout {
  Bytes q, scores, size;
};
constexpr ScoreLayout score_layout(const KvScore& c) {
  ScoreLayout l{};
  l.q = align_section({std::uint64_t{c.n} * sizeof(AttendDescriptor)});
  l.scores = l.q + align_section({std::uint64_t{c.total_heads} * c.group * c.head_dim * 2});
  l.size = l.scores + align_section({std::uint64_t{c.total_scores} * 4});
  return l;
}

/// Offsets of the sections of a fetch buffer.
struct FetchLayout {
  Bytes tokens, k, v, size;
};
constexpr FetchLayout fetch_layout(const KvFetch& c) {
  const Bytes rows = align_section({std::uint64_t{c.head_count} * c.token_count * c.head_dim * 2});
  FetchLayout l{};
  l.tokens = Bytes{kKvSectionAlignment};
  l.k = l.tokens + align_section({std::uint64_t{c.token_count} * 4});
  l.v = l.k + rows;
  l.size = l.v + rows;
  return l;
}

/// Size of an append buffer for rows of `words` words.
constexpr Bytes append_size(const KvAppend& c, std::uint16_t words) {
  return {std::uint64_t{c.head_count} * c.token_count * words * 4};
}

}  // namespace csdsim::nvme

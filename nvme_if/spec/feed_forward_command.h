// The vendor I/O command with which a drive computes the feed-forward network of chosen neurons from records in its
// block namespace. This header is a contract: people write host software against it. Change it only by adding.
//
// Format as in kv_command.h: CDW10 is NDT (dwords of the buffer), CDW11 is NDM and must be 0, sections start on
// multiples of 64 bytes. Identify Controller has feed_forward_version 1 where the drive has the command; elsewhere it
// is invalid_opcode.
//
// opcode             CDW12          CDW13          CDW14                        CDW15
// feed_forward  8Fh  tokens, width  runs, neurons  activation(8) flags(8), 0    threshold (fp32)
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nvme_if/spec/command.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::nvme {

namespace block_opcode {
inline constexpr std::uint8_t feed_forward = 0x8F;  ///< bidirectional: [NeuronRun x runs | bias | x | y]
}  // namespace block_opcode
static_assert(data_direction(block_opcode::feed_forward) == DataDirection::bidirectional);

/// In Identify Controller.
inline constexpr std::uint32_t kFeedForwardVersion = 1;

/// Neurons whose rows stand at regular distances, 32 bytes. Neuron i of the run has its rows at up + i * stride,
/// gate + i * stride and down + i * stride: a record with all rows side by side is one run of neurons, and so are
/// matrices of rows that follow one another. Addresses are bytes from the start of the namespace and even
/// (invalid_field); a row is `width` fp16 values and may cross blocks. A row beyond the namespace is lba_out_of_range.
struct NeuronRun {
  std::uint64_t up = 0;
  std::uint64_t gate = 0;  ///< 0 without the flag gated
  std::uint64_t down = 0;
  std::uint32_t count = 0;   ///< neurons, at least 1
  std::uint32_t stride = 0;  ///< bytes from a neuron to the next, even
};
static_assert(sizeof(NeuronRun) == 32 && std::is_trivially_copyable_v<NeuronRun>);
static_assert(offsetof(NeuronRun, down) == 16 && offsetof(NeuronRun, stride) == 28);

enum class NeuronActivation : std::uint8_t { relu = 0, silu = 1 };

namespace feed_forward_flag {
inline constexpr std::uint8_t gated = 1u << 0;  ///< three rows per neuron
inline constexpr std::uint8_t bias = 1u << 1;   ///< the section bias is there: fp16 [neurons], in the order of the runs
}  // namespace feed_forward_flag

/// y[t] = sum over the neurons r, in the order of the runs, of h_r[t] * down_r, with h = act(x[t] . up_r + bias_r), or
/// act(x[t] . gate_r + bias_r) * (x[t] . up_r) with the flag gated. Activations below `threshold` become 0
/// (FATReLU); minus infinity leaves SiLU as it is. x is fp16 [tokens][width]. y is fp32 [tokens][width]: partial sums
/// of several commands or drives are added without the rounding of a narrower format in between.
///
/// invalid_field: a count of 0, counts that do not add up to `neurons`, an odd address, an unknown activation or flag,
/// a threshold that is no number, an NDT that does not fit. engine_buffer_exceeded: x and y in fp32 (8 tokens width
/// bytes) exceed the engine's buffer. unrecovered_read_error: a page of a record cannot be corrected. Blocks that were
/// never written hold zeros. Completion DW0: 0.
struct FeedForward {
  std::uint16_t tokens = 0;   ///< at least 1
  std::uint16_t width = 0;    ///< at least 1
  std::uint16_t runs = 0;     ///< at least 1
  std::uint16_t neurons = 0;  ///< neurons of all runs
  NeuronActivation activation = NeuronActivation::relu;
  std::uint8_t flags = 0;  ///< feed_forward_flag
  float threshold = 0;

  constexpr bool gated() const { return (flags & feed_forward_flag::gated) != 0; }
  constexpr bool has_bias() const { return (flags & feed_forward_flag::bias) != 0; }
  constexpr Bytes row() const { return {std::uint64_t{width} * 2}; }
};

/// Offsets of the sections of a feed_forward buffer. The section bias is empty without the flag.
struct FeedForwardLayout {
  Bytes bias, x, y, size;
};
constexpr FeedForwardLayout feed_forward_layout(const FeedForward& c) {
  const std::uint64_t elements = std::uint64_t{c.tokens} * c.width;
  FeedForwardLayout l{};
  l.bias = align_section({std::uint64_t{c.runs} * sizeof(NeuronRun)});
  l.x = l.bias + (c.has_bias() ? align_section({std::uint64_t{c.neurons} * 2}) : Bytes{});
  l.y = l.x + align_section({elements * 2});
  l.size = l.y + align_section({elements * 4});
  return l;
}

}  // namespace csdsim::nvme

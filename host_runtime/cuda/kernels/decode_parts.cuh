// Parts of decode attention: lists of tokens are split, so that all blocks have about as many tokens, however the
// lengths of the sequences differ.
#pragma once

#include <cfloat>

#include "host_runtime/cuda/decode_splits.h"
#include "host_runtime/cuda/kernels/device.cuh"

namespace csdsim::host::cuda {

/// q and out are [sequences][heads * d] with row strides q_stride and out_stride. Caches are [slot][kv head][token][d];
/// sequence i is in slot slots[i], or in slot i if `slots` is null. If `chosen` is given, it lists the tokens to attend
/// to, [sequences][chosen_lists][chosen_stride], with one list per KV head or one for all; the first
/// chosen_counts[sequence][list] entries of a list are valid. Otherwise all `lengths[sequence]` tokens are attended to.
/// A list is the tokens of a sequence, or those chosen for one of its KV heads. Lists are split into parts, such that
/// all blocks have about the same number of tokens. The parts of all lists are numbered one after another; grid.x is
/// the largest possible number of parts. Lists of several parts use partial_out [part][heads of a list][d] and
/// partial_scale [part][heads of a list] (maximum, sum). `softmax`, if given, receives maximum and sum
/// [sequences][heads].
template <class T, class Out>
struct DecodeArguments {
  const T* q;
  const T* keys;
  const T* values;
  Out* out;
  float* partial_out;
  float2* partial_scale;
  float2* softmax;
  const std::uint32_t* slots;
  const std::uint32_t* lengths;
  const std::uint32_t* chosen;
  const std::uint32_t* chosen_counts;
  std::size_t q_stride;
  std::size_t out_stride;
  std::size_t slot_stride;  ///< in elements
  std::size_t head_stride;
  std::uint32_t chosen_stride;
  std::uint32_t kv_heads;
  std::uint32_t group;
  std::uint32_t d;
  std::uint32_t blocks;  ///< that share all tokens; 0: every list is one part
  std::uint32_t lists;   ///< number of lists of all sequences
  std::uint32_t lists_per_sequence;
  std::uint32_t blocks_per_list;  ///< grid.y: a block computes `heads_per_block` of its heads
  std::uint32_t heads_per_block;
  float scale;
};

inline constexpr std::uint32_t kDecodeWarps = 4;
inline constexpr std::uint32_t kDecodeChunk = 16;                          ///< tokens that a warp processes at a time
inline constexpr std::uint32_t kDecodeUnit = kDecodeWarps * kDecodeChunk;  ///< tokens that a block processes at a time

/// A part of a list: parts first, first + 1, ... of the launch are the list's.
struct ListPart {
  std::uint32_t list, first, parts;
};

/// The list for which wanted(list, first part, parts) holds; .parts = 0 if there is none. All lanes of a warp must call
/// it: they count the tokens of all lists together.
template <class T, class Out, class Wanted>
__device__ __forceinline__ ListPart find_list(const DecodeArguments<T, Out>& a, Wanted wanted) {
  const std::uint32_t* const counts = a.chosen == nullptr ? a.lengths : a.chosen_counts;
  const auto units_of = [&](std::uint32_t list) { return (counts[list] + kDecodeUnit - 1) / kDecodeUnit; };
  const std::uint32_t lane = threadIdx.x % 32, each = (a.lists + 31) / 32, begin = min(lane * each, a.lists),
                      end = min(begin + each, a.lists);
  const auto sum = [](std::uint32_t value) {
    for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
    return value;
  };
  std::uint32_t units = 0;
  for (std::uint32_t list = begin; list < end; ++list) units += units_of(list);
  const std::uint32_t share = units_per_block(sum(units) * a.blocks_per_list, a.blocks);
  std::uint32_t parts = 0;
  for (std::uint32_t list = begin; list < end; ++list) parts += parts_of(units_of(list), share);
  std::uint32_t first = 0;  // number of entries of the lanes before this one
  for (int mask = 1; mask < 32; mask *= 2) {
    const std::uint32_t others = shuffle_xor(parts, mask);
    if ((lane & static_cast<std::uint32_t>(mask)) != 0) first += others;
    parts += others;
  }
  ListPart found{0, 0, 0};
  for (std::uint32_t list = begin; list < end; ++list) {
    const std::uint32_t here = parts_of(units_of(list), share);
    if (wanted(list, first, here)) found = {list, first, here};
    first += here;
  }
  return {sum(found.list), sum(found.first), sum(found.parts)};
}

/// What one block computes: tokens [begin, end) of a list, for some of its heads, and the cache row of token i of the
/// list.
struct BlockRange {
  std::uint32_t sequence, head_block;  ///< head_block counts the blocks of a sequence without parts
  std::uint32_t begin, end, last, parts;
  const std::uint32_t* chosen;

  /// parts = 0: nothing is left for the block.
  template <class T, class Out>
  __device__ __forceinline__ explicit BlockRange(const DecodeArguments<T, Out>& a) : begin(0), end(0), last(0) {
    const std::uint32_t part = blockIdx.x;
    ListPart at{part, part, 1};
    if (a.blocks > 0) {
      at = find_list(a, [&](std::uint32_t, std::uint32_t first, std::uint32_t here) {
        return part >= first && part < first + here;
      });
    }
    parts = at.parts;
    sequence = at.list / a.lists_per_sequence;
    head_block = at.list % a.lists_per_sequence * a.blocks_per_list + blockIdx.y;
    // With chosen tokens a list is one of those of `chosen`.
    chosen = a.chosen == nullptr ? nullptr : a.chosen + std::size_t{at.list} * a.chosen_stride;
    if (parts == 0) return;
    const std::uint32_t count = chosen == nullptr ? a.lengths[at.list] : a.chosen_counts[at.list];
    const std::uint32_t units = (count + kDecodeUnit - 1) / kDecodeUnit;
    const std::uint32_t share = (units + parts - 1) / parts * kDecodeUnit;
    begin = min((part - at.first) * share, count);
    end = min(begin + share, count);
    last = count == 0 ? 0 : count - 1;
  }
  /// Cache row of token i. Beyond the end it is the row of the last token, which may be read but is ignored.
  __device__ __forceinline__ std::size_t row(std::uint32_t i) const {
    const std::uint32_t at = min(i, last);
    return chosen == nullptr ? at : chosen[at];
  }
};

/// Start of the caches of a sequence's KV head.
template <class T, class Out>
__device__ __forceinline__ std::size_t cache_of(const DecodeArguments<T, Out>& a, std::uint32_t sequence,
                                                std::uint32_t kv_head) {
  const std::uint32_t slot = a.slots == nullptr ? sequence : a.slots[sequence];
  return slot * a.slot_stride + kv_head * a.head_stride;
}

/// Stores a finished row, or the partial result of the block's part. `value` is not yet divided by `sum`.
template <class T, class Out>
__device__ __forceinline__ void store_share(const DecodeArguments<T, Out>& a, const BlockRange& range,
                                            std::uint32_t head, std::uint32_t i, float value, float maximum,
                                            float sum) {
  if (range.parts == 1) {
    a.out[range.sequence * a.out_stride + std::size_t{head} * a.d + i] = from_float<Out>(sum > 0 ? value / sum : 0.0f);
    if (i == 0 && a.softmax != nullptr) {
      a.softmax[std::size_t{range.sequence} * a.kv_heads * a.group + head] = float2{maximum, sum};
    }
    return;
  }
  const std::uint32_t heads = a.blocks_per_list * a.heads_per_block;
  const std::size_t at = std::size_t{blockIdx.x} * heads + head % heads;
  a.partial_out[at * a.d + i] = value;
  if (i == 0) a.partial_scale[at] = float2{maximum, sum};
}

}  // namespace csdsim::host::cuda

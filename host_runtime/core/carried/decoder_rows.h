// What the parts of DecoderData share: tensors of several tokens, and how messages name an operation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/decoder.h"
#include "host_runtime/core/planner/operation.h"
#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// K and V of a mini-batch's new tokens for some heads, one behind the other: [row][heads][d] each.
using NewKv = std::vector<Half>;
inline std::span<const Half> keys(const NewKv& kv) { return std::span(kv).first(kv.size() / 2); }
inline std::span<const Half> values(const NewKv& kv) { return std::span(kv).last(kv.size() / 2); }

/// Appends columns [first, first + count) of every row of a [row][width] tensor to `to`.
inline void append_columns(std::span<const Half> tensor, std::size_t width, std::size_t first, std::size_t count,
                           std::vector<Half>& to) {
  for (std::size_t at = first; at < tensor.size(); at += width)
    to.insert(to.end(), tensor.begin() + static_cast<std::ptrdiff_t>(at),
              tensor.begin() + static_cast<std::ptrdiff_t>(at + count));
}

/// Activations that enter a layer, in the batches of rows in which they came: projected again in the same batches, K
/// and V have the same bits on every backend whose products depend on the number of rows at most.
struct LayerInputs {
  struct Batch {
    HiddenStates hidden;      ///< before the norm
    std::vector<Share> rows;  ///< of each sequence of the mini-batch
  };
  std::vector<std::shared_ptr<const Batch>> batches;
};

inline std::string user(const Operation& op) { return operation_name(op.kind, op.tag); }

}  // namespace csdsim::host

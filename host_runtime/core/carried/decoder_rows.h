// Shared by the source files of DecoderData: tensors of several tokens, and the name of an operation in messages.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/carried/tensor_store.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/plan/operation.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// K, then V, of a mini-batch's new tokens for some heads, [row][heads][d] each.
using NewKv = std::vector<Half>;
inline std::span<const Half> keys(const NewKv& kv) { return std::span(kv).first(kv.size() / 2); }
inline std::span<const Half> values(const NewKv& kv) { return std::span(kv).last(kv.size() / 2); }

/// The quantised rows that these K and V, which dequantised() has made, stand for.
QuantisedRows restored(const RowQuantisation& format, const NewKv& kv, std::size_t heads, std::size_t d);
/// K and V of the rows of a QuantisedRows.
NewKv dequantised(const RowQuantisation& format, std::span<const std::byte> rows, std::size_t heads, std::size_t d);

/// Appends columns [first, first + count) of every row of a [row][width] tensor to `to`.
inline void append_columns(std::span<const Half> tensor, std::size_t width, std::size_t first, std::size_t count,
                           std::vector<Half>& to) {
  for (std::size_t at = first; at < tensor.size(); at += width)
    to.insert(to.end(), tensor.begin() + static_cast<std::ptrdiff_t>(at),
              tensor.begin() + static_cast<std::ptrdiff_t>(at + count));
}

/// Activations that enter a layer, kept in the batches in which they were computed. Some backends round a matrix
/// product differently for a different number of rows. Projecting the same batches again gives K and V with the same
/// bits on all backends that depend on nothing else.
struct LayerInputs {
  struct Batch {
    HiddenStates hidden;                  ///< before the norm
    std::vector<StepSequence> sequences;  ///< whose rows they are, in order
  };
  std::vector<std::shared_ptr<const Batch>> batches;
};

/// The operation's name in error messages.
inline std::string user(const Operation& op) { return operation_name(op.kind, op.tag); }

}  // namespace csdsim::host

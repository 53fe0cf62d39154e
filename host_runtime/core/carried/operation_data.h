// The tensors behind a planner's operations, in runs that carry data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fp16.h"
#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// Maps kinds of operations to real work. `index` is the position of a sequence in DriveWork::sequences; heads are KV
/// heads of the model, G query heads each; d is the head dimension.
class OperationData {
 public:
  virtual ~OperationData() = default;

  /// Does the work of an operation of the GPU or the host; called when it starts.
  virtual void perform(const host::Operation& op) = 0;

  /// K and V of tokens [first, first + count) of what the operation appends, as [head][token][d].
  virtual void load_append(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                           host::HeadRange heads, std::span<Half> k, std::span<Half> v) = 0;

  /// Inputs of decoding attention of one sequence: q as [head * G][d], k and v as [head][d].
  virtual void load_attend(const host::Operation& op, std::size_t index, host::HeadRange heads, std::span<Half> q,
                           std::span<Half> k, std::span<Half> v) = 0;

  /// Its output, as [head * G][d].
  virtual void store_output(const host::Operation& op, std::size_t index, host::HeadRange heads,
                            std::span<const Half> out) = 0;
};

}  // namespace csdsim::host

// The layout of rows of single heads in the files of a sparse method: K and V token by token, and K once more
// component by component.
//
// Sequences follow one another, each with room for its tokens at the end of the run. In the file of tokens, a head has
// K of all tokens, then V of all tokens; a row is head_dim elements. In the file of components, a head has head_dim
// rows, each of one element per token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Elements [first, first + count) of a component of a head; `head` counts from 0 within rows.heads.
FileRange component_range(const HeadRows& rows, const HeadRows::Sequence& of, std::uint32_t head,
                          std::uint32_t component, std::uint32_t first, std::uint32_t count);
/// Rows [first, first + count) of K or V of a head.
FileRange token_range(const HeadRows& rows, const HeadRows::Sequence& of, std::uint32_t head, KvKind kind,
                      std::uint32_t first, std::uint32_t count);

/// The components or tokens that have been chosen for a read.
TensorName choice_name(const OpTag& tag, const HeadRows& rows);

/// The ranges of a write, sequence by sequence and head by head: K and V, or all components. Sequences without new
/// tokens have none.
std::vector<FileRange> written_ranges(const HeadRows& rows);

/// Ascending numbers of the components, or of the tokens in the file, that a head of a sparse sequence reads.
using RowChoice = std::function<std::span<const std::uint32_t>(const HeadRows::Sequence& of, std::uint32_t head)>;

/// The ranges of a read, sequence by sequence and head by head: the chosen components of all stored tokens, or K and
/// then V of the chosen tokens, rows that follow one another in one range. Of a sequence that is not sparse, no
/// components and all stored tokens.
std::vector<FileRange> chosen_ranges(const HeadRows& rows, const RowChoice& chosen);

}  // namespace csdsim::host

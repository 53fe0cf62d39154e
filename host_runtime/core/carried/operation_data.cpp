#include "host_runtime/core/carried/operation_data.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::host {

void OperationData::refuse(const Operation& op, std::string_view what) {
  throw InternalError(fmt::format("{}: this run has no {}", operation_name(op.kind, op.tag), what));
}

void OperationData::load_append(const Operation& op, std::size_t, std::uint32_t, std::uint32_t, HeadRange,
                                std::span<Half>, std::span<Half>) {
  refuse(op, "K and V to append");
}
void OperationData::load_attend(const Operation& op, std::size_t, HeadRange, std::span<Half>, std::span<Half>,
                                std::span<Half>) {
  refuse(op, "q, k and v");
}
void OperationData::store_output(const Operation& op, std::size_t, HeadRange, std::span<const Half>) {
  refuse(op, "use for attention outputs");
}
void OperationData::store_partial(const Operation& op, std::size_t, HeadRange, std::span<const Half>,
                                  std::span<const float>) {
  refuse(op, "use for partial attention outputs");
}
void OperationData::load_queries(const Operation& op, std::size_t, HeadRange, std::span<Half>) {
  refuse(op, "q to score with");
}
void OperationData::store_scores(const Operation& op, std::size_t, HeadRange, std::uint32_t, std::span<const float>) {
  refuse(op, "use for scores");
}
void OperationData::store_rows(const Operation& op, std::size_t, std::uint32_t, std::uint32_t, HeadRange,
                               std::span<const Half>, std::span<const Half>) {
  refuse(op, "use for rows of K and V");
}
void OperationData::load_blocks(const Operation& op, std::size_t, std::span<std::byte>) {
  refuse(op, "blocks to write");
}
void OperationData::store_blocks(const Operation& op, std::size_t, std::span<const std::byte>) {
  refuse(op, "use for blocks");
}
void OperationData::load_network_input(const Operation& op, std::uint32_t, std::span<Half>, std::span<Half>) {
  refuse(op, "inputs of a feed-forward network");
}
void OperationData::store_partial_sum(const Operation& op, std::span<const float>) {
  refuse(op, "use for the result of a feed-forward network");
}

void OperationData::load_file(const Operation& op, std::size_t, Bytes, std::span<std::byte>) {
  refuse(op, "bytes of a file to write");
}
void OperationData::store_file(const Operation& op, std::size_t, Bytes, std::span<const std::byte>) {
  refuse(op, "use for bytes of a file");
}

}  // namespace csdsim::host

#include "host_runtime/core/planner/planner.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace csdsim::host {

OperationId OperationSink::add(OpKind kind, Resource resource, const OpTag& tag, Work work,
                               std::vector<OperationId> deps, TensorUses tensors) {
  const OperationId id{next_id_};
  for (const OperationId dep : deps)
    if (dep >= id)
      throw InternalError(fmt::format("{}: operation {} depends on {}, which has not been emitted",
                                      operation_name(kind, tag), id.value, dep.value));
  ++next_id_;
  operations_.push_back({id, kind, resource, tag, std::move(deps), std::move(work), std::move(tensors)});
  return id;
}

std::vector<Operation> OperationSink::take() { return std::exchange(operations_, {}); }

std::uint64_t BatchLengths::longest_contexts() const {
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : prompt_tokens) tokens += prompt + std::uint64_t{decode_steps()};
  return tokens;
}

void BatchLengths::validate() const {
  if (prompt_tokens.empty()) throw UserError("workload: the batch is empty");
  for (std::size_t i = 0; i < prompt_tokens.size(); ++i)
    if (prompt_tokens[i] == 0) throw UserError(fmt::format("workload: prompt {} has no tokens", i));
  if (output_tokens == 0) throw UserError("workload: output_tokens is 0, must be at least 1");
}

std::vector<Share> even_shares(std::uint32_t total, std::uint32_t parts) {
  std::vector<Share> shares;
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < parts; ++i) {
    const std::uint32_t count = total / parts + (i < total % parts ? 1 : 0);
    shares.push_back({first, count});
    first += count;
  }
  return shares;
}

std::vector<HeadRange> shard_heads(std::uint32_t kv_heads, std::uint32_t drives) {
  if (drives == 0) throw UserError("platform: no drive to hold the KV cache");
  if (drives > kv_heads)
    throw UserError(fmt::format(
        "platform: {} drives for {} KV heads; with shard: head a drive holds at least one head, with shard: token all",
        drives, kv_heads));
  std::vector<HeadRange> ranges;
  for (const Share& s : even_shares(kv_heads, drives)) ranges.push_back({KvHead{s.first}, s.count});
  return ranges;
}

}  // namespace csdsim::host

#include "host_runtime/core/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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

void OperationSink::wait_until(SimTime time) {
  if (time <= now_) throw InternalError(fmt::format("a planner waits until {} ps, at {} ps", time.ps, now_.ps));
  wait_ = time;
}

std::vector<Operation> OperationSink::take() { return std::exchange(operations_, {}); }

double Speculation::gain() const {
  double sum = 0, all_accepted = 1;
  for (std::uint32_t i = 0; i <= draft_tokens; ++i, all_accepted *= acceptance) sum += all_accepted;
  return sum;
}

std::uint32_t BatchLengths::decode_steps() const {
  if (speculation.draft_tokens == 0) return output_tokens - 1;
  return static_cast<std::uint32_t>(std::ceil((output_tokens - 1) / speculation.gain()));
}

std::uint32_t BatchLengths::generated_before(std::uint32_t step) const {
  if (speculation.draft_tokens == 0) return step + 1;
  return 1 + std::min(output_tokens - 1, static_cast<std::uint32_t>(step * speculation.gain()));
}

BatchLengths BatchLengths::with_outputs(std::vector<std::uint32_t> prompts, std::vector<std::uint32_t> outputs) {
  const std::uint32_t longest = outputs.empty() ? 1 : *std::ranges::max_element(outputs);
  return {.prompt_tokens = std::move(prompts), .output_tokens = longest, .outputs = std::move(outputs)};
}

std::uint64_t BatchLengths::generated() const {
  if (!own_outputs()) return std::uint64_t{output_tokens} * prompt_tokens.size();
  return std::accumulate(outputs.begin(), outputs.end(), std::uint64_t{0});
}

std::uint64_t BatchLengths::kept_tokens() const {
  if (served()) return places * longest_sequence();
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < prompt_tokens.size(); ++i) tokens += prompt_tokens[i] + std::uint64_t{output_of(i)} - 1;
  return tokens;
}

/// All places may have the longest requests at a time.
std::uint64_t BatchLengths::most_contexts_of_places() const {
  std::vector<std::uint64_t> contexts;
  for (std::size_t i = 0; i < prompt_tokens.size(); ++i)
    contexts.push_back(prompt_tokens[i] + std::uint64_t{output_of(i)} - 1);
  std::ranges::sort(contexts, std::ranges::greater{});
  contexts.resize(std::min<std::size_t>(contexts.size(), places));
  return std::accumulate(contexts.begin(), contexts.end(), std::uint64_t{0});
}

std::uint64_t BatchLengths::longest_contexts() const {
  if (served()) return most_contexts_of_places();
  if (!own_outputs()) return kept_tokens();
  // The cache grows from step to step until a sequence ends, so it is largest in a step after which one does.
  std::vector<std::size_t> order(prompt_tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::ranges::greater{}, [&](std::size_t i) { return outputs[i]; });
  std::uint64_t most = 0, prompts = 0;
  for (std::size_t running = 1; running <= order.size(); ++running) {
    const std::size_t ends = order[running - 1];
    prompts += prompt_tokens[ends];
    most = std::max(most, prompts + running * (std::uint64_t{outputs[ends]} - 1));
  }
  return most;
}

std::uint64_t BatchLengths::longest_sequence() const {
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < prompt_tokens.size(); ++i)
    longest = std::max(longest, std::uint64_t{prompt_tokens[i]} + output_of(i));
  return longest;
}

BatchLengths BatchLengths::first(std::size_t sequences) const {
  BatchLengths part = *this;
  part.prompt_tokens.resize(std::min(sequences, prompt_tokens.size()));
  if (!own_outputs()) return part;
  part.outputs.resize(part.prompt_tokens.size());
  return with_outputs(std::move(part.prompt_tokens), std::move(part.outputs));
}

void BatchLengths::validate() const {
  if (prompt_tokens.empty()) throw UserError("workload: the batch is empty");
  for (std::size_t i = 0; i < prompt_tokens.size(); ++i)
    if (prompt_tokens[i] == 0) throw UserError(fmt::format("workload: prompt {} has no tokens", i));
  if (output_tokens == 0) throw UserError("workload: output_tokens is 0, must be at least 1");
  if (served()) validate_arrivals();
  if (!own_outputs()) return;
  if (outputs.size() != prompt_tokens.size() || *std::ranges::max_element(outputs) != output_tokens)
    throw InternalError(fmt::format("workload: {} outputs for {} prompts", outputs.size(), prompt_tokens.size()));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] == 0) throw UserError(fmt::format("workload: sequence {} generates no token", i));
}

void BatchLengths::validate_arrivals() const {
  if (places == 0) throw UserError("workload: no place for requests that arrive, batch must be at least 1");
  if (arrivals.size() != prompt_tokens.size() || arrivals.front() < SimTime{} || !std::ranges::is_sorted(arrivals))
    throw InternalError("workload: arrivals are not ascending, or not those of the requests");
}

Share PlanSpan::layers_of(std::uint32_t step, std::uint32_t layers) const {
  const std::uint32_t at = step - first_step;
  if (at < late_steps) return {layers - late_layers, late_layers};
  const bool early = early_steps > 0 && at + early_steps >= decode_steps;
  return {0, early ? early_layers : layers};
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

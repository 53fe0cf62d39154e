#include "host_runtime/core/plan/planner.h"

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

BatchLengths::BatchLengths(const std::vector<std::uint32_t>& prompts, std::uint32_t output, Speculation drafts)
    : output_tokens(output), speculation(drafts) {
  set_prompts(prompts);
}

BatchLengths BatchLengths::with_outputs(const std::vector<std::uint32_t>& prompts,
                                        const std::vector<std::uint32_t>& outputs) {
  if (outputs.size() != prompts.size())
    throw InternalError(fmt::format("workload: {} outputs for {} prompts", outputs.size(), prompts.size()));
  BatchLengths batch(prompts, 1);
  for (std::size_t i = 0; i < outputs.size(); ++i) batch.requests[i].output = outputs[i];
  return with_outputs(std::move(batch.requests));
}

BatchLengths BatchLengths::with_outputs(std::vector<Request> requests) {
  BatchLengths batch;
  batch.requests = std::move(requests);
  batch.own = true;
  batch.output_tokens = batch.requests.empty() ? 1 : std::ranges::max(batch.requests, {}, &Request::output).output;
  return batch;
}

std::vector<std::uint32_t> BatchLengths::prompts() const {
  std::vector<std::uint32_t> prompts;
  for (const Request& request : requests) prompts.push_back(request.prompt);
  return prompts;
}

void BatchLengths::set_prompts(const std::vector<std::uint32_t>& prompts) {
  requests.resize(prompts.size());
  for (std::uint32_t i = 0; i < prompts.size(); ++i) {
    requests[i].id = SequenceId{i};
    requests[i].prompt = prompts[i];
  }
}

std::uint64_t BatchLengths::generated() const {
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < size(); ++i) tokens += output_of(i);
  return tokens;
}

std::uint64_t BatchLengths::fed_tokens() const {
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < size(); ++i) tokens += length_of(i) - std::uint64_t{1};
  return tokens;
}

std::uint64_t BatchLengths::kept_tokens() const { return served() ? places * longest_sequence() : fed_tokens(); }

/// All places may have the longest requests at a time.
std::uint64_t BatchLengths::most_contexts_of_places() const {
  std::vector<std::uint64_t> contexts;
  for (std::size_t i = 0; i < size(); ++i) contexts.push_back(length_of(i) - std::uint64_t{1});
  std::ranges::sort(contexts, std::ranges::greater{});
  contexts.resize(std::min<std::size_t>(contexts.size(), places));
  return std::accumulate(contexts.begin(), contexts.end(), std::uint64_t{0});
}

std::uint64_t BatchLengths::longest_contexts() const {
  if (served()) return most_contexts_of_places();
  if (!own_outputs()) return kept_tokens();
  // The cache grows from step to step until a sequence ends, so it is largest in a step after which one does.
  std::vector<Request> order = requests;
  std::ranges::sort(order, std::ranges::greater{}, &Request::output);
  std::uint64_t most = 0, prompts = 0, running = 0;
  for (const Request& ends : order) {
    prompts += ends.prompt;
    most = std::max(most, prompts + ++running * (std::uint64_t{ends.output} - 1));
  }
  return most;
}

std::uint64_t BatchLengths::longest_sequence() const {
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < size(); ++i) longest = std::max<std::uint64_t>(longest, length_of(i));
  return longest;
}

BatchLengths BatchLengths::first(std::size_t sequences) const {
  BatchLengths part = *this;
  part.requests.resize(std::min(sequences, size()));
  if (!own_outputs()) return part;
  return with_outputs(std::move(part.requests));
}

void BatchLengths::validate() const {
  if (requests.empty()) throw UserError("workload: the batch is empty");
  for (std::size_t i = 0; i < size(); ++i)
    if (requests[i].prompt == 0) throw UserError(fmt::format("workload: prompt {} has no tokens", i));
  if (output_tokens == 0) throw UserError("workload: output_tokens is 0, must be at least 1");
  if (served()) validate_arrivals();
  if (!own_outputs()) return;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (requests[i].output == 0) throw UserError(fmt::format("workload: sequence {} generates no token", i));
    largest = std::max(largest, requests[i].output);
  }
  if (largest != output_tokens)
    throw InternalError(fmt::format("workload: output_tokens is {}, the largest output {}", output_tokens, largest));
}

void BatchLengths::validate_arrivals() const {
  if (places == 0) throw UserError("workload: no place for requests that arrive, batch must be at least 1");
  if (requests.front().arrival < SimTime{} || !std::ranges::is_sorted(requests, {}, &Request::arrival))
    throw InternalError("workload: arrivals are not ascending");
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

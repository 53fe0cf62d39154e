#include "host_runtime/core/serving/engine/serving_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

ServingEngine::ServingEngine(const Config& config, const StepCost& cost, const ServingTrace& trace, KvTiers& tiers,
                             KvTransport& transport, KvContents* contents)
    : config_(config),
      trace_(trace),
      tiers_(tiers),
      transport_(transport),
      blocks_(trace, config.engine.block_tokens),
      sequences_(trace.requests.size()),
      followers_(trace.requests.size()),
      waits_for_(trace.requests.size()),
      not_before_(trace.requests.size()) {
  for (std::uint32_t i = 0; i < config.instances; ++i)
    instances_.push_back(std::make_unique<ServingInstance>(
        i, config.engine, cost, tiers, transport, contents, meter_,
        ServingInstance::Hooks{.ended =
                                   [this](ServedSequence& sequence) {
                                     const std::uint32_t request = sequence.request.id.value;
                                     ++ended_;
                                     sequences_[request].reset();
                                     trigger(request, TraceDependency::Trigger::completion);
                                     progress_(ended_);
                                   },
                               .stepped = [this] { stepped(); }}));
  tiers.on_change([this] {
    for (const auto& instance : instances_) instance->wake();
  });
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    check(trace.requests[i]);
    for (const TraceDependency& dependency : trace.dependencies_of(trace.requests[i])) {
      followers_[dependency.request].push_back({i, dependency.trigger, dependency.delay});
      ++waits_for_[i];
    }
  }
}

void ServingEngine::check(const TracedRequest& r) const {
  const EngineConfig& engine = config_.engine;
  const std::uint64_t tokens = std::uint64_t{r.prompt} + r.output;
  const std::uint64_t blocks = (tokens + engine.block_tokens - 1) / engine.block_tokens;
  if (r.output == 0) throw UserError(fmt::format("{}:{}: a request without a token to generate", trace_.name, r.line));
  if (blocks > engine.gpu_blocks)
    throw UserError(fmt::format("{}:{}: a request of {} tokens takes {} KV blocks; the GPU has {}", trace_.name, r.line,
                                tokens, blocks, engine.gpu_blocks));
  if (!engine.chunked_prefill && tokens > engine.step_tokens)
    throw UserError(fmt::format("{}:{}: a request of {} tokens; without chunked prefill a step takes at most {}",
                                trace_.name, r.line, tokens, engine.step_tokens));
}

void ServingEngine::start() {
  start_ = transport_.now();
  for (std::uint32_t i = 0; i < trace_.requests.size(); ++i) {
    not_before_[i] = start_ + trace_.requests[i].arrival;
    if (waits_for_[i] == 0) schedule_arrival(i);
  }
}

void ServingEngine::schedule_arrival(std::uint32_t request) {
  transport_.at(std::max(not_before_[request], transport_.now()), [this, request] { arrive(request); });
}

void ServingEngine::arrive(std::uint32_t request) {
  const TracedRequest& traced = trace_.requests[request];
  const EngineConfig& engine = config_.engine;
  auto sequence = std::make_unique<ServedSequence>();
  sequence->request = traced;
  sequence->request.id = SequenceId{request};
  sequence->request.arrival = transport_.now();
  sequence->priority = traced.priority;
  sequence->ids = blocks_.ids(request);
  sequence->tier_ids = whole_tier_blocks(sequence->ids, engine.factor);
  sequence->prompt_blocks = traced.prompt / (engine.block_tokens * engine.factor);
  sequence->prompt_blocks = std::min(sequence->prompt_blocks, static_cast<std::uint32_t>(sequence->tier_ids.size()));
  sequences_[request] = std::move(sequence);
  trigger(request, TraceDependency::Trigger::dispatch);
  instances_[route(*sequences_[request])]->add(*sequences_[request]);
  sample();
}

void ServingEngine::trigger(std::uint32_t request, TraceDependency::Trigger trigger) {
  for (const Follower& follower : followers_[request]) {
    if (follower.trigger != trigger) continue;
    SimTime& at = not_before_[follower.request];
    at = std::max(at, transport_.now() + follower.delay);
    if (--waits_for_[follower.request] == 0) schedule_arrival(follower.request);
  }
}

void ServingEngine::stepped() {
  sample();
  if (told_ || (!finished() && !ends_early_())) return;
  told_ = true;
  finished_();
}

std::size_t ServingEngine::route(const ServedSequence& sequence) {
  if (config_.routing == Routing::round_robin) return next_instance_++ % instances_.size();
  std::size_t best = 0, most = 0;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const std::size_t found = instances_[i]->match(sequence.ids);
    if (i > 0 && (found < most || (found == most && instances_[i]->load() >= instances_[best]->load()))) continue;
    best = i;
    most = found;
  }
  return best;
}

void ServingEngine::sample() {
  ServingLoad load{.remaining = trace_.requests.size() - ended_};
  for (const auto& instance : instances_) {
    load.waiting += instance->waiting();
    load.loading += instance->loading();
    load.running += instance->running();
    load.gpu_blocks += instance->blocks_taken();
  }
  if (tiers_.host() != nullptr) load.host_blocks = tiers_.host()->usage().taken;
  if (tiers_.drives() != nullptr) load.drive_blocks = tiers_.drives()->usage().taken;
  meter_.load(transport_.now(), load);
}

}  // namespace csdsim::host

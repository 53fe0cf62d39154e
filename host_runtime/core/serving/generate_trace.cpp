#include "host_runtime/core/serving/generate_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/serving/growing_prefix.h"

namespace csdsim::host {
namespace {

constexpr std::int64_t kPsPerMs = 1'000'000'000;
constexpr double kMostTurns = 100'000;  // as workload.generate

void require(bool holds, const char* rule) {
  if (!holds) throw UserError(fmt::format("a generated trace needs {}", rule));
}

void check(const TraceGeneration& s) {
  require(s.requests > 0, "at least one request");
  require(s.block_tokens > 0, "KV blocks of at least one token");
  require(s.input_tokens > 0 && s.output_tokens > 0, "prompts and answers of at least one token");
  require(s.prefixes > 0, "at least one prefix");
  require(s.turns >= 1 && s.burst >= 1, "at least one request per session and per burst");
  require(s.turns <= kMostTurns && s.burst <= kMostTurns, "at most 100,000 requests per session and per burst");
  require(s.clients > 0, "at least one client");
  require(s.gap.ps > 0 && s.delay.ps >= 0 && s.token_time.ps >= 0, "a gap above 0 and no negative times");
  require(s.most_tokens >= 4 && s.prefix_tokens <= s.most_tokens / 2,
          "prefixes of at most half of the tokens that a request may have");
  // Longer ones are cut there (tokens()), and their mean would be another one.
  if (const std::uint32_t most = s.most_tokens / 4; s.input_tokens > most || s.output_tokens > most)
    throw UserError(
        fmt::format("a generated trace needs means of new texts and answers of at most a quarter of the tokens that a "
                    "request may have: {} (they are {} and {})",
                    most, s.input_tokens, s.output_tokens));
}

/// A request before it has its place in the trace.
struct Draft {
  TracedRequest request;
  std::vector<KvBlockId> blocks;
  std::optional<std::size_t> before;  ///< the request of its session before it, by the order of drafting
  SimTime delay{};
};

class Generator {
 public:
  explicit Generator(const TraceGeneration& settings) : s_(settings), rng_(settings.seed, "serving_trace") {
    check(settings);
  }

  bool done() const { return drafts_.size() >= s_.requests; }
  /// The next arrival of a Poisson process with this mean gap.
  SimTime next_arrival(double mean_ps) {
    clock_ps_ += exponential() * mean_ps;
    return whole_ms(clock_ps_);
  }
  /// At least 1.
  std::uint64_t geometric(double mean) {
    return mean <= 1 ? 1 : 1 + static_cast<std::uint64_t>(exponential() / -std::log1p(-1 / mean));
  }

  /// Drafts the requests of a session that begins at `start`. A context that is full ends it.
  void add_session(SimTime start, std::uint64_t turns) { add_turns(start, turns, true, false); }
  /// Drafts the requests of a client, whose arrivals depend on the server but for the first. A context that is full
  /// makes the client begin anew.
  void add_client(std::uint64_t turns) { add_turns(SimTime{}, turns, false, true); }

  /// Sorts the requests by arrival if they have any, or leaves them in order of their rounds.
  ServingTrace finish(bool with_sessions) {
    std::vector<std::size_t> order(drafts_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::uint64_t> round(drafts_.size());
    for (std::size_t i = 0; i < drafts_.size(); ++i)
      if (drafts_[i].before) round[i] = round[*drafts_[i].before] + 1;
    const bool timed = std::ranges::all_of(drafts_, [](const Draft& d) { return d.request.timed; });
    std::ranges::stable_sort(order, {}, [&](std::size_t i) {
      return timed ? drafts_[i].request.arrival.ps : static_cast<std::int64_t>(round[i]);
    });
    return in_order(order, with_sessions);
  }

 private:
  static SimTime whole_ms(double ps) { return {std::llround(ps / static_cast<double>(kPsPerMs)) * kPsPerMs}; }
  double exponential() { return -std::log1p(-rng_.unit()); }
  std::uint64_t tokens(std::uint32_t mean) {
    const double drawn = std::ceil(exponential() * mean);
    return static_cast<std::uint64_t>(std::clamp(drawn, 1.0, static_cast<double>(s_.most_tokens) / 4));
  }

  GrowingPrefix begin_context() {
    GrowingPrefix prefix(s_.block_tokens, 0);
    prefix.add(s_.prefix_tokens, static_cast<std::uint32_t>(rng_.below(s_.prefixes)));
    return prefix;
  }

  void add_turns(SimTime start, std::uint64_t turns, bool timed, bool begins_anew) {
    GrowingPrefix prefix = begin_context();
    std::optional<std::size_t> before;
    SimTime arrival = start;
    for (std::uint64_t turn = 0; turn < turns && !done(); ++turn) {
      const std::uint64_t input = tokens(s_.input_tokens), output = tokens(s_.output_tokens);
      if (prefix.tokens() + input + output > s_.most_tokens) {
        if (!begins_anew) break;
        prefix = begin_context();
      }
      Draft draft = draft_request(prefix, input, output);
      draft.before = before;
      if (before) {
        draft.delay = whole_ms(exponential() * static_cast<double>(s_.delay.ps));
        arrival += draft.delay;
      }
      if (timed || !before) draft.request.set_arrival(arrival);
      arrival += SimTime{static_cast<std::int64_t>(output) * s_.token_time.ps};
      arrival = whole_ms(static_cast<double>(arrival.ps));
      before = drafts_.size();
      drafts_.push_back(std::move(draft));
    }
    ++sessions_;
  }

  /// The prompt is all that the session has and a new text; the answer follows it.
  Draft draft_request(GrowingPrefix& prefix, std::uint64_t input, std::uint64_t output) {
    prefix.add(input, next_text_++);
    Draft draft;
    draft.request.prompt = static_cast<std::uint32_t>(prefix.tokens());
    draft.request.output = static_cast<std::uint32_t>(output);
    draft.request.session = sessions_;
    draft.blocks = prefix.blocks();
    prefix.add(output, next_text_++);
    return draft;
  }

  ServingTrace in_order(const std::vector<std::size_t>& order, bool with_sessions) {
    ServingTrace trace;
    trace.name = "generated";
    trace.block_tokens = s_.block_tokens;
    std::vector<std::uint32_t> place(order.size());
    std::unordered_map<std::uint64_t, std::uint64_t> numbers;
    std::unordered_map<std::uint32_t, std::uint32_t> sessions;
    for (const std::size_t from : order) {
      Draft& draft = drafts_[from];
      TracedRequest& r = draft.request;
      place[from] = static_cast<std::uint32_t>(trace.requests.size());
      r.line = trace.requests.size() + 1;
      r.first_block = trace.blocks.size();
      r.blocks = static_cast<std::uint32_t>(draft.blocks.size());
      for (const KvBlockId id : draft.blocks)
        trace.blocks.push_back({numbers.try_emplace(id.value, numbers.size()).first->second});
      r.first_dependency = trace.dependencies.size();
      if (draft.before) {
        trace.dependencies.push_back({.request = place[*draft.before], .delay = draft.delay});
        r.dependencies = 1;
      }
      if (with_sessions)
        r.session = sessions.try_emplace(*r.session, static_cast<std::uint32_t>(sessions.size())).first->second;
      else
        r.session.reset();
      trace.requests.push_back(r);
    }
    return trace;
  }

  const TraceGeneration& s_;
  Rng rng_;
  double clock_ps_ = 0;
  std::uint32_t sessions_ = 0;
  std::uint32_t next_text_ = 1u << 31;  ///< prefixes are the texts below
  std::vector<Draft> drafts_;
};

ServingTrace independent(const TraceGeneration& s) {
  Generator generator(s);
  while (!generator.done()) {
    const std::uint64_t together = generator.geometric(s.burst);
    const SimTime at = generator.next_arrival(static_cast<double>(s.gap.ps) * s.burst);
    for (std::uint64_t i = 0; i < together && !generator.done(); ++i) generator.add_session(at, 1);
  }
  return generator.finish(false);
}

ServingTrace sessions(const TraceGeneration& s) {
  Generator generator(s);
  while (!generator.done()) {
    const std::uint64_t turns = generator.geometric(s.turns);
    generator.add_session(generator.next_arrival(static_cast<double>(s.gap.ps) * s.turns), turns);
  }
  return generator.finish(true);
}

ServingTrace closed_loop(const TraceGeneration& s) {
  Generator generator(s);
  for (std::uint32_t client = 0; client < s.clients && !generator.done(); ++client)
    generator.add_client((s.requests - client + s.clients - 1) / s.clients);
  return generator.finish(true);
}

constexpr SimTime seconds(std::int64_t s) { return SimTime::milliseconds(1000 * s); }

const std::array<TraceKind, 5> kKinds{{
    {"poisson", "independent requests at random times", {}, independent},
    {"bursts", "independent requests, several at a time", {.burst = 10}, independent},
    {"chats",
     "conversations: each prompt is all that was said before and a new message",
     {.input_tokens = 200,
      .output_tokens = 300,
      .prefixes = 4,
      .prefix_tokens = 1500,
      .delay = seconds(20),
      .turns = 6},
     sessions},
    {"agents",
     "agents with long instructions, which come back after each tool call with its result",
     {.input_tokens = 800,
      .output_tokens = 120,
      .prefixes = 2,
      .prefix_tokens = 9000,
      .delay = seconds(2),
      .turns = 25},
     sessions},
    {"closed-loop",
     "clients, each of which sends its next request when it has read the answer",
     {.delay = seconds(1)},
     closed_loop},
}};

}  // namespace

std::span<const TraceKind> trace_kinds() { return kKinds; }

}  // namespace csdsim::host

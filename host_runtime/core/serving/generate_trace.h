// Makes serving traces: independent requests, bursts, chats, agents, closed loops.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "host_runtime/core/serving/serving_trace.h"

namespace csdsim::host {

struct TraceGeneration {
  std::uint32_t requests = 300;
  std::uint64_t seed = 1;
  std::uint32_t block_tokens = 512;
  /// Means of exponential distributions, rounded up to whole tokens: of what a user or tool adds to the prompt, and of
  /// the answer.
  std::uint32_t input_tokens = 1000, output_tokens = 250;
  /// Every session begins with one of `prefixes` texts of prefix_tokens each, drawn evenly.
  std::uint32_t prefixes = 1, prefix_tokens = 0;
  /// A request of a session waits this long after the answer before: the mean of an exponential distribution.
  SimTime delay{};
  double turns = 1;                     ///< mean number of requests per session, geometric, at least 1
  std::uint32_t most_tokens = 131'072;  ///< a session ends before a prompt and its answer have more
  /// Mean gap between the requests of all sessions together.
  SimTime gap = SimTime::milliseconds(1000);
  /// bursts: mean number of requests that arrive together, geometric, at least 1.
  double burst = 1;
  std::uint32_t clients = 8;  ///< closed loop: as many requests at a time
  /// What is assumed of the server for arrivals of later requests of a session: time per token of an answer.
  SimTime token_time = SimTime::milliseconds(20);
};

struct TraceKind {
  std::string_view name;
  std::string_view description;
  TraceGeneration defaults;
  ServingTrace (*generate)(const TraceGeneration& settings);
};

/// poisson, bursts, chats, agents, closed-loop. Ids of blocks count from 0 in the order of the requests; arrivals are
/// whole milliseconds and ascend. The same settings make the same trace. generate() throws UserError for settings out
/// of range.
std::span<const TraceKind> trace_kinds();

}  // namespace csdsim::host

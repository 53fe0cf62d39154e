// A request to generate tokens, from its arrival to its last token.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/units.h"

namespace csdsim::host {

/// Lengths are in tokens. In a trace and in a plan, `arrival` counts from the start; whoever schedules the request
/// writes its state and the times of its life, in simulated time.
struct Request {
  SequenceId id{};
  SimTime arrival{};
  std::uint32_t prompt = 0;
  std::uint32_t output = 0;  ///< that it is to generate
  std::uint64_t line = 0;    ///< line of the file that it is from; 0: it is from none

  enum class State : std::uint8_t { waiting, running, ended };
  State state = State::waiting;
  std::uint32_t generated = 0;  ///< so far
  SimTime admitted{};           ///< its prefill begins
  SimTime first_token{};
  SimTime end{};  ///< its last token has been sampled

  bool operator==(const Request&) const = default;
};

}  // namespace csdsim::host

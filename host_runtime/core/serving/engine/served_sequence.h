// A request on its way through a serving engine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "host_runtime/core/request.h"
#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

/// What a request is doing.
enum class RequestPhase : std::uint8_t { queued, load, prefill, decode, preempted };
constexpr std::array<std::string_view, 5> kRequestPhaseNames{"queued", "load", "prefill", "decode", "preempted"};

/// A part of a request's life.
struct RequestSpan {
  RequestPhase phase = RequestPhase::queued;
  SimTime begin, end;
};

struct ServedSequence {
  enum class Phase : std::uint8_t { waiting, loading, loaded, running, swapped, ended };

  Request request;
  std::uint32_t instance = 0;
  std::uint32_t priority = 0;       ///< lower values first
  std::vector<KvBlockId> ids;       ///< ids of the blocks of the GPU that it will fill
  std::vector<KvBlockId> tier_ids;  ///< ids of the blocks of the tiers
  std::uint32_t prompt_blocks = 0;  ///< blocks of the tiers that hold tokens of the prompt only

  Phase phase = Phase::waiting;
  std::vector<KvBlockSlot> slots;         ///< in the GPU
  std::uint64_t computed = 0;             ///< tokens whose K and V are in the GPU
  std::optional<std::uint64_t> set_back;  ///< tokens that are left of `computed` after this step: a tier lost a block
  std::size_t named = 0;                  ///< blocks that others can find
  std::size_t stored = 0;                 ///< blocks of the tiers that have been offered to them
  bool stores = false;                    ///< has offered any
  std::uint32_t lookups_left = 0;         ///< steps until the tiers have answered
  bool sighted = false;                   ///< its blocks count for admission
  bool asked = false;                     ///< its first look-up is in the counts of the tiers
  std::uint32_t found_in_host = 0;        ///< blocks of it, by that look-up
  bool counted = false;                   ///< its hits count
  Bytes swapped;                          ///< in host memory
  std::uint32_t preemptions = 0;
  std::optional<SimTime> last_token;

  /// Tokens of the prompt that were not computed when the request began, by where they were found.
  std::uint64_t hit_gpu = 0, hit_host = 0, hit_drives = 0;
  SimTime load_began, loaded_at;  ///< begin and end of the last load
  bool has_loaded = false;

  std::vector<RequestSpan> spans;  ///< its life so far; the last one has no end

  /// The request does something else from now on.
  void enter(RequestPhase next, SimTime now) {
    close(now);
    spans.push_back({next, now, now});
  }
  void close(SimTime now) {
    if (!spans.empty()) spans.back().end = now;
  }

  std::uint64_t tokens() const { return std::uint64_t{request.prompt} + request.generated; }
  std::uint64_t left() const { return tokens() - computed; }
};

}  // namespace csdsim::host

// The division of a whole run: what its decode steps take with the tokens that parts and drives really have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "host_runtime/core/planner/kv_division.h"
#include "host_runtime/core/planner/systems/hybrid/division.h"

namespace csdsim::host {

inline constexpr std::array kEachPart{TokenPart::recomputed, TokenPart::kept, TokenPart::copied, TokenPart::drives};
inline std::size_t part_index(TokenPart part) { return static_cast<std::size_t>(part); }

/// Shares by TokenPart; those that are not given are solved.
using GivenShares = std::array<std::optional<Ratio>, kTokenParts>;

/// The shares of a division, with at most twelve decimal places and a sum of exactly 1. Those that are not given are
/// rounded to multiples of kLeastShare, except for the last one, which takes the rest.
TokenShares rounded(const Division& division, const GivenShares& given, std::uint32_t group);

/// A run whose prompts are equally long, and whose new tokens join the parts in groups.
struct GrowingRun {
  std::function<DivisionInputs(std::uint32_t)> inputs_after;  ///< after so many decode steps
  std::uint32_t prompt = 0;                                   ///< tokens
  std::uint32_t steps = 0;                                    ///< decode steps
  std::uint32_t page_tokens = 0;                              ///< rows of a head in a page of K, or of V
};

/// The terms of a layer after `steps` decode steps, with the tokens that parts and drives have then. A drive gets a
/// group in a share `writes` of the steps around.
LayerTimes layer_times_after(const GrowingRun& run, const KvDivision& division, std::uint32_t steps, double newest,
                             double writes);

/// Seconds of a layer in all decode steps together, by layer_times(): groups join the parts as KvDivision says, pages
/// are those of the drive with most tokens, and a step in which a drive gets a group takes what that takes. Up to 32
/// groups are looked at, evenly; each stands for those around it.
double run_time(const GrowingRun& run, const TokenShares& shares);

/// The division with the least run_time() among those that fit the memories at the end of the run. The search is for
/// the shares of the prompt, and for those of the new tokens in each piece of the run: the pieces of `solved`, cut into
/// up to eight. It begins with the best of `solved` and of shares that stay the same for the whole run, which are each
/// of `divisions`. Then it exchanges smaller and smaller shares between two open parts: of the prompt, of the new
/// tokens of a piece, or of both; and it tries as many tokens of the prompt in the drives as fill whole pages.
TokenShares fastest_shares(const GrowingRun& run, const GivenShares& given, const TokenShares& solved,
                           const std::vector<Division>& divisions);

}  // namespace csdsim::host

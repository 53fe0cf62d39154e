// Drafts without a model: what followed the latest tokens when they occurred before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// At most `most` tokens that followed the newest earlier occurrence of the last three tokens, or else of the last two,
/// or of the last one; empty if there is none (prompt lookup decoding, Saxena 2023; transformers takes the oldest
/// occurrence).
std::vector<TokenId> lookup_draft(std::span<const TokenId> tokens, std::uint32_t most);

}  // namespace csdsim::host

// Keys of a checkpoint's JSON files that csdsim knows and does not read, because they cannot change what it computes.
#pragma once

#include <span>
#include <string_view>

namespace csdsim::host {

/// Keys that are not read for one reason, which stands beside them.
using UnreadKeys = std::span<const std::string_view>;
using UnreadKeyGroups = std::span<const UnreadKeys>;

/// The keys of each file. A key that is neither read nor stands here is an error.
extern const UnreadKeyGroups kUnreadOfConfig, kUnreadOfGenerationConfig, kUnreadOfTokenizerConfig, kUnreadOfTokens,
    kUnreadOfIndexMetadata;

bool stands_in(UnreadKeyGroups groups, std::string_view key);

}  // namespace csdsim::host

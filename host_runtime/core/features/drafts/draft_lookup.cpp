#include "host_runtime/core/features/drafts/draft_lookup.h"

#include <algorithm>
#include <cstddef>

namespace csdsim::host {

namespace {

constexpr std::size_t kLongestMatch = 3;

}  // namespace

std::vector<TokenId> lookup_draft(std::span<const TokenId> tokens, std::uint32_t most) {
  for (std::size_t length = std::min(kLongestMatch, tokens.size()); length > 0; --length) {
    const std::span<const TokenId> last = tokens.last(length);
    for (std::size_t at = tokens.size() - length; at-- > 0;) {
      if (!std::ranges::equal(tokens.subspan(at, length), last)) continue;
      const std::span<const TokenId> next = tokens.subspan(at + length);
      return {next.begin(), next.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(most, next.size()))};
    }
  }
  return {};
}

}  // namespace csdsim::host

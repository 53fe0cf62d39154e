#include "host_runtime/core/serving/engine/request_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::host {

namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

KvBlockId part_of(KvBlockId block, std::uint64_t part) { return {counter_random(block.value, part)}; }

}  // namespace

RequestBlocks::RequestBlocks(const ServingTrace& trace, std::uint32_t block_tokens)
    : trace_(trace), block_tokens_(block_tokens), next_turn_(trace.requests.size(), kNone) {
  if (trace.block_tokens) {
    if (*trace.block_tokens % block_tokens != 0)
      throw UserError(fmt::format("{}: its blocks of {} tokens are not whole blocks of {} tokens", trace.name,
                                  *trace.block_tokens, block_tokens));
    parts_ = *trace.block_tokens / block_tokens;
  }
  std::unordered_map<std::uint32_t, std::uint32_t> last;  // by session
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    if (!trace.requests[i].session) continue;
    const auto [at, first] = last.try_emplace(*trace.requests[i].session, i);
    if (!first) next_turn_[at->second] = i;
    at->second = i;
  }
}

std::optional<std::uint32_t> RequestBlocks::next_turn(std::size_t request) const {
  if (next_turn_[request] == kNone) return std::nullopt;
  return next_turn_[request];
}

std::vector<KvBlockId> RequestBlocks::named_blocks(std::size_t request, std::size_t wanted) const {
  std::vector<KvBlockId> known;
  if (!trace_.block_tokens) return known;
  for (std::size_t turn = request; turn != kNone; turn = next_turn_[turn]) {
    const TracedRequest& r = trace_.requests[turn];
    const auto blocks = trace_.blocks_of(r);
    const std::size_t whole = std::min<std::size_t>(r.prompt / *trace_.block_tokens, blocks.size());
    // A session may begin anew with a shorter prompt, or another one.
    if (whole < known.size() || !std::equal(known.begin(), known.end(), blocks.begin())) break;
    for (std::size_t i = known.size(); i < std::min(whole, wanted); ++i) known.push_back(blocks[i]);
    if (known.size() == wanted) break;
  }
  return known;
}

std::vector<KvBlockId> RequestBlocks::ids(std::size_t request) const {
  const TracedRequest& r = trace_.requests[request];
  const std::uint64_t tokens = std::uint64_t{r.prompt} + r.output - 1;
  std::vector<KvBlockId> ids(tokens / block_tokens_);
  const std::vector<KvBlockId> known = named_blocks(request, trace_.block_tokens ? tokens / *trace_.block_tokens : 0);
  const auto blocks = trace_.blocks_of(r);
  std::optional<KvBlockId> partial;
  if (trace_.block_tokens && known.size() < blocks.size()) partial = blocks[known.size()];
  const KvBlockId own = chain_root(request);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t block = i / parts_, part = i % parts_;
    if (block < known.size())
      ids[i] = part + 1 == parts_ ? known[block] : part_of(known[block], part);
    else if (partial && block == known.size() && (i + 1) * block_tokens_ <= r.prompt)
      ids[i] = part_of(*partial, part);
    else
      ids[i] = part_of(own, i);
  }
  return ids;
}

}  // namespace csdsim::host

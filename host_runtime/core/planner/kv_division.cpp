#include "host_runtime/core/planner/kv_division.h"

namespace csdsim::host {

KvDivision::KvDivision(ShardBy by, std::uint32_t kv_heads, std::uint32_t drives)
    : drives_(drives),
      token_parts_(by == ShardBy::token ? drives : 1),
      shards_(shard_heads(kv_heads, by == ShardBy::token && drives > 1 ? 1 : drives)) {}

Share KvDivision::prompt(DriveIndex drive, std::uint32_t prompt_tokens) const {
  if (!by_tokens()) return {0, prompt_tokens};
  const std::uint32_t each = prompt_tokens / token_parts_, longer = prompt_tokens % token_parts_;
  return {drive.value * each + (drive.value < longer ? drive.value : longer), each + (drive.value < longer ? 1 : 0)};
}

bool KvDivision::appends(DriveIndex drive, std::uint32_t step) const {
  return !by_tokens() || drive.value == token_parts_ - 1 - step % token_parts_;
}

std::uint32_t KvDivision::tokens(DriveIndex drive, std::uint32_t prompt_tokens, std::uint32_t steps) const {
  if (!by_tokens()) return prompt_tokens + steps;
  const std::uint32_t from_last = token_parts_ - 1 - drive.value;
  return prompt(drive, prompt_tokens).count + steps / token_parts_ + (from_last < steps % token_parts_ ? 1 : 0);
}

}  // namespace csdsim::host

#include "host_runtime/core/plan/kv_division.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// Groups after which their targets repeat: a share is met to a thousandth.
constexpr std::uint32_t kPeriod = 1000;

/// The part of piece `index` of `total` items that are divided as evenly as possible, longer pieces first.
Share even_piece(std::uint32_t total, std::uint32_t pieces, std::uint32_t index) {
  const std::uint32_t each = total / pieces, longer = total % pieces;
  return {index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

}  // namespace

KvDivision::KvDivision(ShardBy by, std::uint32_t kv_heads, std::uint32_t drives)
    : drives_(drives),
      token_parts_(by == ShardBy::token ? drives : 1),
      shards_(shard_heads(kv_heads, by == ShardBy::token && drives > 1 ? 1 : drives)) {}

KvDivision::KvDivision(const TokenShares& shares, std::uint32_t kv_heads, std::uint32_t drives)
    : drives_(drives), token_parts_(drives), shards_(shard_heads(kv_heads, 1)), group_(shares.group) {
  if (drives == 0) throw UserError("tokens are divided among no drive");
  if (group_ == 0) throw UserError("system: groups of 0 new tokens, must be at least 1");
  double sum = 0;
  for (std::size_t part = 0; part < kTokenParts; ++part) end_[part] = sum += shares.share[part].value();
  if (std::abs(sum - 1) > 1e-9) throw UserError("system: the shares of the tokens are not the whole together");
  auto groups = std::make_shared<std::vector<Target>>();
  std::array<double, kTokenParts> held{};
  std::uint32_t next = 0;
  most_in_drives_ = shares[TokenPart::drives].value();
  for (std::uint32_t i = 0; i < kPeriod; ++i) {
    std::array<double, kTokenParts> lack{};
    for (std::size_t part = 0; part < kTokenParts; ++part)
      lack[part] = shares.share[part].value() * ((i + 1) * group_) - held[part];
    const auto most = static_cast<std::size_t>(std::ranges::max_element(lack) - lack.begin());
    held[most] += group_;
    Target target{static_cast<TokenPart>(most), {}};
    if (target.part == TokenPart::drives) {
      constexpr double kSome = 1e-3;  // more than none
      most_in_drives_ = std::max(most_in_drives_, std::max<double>(next, kSome) / (i + 1));
      target.drive = DriveIndex{drives - 1 - next++ % drives};
    }
    groups->push_back(target);
  }
  groups_ = std::move(groups);
}

template <class Is>
std::uint32_t KvDivision::groups_until(std::uint32_t steps, const Is& is) const {
  const std::uint32_t groups = steps / group_;
  const auto first = groups_->begin();
  const auto in = [&](std::uint32_t count) {
    return static_cast<std::uint32_t>(std::count_if(first, first + count, is));
  };
  const auto period = static_cast<std::uint32_t>(groups_->size());
  return groups / period * in(period) + in(groups % period);
}

Share KvDivision::prompt(TokenPart part, std::uint32_t prompt_tokens) const {
  const auto i = static_cast<std::size_t>(part);
  const auto until = [&](double share) { return static_cast<std::uint32_t>(std::lround(share * prompt_tokens)); };
  const std::uint32_t first = i == 0 ? 0 : until(end_[i - 1]);
  const std::uint32_t end = i + 1 == kTokenParts ? prompt_tokens : until(end_[i]);
  return {first, end - first};
}

std::uint32_t KvDivision::tokens(TokenPart part, std::uint32_t prompt_tokens, std::uint32_t steps) const {
  return prompt(part, prompt_tokens).count +
         group_ * groups_until(steps, [&](const Target& to) { return to.part == part; });
}

Share KvDivision::prompt_piece(std::uint32_t piece, std::uint32_t prompt_tokens) const {
  if (piece < drives_) return prompt(DriveIndex{piece}, prompt_tokens);
  return prompt(piece == piece_of(TokenPart::kept) ? TokenPart::kept : TokenPart::copied, prompt_tokens);
}

Share KvDivision::prompt(DriveIndex drive, std::uint32_t prompt_tokens) const {
  if (!by_tokens()) return {0, prompt_tokens};
  const Share all = groups_ ? prompt(TokenPart::drives, prompt_tokens) : Share{0, prompt_tokens};
  const Share piece = even_piece(all.count, token_parts_, drive.value);
  return {all.first + piece.first, piece.count};
}

bool KvDivision::appends(DriveIndex drive, std::uint32_t step) const {
  if (!groups_) return !by_tokens() || drive.value == token_parts_ - 1 - step % token_parts_;
  const Target to = target(step);
  return writes_back(step) && to.part == TokenPart::drives && to.drive == drive;
}

std::uint32_t KvDivision::tokens(DriveIndex drive, std::uint32_t prompt_tokens, std::uint32_t steps) const {
  if (!by_tokens()) return prompt_tokens + steps;
  const std::uint32_t of_prompt = prompt(drive, prompt_tokens).count;
  if (groups_)
    return of_prompt + group_ * groups_until(steps, [&](const Target& to) {
                         return to.part == TokenPart::drives && to.drive == drive;
                       });
  const std::uint32_t from_last = token_parts_ - 1 - drive.value;
  return of_prompt + steps / token_parts_ + (from_last < steps % token_parts_ ? 1 : 0);
}

std::uint32_t KvDivision::most_tokens(std::uint32_t context) const {
  if (!groups_) return (context + token_parts_ - 1) / token_parts_;
  // A drive has at most two tokens of the prompt more than its share: one because both ends are rounded, one if the
  // drives do not divide the share evenly. The same holds for the groups.
  if (most_in_drives_ <= 1e-12) return 0;
  const double most = most_in_drives_ * context / token_parts_ + 2 + 2.0 * group_;
  return std::min(context, static_cast<std::uint32_t>(std::ceil(most)));
}

}  // namespace csdsim::host

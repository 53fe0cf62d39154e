#include "host_runtime/core/planner/systems/hybrid/divided_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host_runtime/core/planner/systems/weight_parameters.h"

namespace csdsim::host {

namespace {

constexpr TokenPart kParts[] = {TokenPart::recomputed, TokenPart::kept, TokenPart::copied, TokenPart::drives};

std::size_t index(TokenPart part) { return static_cast<std::size_t>(part); }

/// Shares of at most twelve decimal places, which are the whole together. Those that are not given are multiples of
/// 1/4096, but for the last one.
TokenShares rounded(const Division& division, const GivenShares& given, std::uint32_t group) {
  constexpr std::uint64_t kWhole = 1'000'000'000'000;
  constexpr double kSteps = 4096;
  TokenShares shares{.share = {}, .group = group};
  std::uint64_t left = kWhole;
  std::optional<TokenPart> last;
  for (const TokenPart part : kParts)
    if (!given[index(part)]) last = part;
  for (const TokenPart part : kParts) {
    if (last == part) continue;
    const double share =
        given[index(part)] ? given[index(part)]->value() : std::round(division[index(part)] * kSteps) / kSteps;
    const std::uint64_t units = std::min(left, static_cast<std::uint64_t>(std::llround(share * double(kWhole))));
    shares[part] = Ratio::of(units, kWhole);
    left -= units;
  }
  // What rounding leaves over goes to the largest share.
  Ratio& rest = last ? shares[*last] : *std::ranges::max_element(shares.share);
  rest = Ratio::of(left + rest.round_of(kWhole), kWhole);
  return shares;
}

/// Whether the shares can be a division. If not, check() has said so.
bool possible(const GivenShares& given) {
  double sum = 0;
  bool all = true;
  for (const std::optional<Ratio>& share : given) {
    sum += share ? share->value() : 0;
    all = all && share;
  }
  return sum <= 1 + 1e-9 && (!all || sum >= 1 - 1e-9);
}

double mean(const std::vector<std::uint32_t>& tokens) {
  double sum = 0;
  for (const std::uint32_t t : tokens) sum += t;
  return tokens.empty() ? 0 : sum / double(tokens.size());
}

}  // namespace

void DividedTokens::describe(ParamVisitor& v) {
  v.param("write_back_tokens", group_, {1, 4096},
          "New tokens of a sequence that go to one part together. Until then they are outside of all parts, and the "
          "GPU attends to them.",
          assumed("a page of 4 KiB; HILOS delays the write-back until a group is full"));
  v.param("newest_tokens", newest_, "Where K and V of these tokens wait.",
          newest_ == NewestAt::host ? paper("HILOS (arXiv 2502.09921), delayed write-back: in host memory")
                                    : assumed("the GPU attends to them where they are made"));
  v.param("kv_buffers", kv_buffers_, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied or recomputed "
          "ahead in decode.",
          assumed("double buffering"));
  describe_weights(v, weights_);
}

void DividedTokens::check(config::Problems& problems, const SystemContext& context) const {
  check_weights(problems, context, weights_);
}

std::vector<std::string> DividedTokens::unused_parameters() const { return unused_weight_parameters(weights_); }

void DividedTokens::choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates,
                           const GivenShares& given) {
  if (!possible(given)) return;
  const double prompt = mean(workload.prompt_tokens);
  const DivisionInputs inputs{.model = model,
                              .rates = rates,
                              .sequences = workload.batch(),
                              .cached = prompt + workload.output_tokens / 2.0,
                              .longest = prompt + workload.output_tokens,
                              .prompt = prompt,
                              .group = group_,
                              .newest = newest_,
                              .kv_buffers = kv_buffers_,
                              .weights_on_host = weights_.on_host};
  std::array<std::optional<double>, kTokenParts> fixed;
  for (std::size_t part = 0; part < kTokenParts; ++part)
    if (given[part]) fixed[part] = given[part]->value();
  const Division solved = solve_division(inputs, fixed);
  solved_ = rounded(solved, given, group_);
  times_ = layer_times(inputs, solved);
}

TokenShares DividedTokens::shares(const GivenShares& given) const {
  if (solved_) return *solved_;
  Division division{};
  double left = 1;
  for (std::size_t part = 0; part < kTokenParts; ++part)
    if (given[part]) left -= division[part] = given[part]->value();
  if (!given[index(TokenPart::drives)]) division[index(TokenPart::drives)] = std::max(0.0, left);
  return rounded(division, given, group_);
}

SystemNeeds DividedTokens::needs(const ModelShape& model, const BatchLengths& workload,
                                 const GivenShares& given) const {
  const TokenShares parts = shares(given);
  SystemNeeds needs{
      .kv = Home::drive_kv, .residents = weight_residents(model, weights_), .shard = ShardBy::token, .shares = parts};
  if (workload.prompt_tokens.empty()) return needs;
  const std::uint64_t tokens = workload.longest_contexts();
  const auto add = [&](Home home, const char* what, Bytes bytes) {
    if (bytes.value > 0) needs.residents.push_back({home, what, bytes});
  };
  const Bytes kv = model.kv_bytes_per_token();
  const Bytes x{std::uint64_t{model.width} * model.element_bytes * model.layers};
  add(Home::gpu, "K and V of kept tokens", kv * parts[TokenPart::kept].round_of(tokens));
  add(newest_ == NewestAt::gpu ? Home::gpu : Home::host, "K and V of the newest tokens",
      kv * (std::uint64_t{group_} * workload.batch()));
  add(Home::host, "K and V of copied tokens", kv * parts[TokenPart::copied].round_of(tokens));
  add(Home::host, "activations", x * parts[TokenPart::recomputed].round_of(tokens));
  return needs;
}

std::unique_ptr<Planner> DividedTokens::plan(const PlannerInputs& inputs, const GivenShares& given) const {
  return std::make_unique<HybridPlanner>(
      inputs, HybridPlan{.shares = shares(given), .newest = newest_, .kv_buffers = kv_buffers_}, weights_);
}

std::vector<std::pair<std::string, std::string>> DividedTokens::remarks() const {
  if (!solved_) return {};
  const auto share = [&](TokenPart part) { return (*solved_)[part].value(); };
  return {
      {"token_division", fmt::format("recomputed {:.4f}, in GPU memory {:.4f}, copied {:.4f}, in drives {:.4f}",
                                     share(TokenPart::recomputed), share(TokenPart::kept), share(TokenPart::copied),
                                     share(TokenPart::drives))},
      {"layer_times_by_rates",
       fmt::format("{:.3f} ms: link {:.3f}, GPU {:.3f} and {:.3f} for attention, drives {:.3f}", times_->layer * 1e3,
                   times_->link * 1e3, times_->projections * 1e3, times_->attention * 1e3, times_->drives * 1e3)}};
}

}  // namespace csdsim::host

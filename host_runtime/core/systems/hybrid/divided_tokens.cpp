#include "host_runtime/core/systems/hybrid/divided_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

namespace {

constexpr const char* kSparfParameters[] = {"ratio", "ratio_mode", "r", "k", "l"};

/// True if the shares can be a division. If not, check() has said so.
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

/// The shares of a division, with at most twelve decimal places and a sum of exactly 1. Of those that are not given,
/// the last one takes what rounding leaves.
TokenShares rounded(const Division& division, const GivenShares& given, std::uint32_t group) {
  constexpr std::uint64_t kWhole = 1'000'000'000'000;
  TokenShares shares{.share = {}, .group = group};
  std::uint64_t left = kWhole;
  std::optional<TokenPart> last;
  for (const TokenPart part : kEachPart)
    if (!given[part_index(part)]) last = part;
  for (const TokenPart part : kEachPart) {
    if (last == part) continue;
    const std::uint64_t units =
        std::min(left, static_cast<std::uint64_t>(std::llround(division[part_index(part)] * double(kWhole))));
    shares[part] = Ratio::of(units, kWhole);
    left -= units;
  }
  // What rounding leaves over goes to the largest share.
  Ratio& rest = last ? shares[*last] : *std::ranges::max_element(shares.share);
  rest = Ratio::of(left + rest.round_of(kWhole), kWhole);
  return shares;
}

}  // namespace

void DividedTokens::describe(ParamVisitor& v) {
  v.param("write_back_tokens", group_, {1, 4096},
          "New tokens of a sequence that go to one part together. Until then they are outside of all parts, and the "
          "GPU attends to them.",
          assumed("a page of 4 KiB; HILOS delays the write-back until a group is full"));
  v.param("newest_tokens", newest_, "Where K and V of these tokens wait.",
          newest_ == Place::host() ? paper("HILOS (arXiv 2502.09921), delayed write-back: in host memory")
                                   : assumed("the GPU attends to them where they are made"));
  v.param("activations", activations_, "Where the activations of recomputed tokens are.",
          paper("HILOS (arXiv 2502.09921), X-cache: in host memory"));
  v.param("kv_buffers", kv_buffers_, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied or recomputed "
          "ahead in decode.",
          assumed("double buffering"));
  describe_kv(v, kv_);
  describe_weights(v, weights_);
}

void DividedTokens::describe_drives(ParamVisitor& v) {
  v.param(
      "method", method_,
      "What the drives compute. With sparf each of them chooses among its own tokens, and its output weighs as much "
      "as all of them.",
      assumed("SparF as in instinfer-sparf; partial outputs of it are not in the paper"));
  describe_sparf(v, sparf_);
}

void DividedTokens::check(config::Problems& problems, const SystemContext& context) const {
  check_kv(problems, context, kv_);
  check_weights(problems, context, weights_);
}

void DividedTokens::check_drives(config::Problems& problems, const SystemContext& context) const {
  if (sparse()) return check_sparf(problems, context, sparf_);
  for (const char* const name : kSparfParameters)
    problems.refuse_unused(fmt::format("system.{}", name), "system.method", "dense attention chooses no tokens");
}

std::vector<std::string> DividedTokens::unused_parameters() const { return host::unused_parameters(weights_, kv_); }

std::vector<std::string> DividedTokens::unused_drive_parameters() const {
  if (sparse()) return unused_sparf_parameters(sparf_);
  return {std::begin(kSparfParameters), std::end(kSparfParameters)};
}

void DividedTokens::choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates,
                           const GivenShares& given) {
  if (!possible(given)) return;
  const double prompt = mean(workload.prompts());
  const std::uint32_t steps = workload.decode_steps();
  const double newest = (std::min(group_, std::max(1U, steps)) - 1) / 2.0;
  DivisionInputs inputs{.model = model,
                        .rates = rates,
                        .sequences = workload.batch(),
                        .prompt = prompt,
                        .cached = std::max(prompt, prompt + steps / 2.0 - newest),
                        .longest = prompt + workload.output_tokens,
                        .newest = newest,
                        .group = group_,
                        .newest_at = newest_,
                        .activations = activations_,
                        .kv_buffers = kv_buffers_,
                        .weights_on_host = weights_.on_host,
                        .kv = kv_.rows()};
  if (sparse()) inputs.sparf.emplace(sparf_, model.head_dim);
  const Division solved = solve_division(inputs, given);
  solved_ = rounded(solved, given, group_);
  times_ = layer_times(inputs, solved);
}

TokenShares DividedTokens::shares(const GivenShares& given) const {
  if (solved_) return *solved_;
  Division division{};
  double left = 1;
  for (std::size_t part = 0; part < kTokenParts; ++part)
    if (given[part]) left -= division[part] = given[part]->value();
  if (!given[part_index(TokenPart::drives)]) division[part_index(TokenPart::drives)] = std::max(0.0, left);
  return rounded(division, given, group_);
}

SystemNeeds DividedTokens::needs(const ModelShape& model, const BatchLengths& workload,
                                 const GivenShares& given) const {
  const TokenShares parts = shares(given);
  SystemNeeds needs{.kv = Place::drive_kv(),
                    .component_major = sparse(),
                    .residents = weight_residents(model, weights_),
                    .shard = ShardBy::token,
                    .shares = parts};
  if (workload.requests.empty()) return needs;
  const auto add = [&](Place home, const char* what, Bytes bytes) {
    if (bytes.value > 0) needs.residents.push_back({home, what, bytes});
  };
  const auto kv = [&](std::uint64_t tokens) { return kv_bytes(model, kv_, tokens); };
  const Bytes x{std::uint64_t{model.width} * model.element_bytes * model.layers};
  const auto of = [&](TokenPart part) { return parts[part].round_of(workload.longest_contexts()); };
  add(Place::gpu(), "K and V of kept tokens", kv(of(TokenPart::kept)));
  add(newest_ == Place::gpu() ? Place::gpu() : Place::host(), "K and V of the newest tokens",
      kv(std::uint64_t{group_} * workload.batch()));
  add(Place::host(), "K and V of copied tokens", kv(of(TokenPart::copied)));
  add(activations_ == Place::host() ? Place::host() : Place::drive_blocks(), "activations",
      x * of(TokenPart::recomputed));
  return needs;
}

std::unique_ptr<Planner> DividedTokens::plan(const PlannerInputs& inputs, const GivenShares& given) const {
  return std::make_unique<HybridPlanner>(inputs,
                                         HybridPlan{.shares = shares(given),
                                                    .newest = newest_,
                                                    .activations = activations_,
                                                    // Where the drives take longer than the GPU, or read when they have
                                                    // attended, it must not keep them waiting; otherwise it uses the
                                                    // time in which it waits for them.
                                                    .projects_first = activations_ == Place::drive_blocks() ||
                                                                      (times_ && times_->drives > times_->attention),
                                                    .kv_buffers = kv_buffers_,
                                                    .sparf = sparse() ? std::optional(sparf_) : std::nullopt,
                                                    .kv = kv_.rows()},
                                         weights_);
}

Remarks DividedTokens::remarks() const {
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

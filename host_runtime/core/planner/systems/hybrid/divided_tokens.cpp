#include "host_runtime/core/planner/systems/hybrid/divided_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "host_runtime/core/planner/systems/weight_parameters.h"

namespace csdsim::host {

namespace {

constexpr const char* kSparfParameters[] = {"ratio", "ratio_mode", "r", "k", "l"};

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

/// Tokens of all sequences in a part when the run ends. Where requests arrive, about as many as ever.
std::uint64_t tokens_at_end(const TokenShares& shares, TokenPart part, const BatchLengths& workload) {
  if (shares.later.empty()) return shares[part].round_of(workload.longest_contexts());
  const KvDivision division(shares, 1, 1);
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : workload.prompt_tokens)
    tokens += division.tokens(part, prompt, workload.decode_steps());
  return tokens;
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

std::vector<std::string> DividedTokens::unused_parameters() const {
  std::vector<std::string> unused = unused_weight_parameters(weights_);
  add_unused_kv(kv_, unused);
  return unused;
}

std::vector<std::string> DividedTokens::unused_drive_parameters() const {
  if (sparse()) return unused_sparf_parameters(sparf_);
  return {std::begin(kSparfParameters), std::end(kSparfParameters)};
}

DivisionInputs DividedTokens::inputs_after(std::uint32_t steps, const ModelShape& model, const BatchLengths& workload,
                                           const PlatformRates& rates) const {
  const double prompt = mean(workload.prompt_tokens), newest = (std::min(group_, std::max(1U, steps)) - 1) / 2.0;
  const double cached = std::max(prompt, prompt + steps - newest);
  DivisionInputs inputs{.model = model,
                        .rates = rates,
                        .sequences = workload.batch(),
                        .cached = cached,
                        .newest = newest,
                        .held = prompt + workload.output_tokens,
                        .longest = prompt + workload.output_tokens,
                        .prompt = prompt,
                        .group = group_,
                        .newest_at = newest_,
                        .activations = activations_,
                        .kv_buffers = kv_buffers_,
                        .weights_on_host = weights_.on_host};
  inputs.kv = kv_.rows();
  if (sparse()) inputs.sparf.emplace(sparf_, model.head_dim);
  return inputs;
}

void DividedTokens::choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates,
                           const GivenShares& given) {
  if (!possible(given)) return;
  std::array<std::optional<double>, kTokenParts> fixed;
  for (std::size_t part = 0; part < kTokenParts; ++part)
    if (given[part]) fixed[part] = given[part]->value();
  const std::uint32_t steps = workload.decode_steps();
  DivisionInputs inputs = inputs_after(steps / 2, model, workload, rates);
  if (std::ranges::none_of(given, [](const auto& share) { return !share; }) || steps < group_) {
    // No share is open, or no new token ever joins a part.
    if (steps < group_) inputs.cached = inputs.prompt, inputs.newest = steps > 0 ? (steps - 1) / 2.0 : 0;
    const Division solved = solve_division(inputs, fixed);
    solved_ = rounded(solved, given, group_);
    times_ = layer_times(inputs, solved);
    return;
  }
  // Backwards from the last step, for which everything has to fit.
  const double growth = (inputs.prompt + steps) / inputs.prompt;
  constexpr double kGrowth = 1.125, kMost = 8;
  const auto pieces =
      static_cast<std::uint32_t>(std::clamp(std::ceil(std::log(growth) / std::log(kGrowth)), 1.0, kMost));
  inputs = inputs_after(steps, model, workload, rates);
  Division division = solve_division(inputs, fixed);
  std::vector<TokenShares::Later> later{{steps, division}};
  std::vector<Division> divisions{division};
  for (std::uint32_t piece = pieces; piece-- > 0;) {
    const double cached = inputs.cached;
    const auto before = static_cast<std::uint32_t>(inputs.prompt * (std::pow(growth, double(piece) / pieces) - 1));
    inputs = inputs_after(before, model, workload, rates);
    inputs.held = inputs.cached;
    division = solve_earlier_division(inputs, fixed, division, cached);
    divisions.push_back(division);
    if (piece > 0) later.insert(later.begin(), {before, division});
    if (piece == pieces / 2) times_ = layer_times(inputs, division);
  }
  solved_ = rounded(division, given, group_);
  solved_->prompt = inputs.prompt;
  solved_->later = std::move(later);
  // With prompts of different lengths pages are full on average.
  if (std::ranges::adjacent_find(workload.prompt_tokens, std::ranges::not_equal_to{}) != workload.prompt_tokens.end())
    return;
  const double row = double(kv_.rows().row(model.head_dim, model.element_bytes).value);
  const GrowingRun run{.inputs_after = [&](std::uint32_t after) { return inputs_after(after, model, workload, rates); },
                       .prompt = workload.prompt_tokens.front(),
                       .steps = steps,
                       .page_tokens = static_cast<std::uint32_t>(double(rates.drive_page.value) / row)};
  solved_ = fastest_shares(run, given, *solved_, divisions);
  const std::uint32_t middle = steps / 2 / group_ * group_;
  times_ = layer_times_after(run, KvDivision(*solved_, 1, rates.drives), middle, (group_ - 1) / 2.0, 0);
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
  SystemNeeds needs{.kv = Home::drive_kv,
                    .component_major = sparse(),
                    .residents = weight_residents(model, weights_),
                    .shard = ShardBy::token,
                    .shares = parts};
  if (workload.prompt_tokens.empty()) return needs;
  const auto add = [&](Home home, const char* what, Bytes bytes) {
    if (bytes.value > 0) needs.residents.push_back({home, what, bytes});
  };
  const auto kv = [&](std::uint64_t tokens) { return kv_bytes(model, kv_, tokens); };
  const Bytes x{std::uint64_t{model.width} * model.element_bytes * model.layers};
  const auto of = [&](TokenPart part) { return tokens_at_end(parts, part, workload); };
  add(Home::gpu, "K and V of kept tokens", kv(of(TokenPart::kept)));
  add(newest_ == NewestAt::gpu ? Home::gpu : Home::host, "K and V of the newest tokens",
      kv(std::uint64_t{group_} * workload.batch()));
  add(Home::host, "K and V of copied tokens", kv(of(TokenPart::copied)));
  add(activations_ == StoredAt::host ? Home::host : Home::drive_blocks, "activations", x * of(TokenPart::recomputed));
  return needs;
}

std::unique_ptr<Planner> DividedTokens::plan(const PlannerInputs& inputs, const GivenShares& given) const {
  return std::make_unique<HybridPlanner>(
      inputs,
      HybridPlan{.shares = shares(given),
                 .newest = newest_,
                 .activations = activations_,
                 // Where the drives take longer than the GPU, or read when they have
                 // attended, it must not keep them waiting; otherwise it uses the
                 // time in which it waits for them.
                 .projects_first = activations_ == StoredAt::drives || (times_ && times_->drives > times_->attention),
                 .kv_buffers = kv_buffers_,
                 .sparf = sparse() ? std::optional(sparf_) : std::nullopt,
                 .kv = kv_.rows()},
      weights_);
}

std::vector<std::pair<std::string, std::string>> DividedTokens::remarks() const {
  if (!solved_) return {};
  const auto stated = [](const std::array<double, kTokenParts>& share) {
    return fmt::format("recomputed {:.4f}, in GPU memory {:.4f}, copied {:.4f}, in drives {:.4f}",
                       share[part_index(TokenPart::recomputed)], share[part_index(TokenPart::kept)],
                       share[part_index(TokenPart::copied)], share[part_index(TokenPart::drives)]);
  };
  std::array<double, kTokenParts> of_prompt{};
  for (const TokenPart part : kEachPart) of_prompt[part_index(part)] = (*solved_)[part].value();
  std::vector<std::pair<std::string, std::string>> remarks{{"token_division", stated(of_prompt)}};
  if (!solved_->later.empty()) remarks.emplace_back("token_division_at_end", stated(solved_->later.back().share));
  remarks.emplace_back(
      "layer_times_by_rates",
      fmt::format("{:.3f} ms: link {:.3f}, GPU {:.3f} and {:.3f} for attention, drives {:.3f}", times_->layer * 1e3,
                  times_->link * 1e3, times_->projections * 1e3, times_->attention * 1e3, times_->drives * 1e3));
  return remarks;
}

}  // namespace csdsim::host

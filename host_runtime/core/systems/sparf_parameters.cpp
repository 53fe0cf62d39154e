#include "host_runtime/core/systems/sparf_parameters.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/quantity.h"

namespace csdsim::host {

void describe_sparf(ParamVisitor& v, SparfParameters& sparf) {
  v.param("ratio", sparf.ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, "Compression ratio.", paper("InstInfer VI-A: 1/8"));
  v.param("ratio_mode", sparf.mode, "What the ratio applies to.",
          assumed("the paper does not define it; both readings are offered"));
  v.optional("r", sparf.r, "auto", {1, 1024}, "Components of q that approximate the scores; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("k", sparf.k, "auto", {1, 16'777'216}, "Tokens attended to; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("l", sparf.local, "auto", {0, 16'777'216},
             "Newest tokens that are always attended to, counted in k; auto is k/4.",
             paper("SparQ (arXiv 2312.04985), as recalled: l = k/4"));
}

void check_sparf(config::Problems& problems, const SystemContext& context, const SparfParameters& sparf) {
  for (const std::string& unused : unused_sparf_parameters(sparf))
    problems.refuse_unused(fmt::format("system.{}", unused), problems.stronger("system.r", "system.k"),
                           "r and k are both given");
  const std::uint32_t d = context.head_dim;
  if (sparf.r && d > 0)
    problems.require(*sparf.r <= d, {"system.r", "model.head_dim"},
                     fmt::format("system.r: {} components of a head of {}", *sparf.r, d));
  if (d > 0 && (!sparf.r || *sparf.r <= d)) {
    try {
      SparfBudget(sparf, d);
    } catch (const UserError& e) {
      problems.error_at("system.ratio", e.what());
    }
  }
  if (sparf.k && sparf.local)
    problems.require(
        *sparf.local <= *sparf.k, {"system.l", "system.k"},
        fmt::format("system.l: {} newest tokens do not fit into the {} tokens attended", *sparf.local, *sparf.k));
}

std::vector<std::string> unused_sparf_parameters(const SparfParameters& sparf) {
  if (sparf.r && sparf.k) return {"ratio", "ratio_mode"};
  return {};
}

namespace {

MethodSettings sparf_settings(const SparfParameters& sparf) {
  return {.ratio = sparf.ratio,
          .meaning = sparf.mode == RatioMode::traffic ? RatioMeaning::traffic : RatioMeaning::tokens,
          .r = sparf.r,
          .k = sparf.k,
          .local = sparf.local};
}

std::vector<std::pair<std::string, std::string>> sparf_parameters_of(const MethodSettings& settings) {
  std::vector<std::pair<std::string, std::string>> parameters;
  if (!settings.r || !settings.k) {
    parameters.emplace_back("ratio", format_quantity(settings.ratio));
    const RatioMode mode = settings.meaning == RatioMeaning::traffic ? RatioMode::traffic : RatioMode::uniform;
    parameters.emplace_back("ratio_mode", csdsim::name_of(mode));
  }
  const auto add = [&](const char* name, std::optional<std::uint32_t> value) {
    if (value) parameters.emplace_back(name, std::to_string(*value));
  };
  add("r", settings.r);
  add("k", settings.k);
  add("l", settings.local);
  return parameters;
}

}  // namespace

SystemMethod sparf_method(std::string_view name, const SparfParameters& sparf) {
  return {.name = name,
          .settings = sparf_settings(sparf),
          .parameters = sparf_parameters_of,
          .budget = [sparf](const ModelShape& model, std::uint32_t context) -> SparseBudget {
            const SparfBudget budget(sparf, model.head_dim);
            return {.components = budget.components(), .tokens = budget.top_k(context), .local = budget.local(context)};
          },
          .describe = [sparf](const ModelShape& model,
                              std::uint32_t context) { return SparfBudget(sparf, model.head_dim).describe(context); }};
}

}  // namespace csdsim::host

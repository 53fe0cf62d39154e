// The parameters of systems that attend to a budget of tokens as SparQ and SparF do.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/plan/sparf_budget.h"
#include "host_runtime/core/plan/system.h"

namespace csdsim::host {

/// `ratio`, `ratio_mode`, `r`, `k` and `l`.
void describe_sparf(ParamVisitor& v, SparfParameters& sparf);
void check_sparf(config::Problems& problems, const SystemContext& context, const SparfParameters& sparf);
std::vector<std::string> unused_sparf_parameters(const SparfParameters& sparf);
/// SparF, or SparQ, with these parameters.
SystemMethod sparf_method(std::string_view name, const SparfParameters& sparf);

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<Method> {
  static constexpr EnumValue<Method> values[] = {{Method::dense, "dense", "Attends to every token."},
                                                 {Method::sparf, "sparf", "SparQ on flash pages in two steps."}};
};

template <>
struct EnumValues<host::RatioMode> {
  static constexpr EnumValue<host::RatioMode> values[] = {
      {host::RatioMode::uniform, "uniform", "The ratio applies to components and to tokens: r = ratio d, k = ratio S."},
      {host::RatioMode::traffic, "traffic", "The ratio applies to all elements moved; k follows from it."}};
};

}  // namespace csdsim

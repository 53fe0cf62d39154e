#include "host_runtime/core/systems/hybrid/hybrid.h"

#include <fmt/format.h>

#include <cmath>

namespace csdsim::host {

void Hybrid::describe(ParamVisitor& v) {
  const auto share = [&](const char* name, TokenPart part, const char* doc) {
    v.optional(name, given[static_cast<std::size_t>(part)], "solved with the other shares", {Ratio{0, 1}, Ratio{1, 1}},
               doc, assumed("least time of a layer by the rates of GPU, link and drives"));
  };
  share("recomputed_share", TokenPart::recomputed,
        "Share of the tokens whose activations are in host memory, from which the GPU computes K and V in every step.");
  share("gpu_share", TokenPart::kept, "Share of the tokens whose K and V are in GPU memory.");
  share("host_share", TokenPart::copied,
        "Share of the tokens whose K and V are in host memory and are copied to the GPU in every step.");
  share("drive_share", TokenPart::drives, "Share of the tokens whose K and V are in the drives, which attend to them.");
  tokens.describe_drives(v);
  tokens.describe(v);
}

void Hybrid::check(config::Problems& problems, const SystemContext& context) const {
  tokens.check_drives(problems, context);
  tokens.check(problems, context);
  double sum = 0;
  bool all = true;
  for (const std::optional<Ratio>& share : given) {
    sum += share ? share->value() : 0;
    all = all && share;
  }
  problems.require(sum <= 1 + 1e-9,
                   {"system.recomputed_share", "system.gpu_share", "system.host_share", "system.drive_share"},
                   fmt::format("system: the shares of the tokens are {:.4g} together, more than the whole", sum));
  problems.require(!all || sum > 1 - 1e-9,
                   {"system.recomputed_share", "system.gpu_share", "system.host_share", "system.drive_share"},
                   fmt::format("system: the shares of the tokens are {:.4g} together, not the whole; leave one out, "
                               "and it gets the rest",
                               sum));
}

std::vector<std::string> Hybrid::unused_parameters() const {
  std::vector<std::string> unused = tokens.unused_drive_parameters();
  const std::vector<std::string> others = tokens.unused_parameters();
  unused.insert(unused.end(), others.begin(), others.end());
  return unused;
}

}  // namespace csdsim::host

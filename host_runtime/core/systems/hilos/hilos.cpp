#include "host_runtime/core/systems/hilos/hilos.h"

#include <fmt/format.h>

namespace csdsim::host {

void Hilos::describe(ParamVisitor& v) {
  v.optional("x_cache", x_cache, "solved from the rates of GPU, link and drives", {Ratio{0, 1}, Ratio{1, 1}},
             "Share of the tokens of which activations are kept in host memory in place of K and V in the drives.",
             paper("HILOS (arXiv 2502.09921), X-cache: the GPU recomputes a part while the drives attend"));
  tokens.describe(v);
}

void Hilos::check(config::Problems& problems, const SystemContext& context) const {
  tokens.check(problems, context);
  problems.require(context.drives <= kMostDrives, {"platform.device.count", "system.kind"},
                   fmt::format("platform.device.count: {} drives, HILOS has up to {}; kind: hybrid takes more",
                               context.drives, kMostDrives));
}

Remarks Hilos::remarks(const ModelShape& model, std::uint32_t) const {
  auto remarks = tokens.remarks();
  const double kv = double(model.kv_bytes_per_token_and_layer().value);
  remarks.emplace_back("x_cache_bytes",
                       fmt::format("{:.3f} of K and V, of each token", model.width * model.element_bytes / kv));
  return remarks;
}

}  // namespace csdsim::host

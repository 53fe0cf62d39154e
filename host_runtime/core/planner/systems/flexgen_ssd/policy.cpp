#include "host_runtime/core/planner/systems/flexgen_ssd/policy.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace csdsim::host {

namespace {

void validate_split(std::string_view name, const TierSplit& split) {
  if (split.gpu > 100) throw UserError(fmt::format("flexgen: {}.gpu is {} %, must be 0 to 100 %", name, split.gpu));
  if (split.host > 100) throw UserError(fmt::format("flexgen: {}.host is {} %, must be 0 to 100 %", name, split.host));
  if (split.gpu + split.host > 100)
    throw UserError(
        fmt::format("flexgen: {0}.gpu + {0}.host is {1} + {2} %, must be at most 100 %", name, split.gpu, split.host));
}

}  // namespace

void FlexGenPolicy::validate() const {
  if (gpu_batch_size == 0) throw UserError("flexgen: gpu_batch_size is 0, must be at least 1");
  if (num_gpu_batches == 0) throw UserError("flexgen: num_gpu_batches is 0, must be at least 1");
  validate_split("weights", weights);
  validate_split("cache", cache);
  validate_split("activations", activations);
}

}  // namespace csdsim::host

#include "host_runtime/core/systems/software_parameters.h"

#include "base/error.h"

namespace csdsim::host {

void describe_software(ParamVisitor& v, SimTime& per_step) {
  v.param("software_per_step", per_step, {SimTime{}, SimTime::milliseconds(10'000)},
          "Time that the framework's software adds to every decode step of a mini-batch, while its GPU waits.",
          assumed("none; scenarios/papers/kvpr.yaml fits it for Hugging Face Transformers"));
}

void refuse_software(SimTime per_step) {
  if (per_step > SimTime{})
    throw UserError("system.software_per_step: on the streams of a GPU the software takes its own time: remove it");
}

}  // namespace csdsim::host

#include "host_runtime/core/systems/software_parameters.h"

#include "base/error.h"

namespace csdsim::host {

void describe_software(ParamVisitor& v, SoftwareTime& software) {
  v.param("software_per_step", software.per_step, {SimTime{}, SimTime::milliseconds(10'000)},
          "Time that the framework's software adds to every decode step of a mini-batch, while its GPU waits.",
          assumed("none; scenarios/papers/kvpr.yaml fits it for Hugging Face Transformers"));
  v.param("software_per_generated_token", software.per_generated_token, {SimTime{}, SimTime::milliseconds(1000)},
          "Further time per decode step for each token that every sequence has generated before.",
          assumed("none; scenarios/papers/kvpr.yaml fits it for Hugging Face Transformers"));
}

void refuse_software(const SoftwareTime& software) {
  if (software.per_step > SimTime{} || software.per_generated_token > SimTime{})
    throw UserError(
        "system.software_per_step and software_per_generated_token: on the streams of a GPU the software takes its own "
        "time: remove them");
}

}  // namespace csdsim::host

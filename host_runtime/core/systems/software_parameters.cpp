#include "host_runtime/core/systems/software_parameters.h"

#include "base/error.h"

namespace csdsim::host {

void describe_software(ParamVisitor& v, Software& software) {
  v.param("software_per_step", software.per_step, {SimTime{}, SimTime::milliseconds(10'000)},
          "Time that the framework's software adds to every decode step of a mini-batch, while its GPU waits.",
          assumed("none; scenarios/papers/kvpr.yaml fits it for Hugging Face Transformers"));
  v.param(
      "prompt_logits", software.prompt_logits, {0, 16},
      "Copies of the logits of all tokens of the prompts that are in GPU memory when the first tokens are sampled. "
      "With 0, the GPU computes only those of the last token of each prompt.",
      assumed("none; Transformers 4.46 computes them for all tokens of OPT and clones them before it takes the last "
              "ones: 2"));
}

void refuse_software(const Software& software) {
  if (software.per_step > SimTime{})
    throw UserError("system.software_per_step: on the streams of a GPU the software takes its own time: remove it");
  if (software.prompt_logits > 0)
    throw UserError(
        "system.prompt_logits: on the streams of a GPU only the logits of the last tokens are computed: remove it");
}

}  // namespace csdsim::host

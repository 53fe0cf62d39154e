#include "host_runtime/core/plan/tensor.h"

#include <fmt/format.h>

namespace csdsim::host {

std::string tensor_name(const TensorName& name) {
  std::string text(kTensorClassNames[static_cast<std::size_t>(name.what)]);
  if (name.step > 0) text += fmt::format(" of decode step {}", name.step - 1);
  if (name.layer) text += fmt::format(", layer {}", name.layer->value);
  text += fmt::format(", mini-batch {}", name.mini_batch.value);
  if (name.heads.count > 0)
    text += fmt::format(", KV heads {}..{}", name.heads.first.value, name.heads.first.value + name.heads.count - 1);
  if (name.part > 0) text += fmt::format(", part {}", name.part);
  return text;
}

}  // namespace csdsim::host

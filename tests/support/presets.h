// Built-in presets as tests want them: a described struct with the values of one.
#pragma once

#include <string>
#include <string_view>

#include "base/config/reader.h"
#include "base/config/yaml.h"
#include "host_runtime/core/model/model_spec.h"
#include "platform/platform_config.h"
#include "scenario/presets.h"

namespace csdsim::test {

/// Throws ConfigError for a name that does not exist.
template <class T>
T from_preset(std::string_view name) {
  config::Diagnostics diagnostics;
  const config::Origin origin{config::Layer::file, "test", 0, 0, ""};
  config::Reader reader(config::parse_document("preset: " + std::string(name), origin, diagnostics),
                        scenario::Presets::builtin(), diagnostics);
  T value;
  reader.read(value);
  diagnostics.throw_if_any();
  return value;
}

inline host::ModelShape model_preset(std::string_view name) { return from_preset<host::ModelSpec>(name).shape(); }
inline host::GpuConfig gpu_preset(std::string_view name) { return from_preset<platform::AttachedGpu>(name); }

}  // namespace csdsim::test

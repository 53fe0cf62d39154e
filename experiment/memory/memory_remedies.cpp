#include "experiment/memory/memory_remedies.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/config/dump.h"

namespace csdsim::experiment {

namespace {

using host::TensorClass;

/// A parameter that systems share, and its value with which tensors of a class take least GPU memory.
struct SharedParameter {
  TensorClass what;
  std::string_view name, least;
  std::string_view in_result = least;  ///< as results state the value
};

constexpr SharedParameter kShared[] = {
    {TensorClass::workspace, "stores_attention_weights", "false"},
    {TensorClass::workspace, "prompt_logits", "0"},
    {TensorClass::new_kv, "kv_buffers", "1"},
    {TensorClass::kv_cache, "kv_buffers", "1"},
    {TensorClass::weights, "weights_on_host", "100 %", "1"},
    {TensorClass::weights, "resident_share", "0 %", "0"},
};

/// What the attention of a prefill makes for the sequences of one mini-batch.
constexpr TensorClass kOfMiniBatch[] = {TensorClass::workspace, TensorClass::new_kv, TensorClass::queries};

}  // namespace

std::vector<host::MemoryRemedy> memory_remedies(const host::OffloadSystem& system) {
  std::vector<host::MemoryRemedy> remedies;
  config::JsonDump dump;
  system.clone()->describe(dump);
  const nlohmann::ordered_json parameters = dump.take();
  for (const SharedParameter& shared : kShared) {
    const auto value = parameters.find(shared.name);
    if (value == parameters.end()) continue;
    const std::string now = value->is_string() ? value->get<std::string>() : value->dump();
    if (now != shared.in_result)
      remedies.push_back({shared.what, fmt::format("system.{}: {}", shared.name, shared.least)});
  }
  return remedies;
}

std::vector<host::MemoryRemedy> memory_remedies(const GenerationSetup& setup) {
  std::vector<host::MemoryRemedy> remedies = memory_remedies(*setup.system);
  if (setup.plan.mini_batches < setup.plan.workload.batch())
    for (const TensorClass what : kOfMiniBatch)
      remedies.push_back({what, fmt::format("workload.mini_batches above {}", setup.plan.mini_batches)});
  return remedies;
}

}  // namespace csdsim::experiment

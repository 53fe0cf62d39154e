#include "experiment/roofline/roofline.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csd_model/drive_peaks.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/model/model_shape.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

struct Machine {
  std::string_view name;
  host::GpuConfig peaks;    ///< peaks of one unit of the machine
  std::uint32_t count = 1;  ///< that divide the batch; each reads all weights
};

/// Work of an operator in one decode step.
struct Operator {
  std::string_view name;
  host::ComputeWork layer;   ///< in one layer, or all of it
  std::uint64_t layers = 1;  ///< layers that have it
};

host::GpuConfig processor(std::uint64_t flops_per_second, Bandwidth memory, Ratio efficiency) {
  host::GpuConfig config;
  config.fp16_rate = ComputeRate{flops_per_second};
  config.memory_bandwidth = memory;
  config.kernel_launch = SimTime{};
  config.efficiency = host::RooflineEfficiency::all(efficiency);
  return config;
}

std::vector<Machine> machines_of(const scenario::Scenario& s) {
  const platform::HostConfig& host = s.platform.host;
  std::vector<Machine> machines = {
      {"gpu", s.platform.gpu, s.platform.gpu.count},
      {"host", processor(host.core_rate.flop_per_second * host.cores, host.memory_bandwidth, host.efficiency)}};
  const csd_model::DeviceConfig& device = s.platform.device;
  if (!device.has_engine()) return machines;
  constexpr double kOperationsPerMac = 2;
  const csd_model::DrivePeaks peaks = csd_model::drive_peaks(device);
  const auto of_all = [&](double rate) { return static_cast<std::uint64_t>(rate) * device.count; };
  machines.push_back({"drives", processor(of_all(peaks.multiply_accumulates * kOperationsPerMac),
                                          Bandwidth{of_all(peaks.channels)}, Ratio{1, 1})});
  return machines;
}

std::vector<Operator> operators_of(const host::ModelShape& model, std::uint64_t batch, std::uint64_t context) {
  return {{"projections", model.attention_inputs(batch), model.layers},
          {"attention", model.decode_attention(batch, batch * context), model.layers},
          {"output_and_ffn", model.finish_layer(batch), model.layers},
          {"token_choice", model.sample(batch), 1}};
}

}  // namespace

ordered_json decode_roofline(const scenario::Scenario& s) {
  const GenerationWorkload& workload = generation_of(s);
  const std::uint64_t context = workload.input_tokens + workload.output_tokens / 2;
  ordered_json document = {{"batch", workload.batch}, {"context", context}};
  const std::vector<Machine> machines = machines_of(s);
  for (const auto& [name, peaks, count] : machines) {
    const double flops = double(peaks.fp16_rate.flop_per_second) * count,
                 bytes = double(peaks.memory_bandwidth.bytes_per_second) * count;
    document["machines"][name] = {
        {"flops_per_s", flops}, {"bytes_per_s", bytes}, {"ridge_flops_per_byte", flops / bytes}};
  }
  ordered_json steps = ordered_json::object();
  double together = 0;
  const auto operators_for = [&](std::uint32_t count) {
    return operators_of(s.model.shape(), (workload.batch + count - 1) / count, context);
  };
  const std::vector<Operator> operators = operators_for(1);
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators[i];
    const std::uint64_t flops = op.layer.flops * op.layers, bytes = op.layer.bytes().value * op.layers;
    ordered_json seconds;
    for (const auto& [name, peaks, count] : machines) {
      const double time = host::GpuModel(peaks).time(operators_for(count)[i].layer).seconds() * double(op.layers);
      seconds[name] = time;
      steps[name] = steps.value(name, 0.0) + time;
    }
    if (seconds.contains("drives")) together += seconds[op.name == "attention" ? "drives" : "gpu"].get<double>();
    document["operators"][op.name] = {{"flops", flops},
                                      {"bytes", bytes},
                                      {"flops_per_byte", double(flops) / double(bytes)},
                                      {"seconds", std::move(seconds)}};
  }
  if (steps.contains("drives")) steps["gpu_and_drives"] = together;
  document["decode_step_s"] = std::move(steps);
  return document;
}

}  // namespace csdsim::experiment

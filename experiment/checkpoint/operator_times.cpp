#include "experiment/checkpoint/operator_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"
#include "host_runtime/cuda/loader/cuda_module.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

constexpr std::array<std::string_view, host::kOperatorClasses> kClassNames{"gemm", "attention", "elementwise"};

host::OperatorTable::Entries read_times(const std::filesystem::path& path) {
  std::ifstream file(path);
  const ordered_json document = ordered_json::parse(file, nullptr, false);
  host::OperatorTable::Entries entries;
  try {
    for (const ordered_json& row : document.at("gpu_operators")) {
      const auto name = std::find(kClassNames.begin(), kClassNames.end(), row.at("op").get<std::string>());
      if (name == kClassNames.end()) throw UserError(fmt::format("{}: an operator of an unknown class", path.string()));
      host::ComputeWork work;
      work.op = static_cast<host::OperatorClass>(name - kClassNames.begin());
      work.flops = row.at("flops").get<std::uint64_t>();
      work.weights = Bytes{row.at("weight_bytes").get<std::uint64_t>()};
      work.activations = Bytes{row.at("activation_bytes").get<std::uint64_t>()};
      work.launches = row.at("launches").get<std::uint32_t>();
      const auto time = row.at("picoseconds").get<std::int64_t>();
      if (time < 0) throw UserError(fmt::format("{}: an operator takes less than no time", path.string()));
      entries.emplace(work, SimTime::picoseconds(time));
    }
  } catch (const nlohmann::json::exception&) {
    throw UserError(
        fmt::format("{}: has no gpu_operators: it is not result.json of a run with timing: measured", path.string()));
  }
  return entries;
}

}  // namespace

std::shared_ptr<host::OperatorTable> operator_times(const host::GpuConfig& gpu, const host::ModelShape& model) {
  if (gpu.timing == host::GpuTiming::modelled) return nullptr;
  if (!gpu.times) {
    const std::shared_ptr<host::CudaModule> module = host::load_cuda_module();
    const std::shared_ptr<host::WorkTimer> timer = module->make_timer(host::config_of(model));
    return std::make_shared<host::OperatorTable>([module, timer, model](const host::ComputeWork& work) {
      return timer->time(work, host::layer_work(model, work)).median;
    });
  }
  const std::string path = gpu.times->path.string();
  const auto missing = [path](const host::ComputeWork& work) -> SimTime {
    throw UserError(fmt::format("{}: has no time of {} with {} operations on {} bytes: it is of another run", path,
                                kClassNames[static_cast<std::size_t>(work.op)], work.flops, work.bytes().value));
  };
  return std::make_shared<host::OperatorTable>(missing, read_times(gpu.times->path));
}

ordered_json to_json(const host::OperatorTable& table) {
  ordered_json rows = ordered_json::array();
  for (const auto& [work, time] : table.entries()) {
    rows.push_back({{"op", kClassNames[static_cast<std::size_t>(work.op)]},
                    {"flops", work.flops},
                    {"weight_bytes", work.weights.value},
                    {"activation_bytes", work.activations.value},
                    {"launches", work.launches},
                    {"picoseconds", time.ps}});
  }
  return rows;
}

}  // namespace csdsim::experiment

#include "experiment/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "experiment/runner.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;
using scenario::Scenario;

namespace {

constexpr double kFaster = 1.1;

void shorten(SimTime& time) {
  time = SimTime{static_cast<std::int64_t>(std::llround(static_cast<double>(time.ps) / kFaster))};
}
void shorten(std::vector<SimTime>& times) {
  for (SimTime& time : times) shorten(time);
}
void raise(Bandwidth& rate) {
  rate.bytes_per_second = static_cast<std::uint64_t>(static_cast<double>(rate.bytes_per_second) * kFaster);
}
void raise(std::optional<Bandwidth>& rate) {
  if (rate) raise(*rate);
}
void raise(ComputeRate& rate) {
  rate.flop_per_second = static_cast<std::uint64_t>(static_cast<double>(rate.flop_per_second) * kFaster);
}
void raise(nvme::LinkConfig& link) {
  link.speed *= kFaster;
  shorten(link.latency);
}

/// The rates that runs may have, in the order in which they are asked for.
constexpr std::array<std::string_view, 3> kRates{"decode_tokens_per_s", "tokens_per_s", "iops"};

std::string_view rate_of(const Scenario& s, const ordered_json& document) {
  for (const std::string_view rate : kRates)
    if (document.at("metrics").contains(rate)) return rate;
  throw UserError(fmt::format("--sensitivity: a run of workload {} has no rate that could rise", s.workload.kind()));
}

/// The share of the critical path that is counted as the time of these resources; of decoding if there is any.
std::optional<double> counted_share(const ordered_json& document, const std::vector<std::string>& names) {
  if (!document.contains("breakdown") || !document["breakdown"].contains("decode")) return {};
  const ordered_json& phase = document["breakdown"]["decode"];
  if (!phase.contains("resources")) return {};
  double share = 0;
  for (const std::string& name : names) {
    if (!phase["resources"].contains(name)) continue;
    const ordered_json& use = phase["resources"][name];
    if (!use.contains("path_share")) return {};
    share += use["path_share"].get<double>();
  }
  return share;
}

/// Those of the host and of what joins it to the GPUs. Runs of plain blocks compute nothing on them.
void add_platform(std::vector<SpeedUp>& all, const Scenario& s) {
  const bool computes = s.workload->attends();
  if (computes && s.platform.gpu.timing == host::GpuTiming::modelled && !s.platform.gpu.times)
    all.push_back({{"gpu"}, kFaster, [](Scenario& f) {
                     raise(f.platform.gpu.fp16_rate);
                     raise(f.platform.gpu.memory_bandwidth);
                     shorten(f.platform.gpu.kernel_launch);
                   }});
  if (computes)
    all.push_back({{"host"}, kFaster, [](Scenario& f) {
                     raise(f.platform.host.core_rate);
                     raise(f.platform.host.memory_bandwidth);
                   }});
  if (s.platform.host.io_overhead.ps > 0)
    all.push_back({{"host_io"}, kFaster, [](Scenario& f) { shorten(f.platform.host.io_overhead); }});
  if (computes)
    all.push_back({{"host_to_gpu", "gpu_to_host", "gpu_link"}, kFaster, [](Scenario& f) {
                     raise(f.platform.gpu.link);
                     raise(f.platform.gpu.link.peer_to_peer);
                   }});
  if (s.platform.root_complex.bandwidth)
    all.push_back({{"root_complex"}, kFaster, [](Scenario& f) { raise(f.platform.root_complex.bandwidth); }});
  if (s.platform.upstream)
    all.push_back({{"switch"}, kFaster, [](Scenario& f) { raise(f.platform.upstream->bandwidth); }});
}

/// Those of the flash.
void add_flash(std::vector<SpeedUp>& all, const Scenario& s) {
  all.push_back({{"flash_arrays"}, kFaster, [](Scenario& f) {
                   nfc::FlashConfig& flash = f.platform.device.flash;
                   for (SimTime* time : {&flash.read_latency, &flash.program_latency, &flash.erase_latency})
                     shorten(*time);
                   if (!flash.page_types) return;
                   shorten(flash.page_types->read_latency);
                   shorten(flash.page_types->program_latency);
                 }});
  all.push_back({{"flash_channels"}, kFaster, [](Scenario& f) {
                   nfc::FlashConfig& flash = f.platform.device.flash;
                   raise(flash.channel_bandwidth);
                   shorten(flash.command_time);
                   shorten(flash.data_out_setup);
                 }});
  if (s.platform.device.flash.filter_bandwidth)
    all.push_back({{"filters"}, kFaster, [](Scenario& f) { raise(f.platform.device.flash.filter_bandwidth); }});
  if (const auto buffers = s.platform.device.flash.page_buffers; buffers.value_or(0) > 0) {
    const auto more = std::max(*buffers + 1, static_cast<std::uint32_t>(std::lround(*buffers * kFaster)));
    all.push_back({{"page_buffers"}, double(more) / *buffers, [more](Scenario& f) {
                     f.platform.device.flash.page_buffers = more;
                   }});
  }
}

/// Those of the engine's units.
void add_units(std::vector<SpeedUp>& all, const Scenario& s) {
  const auto unit = [&](const char* name, double engine::UnitSpeeds::*speed) {
    all.push_back({{name}, kFaster, [speed](Scenario& f) { f.platform.device.engine.speeds.*speed *= kFaster; }});
  };
  unit("kernels", &engine::UnitSpeeds::products);
  unit("softmax", &engine::UnitSpeeds::softmax);
  const engine::ScoringConfig& scoring = s.platform.device.engine.scoring;
  if (scoring.fp16_lanes || scoring.int8_lanes || scoring.int4_lanes) unit("scoring", &engine::UnitSpeeds::scoring);
  unit("argtopk", &engine::UnitSpeeds::argtopk);
}

/// Those of the rest of a drive.
void add_drive(std::vector<SpeedUp>& all, const Scenario& s) {
  const csd_model::DeviceConfig& device = s.platform.device;
  if (device.nvme.firmware_time.ps + device.nvme.pipeline_time.ps > 0)
    all.push_back({{"controller"}, kFaster, [](Scenario& f) {
                     shorten(f.platform.device.nvme.firmware_time);
                     shorten(f.platform.device.nvme.pipeline_time);
                   }});
  if (device.ftl.lookup_time.ps > 0 || device.ftl.firmware.any())
    all.push_back({{"lookup_cores"}, kFaster, [](Scenario& f) {
                     ftl::FirmwareTimes& work = f.platform.device.ftl.firmware;
                     for (SimTime* const time : {&f.platform.device.ftl.lookup_time, &work.append, &work.flush,
                                                 &work.transpose, &work.collect, &work.fetch})
                       shorten(*time);
                   }});
  if (device.dram.bandwidth)
    all.push_back({{"dram"}, kFaster, [](Scenario& f) { raise(f.platform.device.dram.bandwidth); }});
  all.push_back({{"link_to_drive", "link_to_host"}, kFaster, [](Scenario& f) { raise(f.platform.device.link); }});
  if (!device.engine.behind_switch()) return;
  const auto placement = [](Scenario& f) -> csd_model::SwitchPlacement& {
    return std::get<csd_model::SwitchPlacement>(f.platform.device.engine.placement);
  };
  all.push_back({{"from_controller", "to_controller"}, kFaster, [placement](Scenario& f) {
                   raise(placement(f).bandwidth);
                   raise(placement(f).request_bandwidth);
                 }});
  all.push_back({{"fpga_dram"}, kFaster, [placement](Scenario& f) { raise(placement(f).dram_bandwidth); }});
}

/// The host's threads that read and write files.
SpeedUp faster_files() {
  return {{"files"}, kFaster, [](Scenario& f) {
            shorten(f.platform.host.file.io_overhead);
            raise(f.platform.host.file.copy_bandwidth);
          }};
}

struct Gain {
  std::string name;
  std::optional<double> counted;
  double percent = 0;  ///< percent of the rate that 10 % more speed gains
};

std::string joined(const std::vector<std::string>& names) {
  std::string all = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) all += ", " + names[i];
  return all;
}

}  // namespace

std::vector<SpeedUp> speed_ups(const Scenario& scenario) {
  std::vector<SpeedUp> all;
  add_platform(all, scenario);
  add_drive(all, scenario);
  add_flash(all, scenario);
  if (scenario.platform.device.has_engine()) add_units(all, scenario);
  return all;
}

scenario::RunResult run_with_sensitivity(const Scenario& scenario, const scenario::RunOptions& options) {
  scenario::RunResult result = run_scenario(scenario, options);
  const std::string_view metric = rate_of(scenario, result.document);
  const double base = result.document["metrics"][metric];
  std::vector<Gain> gains;
  std::vector<SpeedUp> changes = speed_ups(scenario);
  if (counted_share(result.document, {"files"}).value_or(0) > 0) changes.push_back(faster_files());
  for (const SpeedUp& change : changes) {
    if (options.progress) options.progress("faster resources", gains.size(), changes.size());
    Scenario faster = scenario;
    change.apply(faster);
    scenario::RunOptions quiet = options;
    quiet.trace.reset();
    quiet.waveforms.reset();
    quiet.progress = nullptr;
    quiet.notice = nullptr;
    const double rate = run_scenario(faster, quiet).document["metrics"][metric];
    const double gain = std::pow(rate / base, std::log(kFaster) / std::log(change.factor)) - 1;
    gains.push_back({joined(change.resources), counted_share(result.document, change.resources), 100 * gain});
  }
  std::ranges::stable_sort(gains, std::ranges::greater{}, &Gain::percent);
  ordered_json& rows = result.document["tables"]["sensitivity"] = ordered_json::array();
  const bool counts = std::ranges::any_of(gains, [](const Gain& gain) { return gain.counted.has_value(); });
  for (const Gain& gain : gains) {
    ordered_json& row = rows.emplace_back(ordered_json{{"resource", gain.name}});
    if (counts)
      row["share of the critical path, %"] = gain.counted ? ordered_json(100 * *gain.counted) : ordered_json("-");
    row["gain of 10 % more speed, %"] = gain.percent;
  }
  result.meaning += fmt::format(" {} gains most from a faster {}: {:.1f} % for 10 %", metric, gains.front().name,
                                gains.front().percent);
  if (gains.front().counted) {
    const Gain& counted = *std::ranges::max_element(gains, {}, [](const Gain& g) { return g.counted.value_or(0); });
    result.meaning += counted.name == gains.front().name
                          ? "; most of the critical path is its time, too"
                          : fmt::format("; most of the critical path counts as time of {}", counted.name);
  }
  result.meaning += ".";
  return result;
}

}  // namespace csdsim::experiment

#include "experiment/measure/resource_use.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace csdsim::experiment {

using host::PathResource;
using host::ResourceKind;

namespace {

/// Collects the resources of a phase.
class Uses {
 public:
  Uses(const PhaseTotals& phase, const std::array<double, host::kPathResources>* path) : phase_(phase), path_(path) {}

  double path(PathResource resource) const { return path_ == nullptr ? 0 : (*path_)[resource.index]; }
  /// Adds what is used; what is `always` reported is added in any case.
  void add(std::string_view name, double busy, double waited, double path, bool always = false) {
    if (always || busy > 0 || path > 0) uses_.push_back({std::string(name), busy, waited, busy / phase_.seconds, path});
  }
  /// The resource of plans, which there are `units` of.
  void add(std::string_view name, ResourceKind kind, double units, bool always = false) {
    add(name, phase_.of(kind).busy_s / units, phase_.of(kind).waited_s, path(PathResource::of(kind)), always);
  }
  std::vector<ResourceUse> take() { return std::move(uses_); }
  ResourceUse* busiest(std::initializer_list<std::string_view> names) {
    ResourceUse* most = nullptr;
    for (ResourceUse& use : uses_)
      if (std::ranges::find(names, use.name) != names.end() && (most == nullptr || use.busy_s > most->busy_s))
        most = &use;
    return most;
  }

 private:
  const PhaseTotals& phase_;
  const std::array<double, host::kPathResources>* path_;
  std::vector<ResourceUse> uses_;
};

}  // namespace

std::vector<ResourceUse> resource_use(const PhaseTotals& phase, const ResourceCounts& counts,
                                      const std::array<double, host::kPathResources>* path) {
  const double gpus = counts.gpus, drives = counts.drives;
  Uses uses(phase, path);
  uses.add("gpu", ResourceKind::gpu, gpus, true);
  uses.add("host", ResourceKind::host, 1);
  uses.add("host_io", phase.host_io.busy_s / counts.io_cores, phase.host_io.waited_s,
           uses.path(PathResource::host_io()));
  uses.add("host_to_gpu", ResourceKind::host_to_gpu, gpus);
  uses.add("gpu_to_host", ResourceKind::gpu_to_host, gpus);
  uses.add("files", 0, phase.of(ResourceKind::file).waited_s, uses.path(PathResource::of(ResourceKind::file)));
  constexpr std::array<const char*, 3> kLinks{"gpu_link", "root_complex", "switch"};
  for (std::size_t link = 0; link < kLinks.size(); ++link) {
    const platform::LinkUse &in = phase.shared[2 * link], &out = phase.shared[2 * link + 1];
    uses.add(kLinks[link], std::max(in.busy_s, out.busy_s) / (link == 0 ? gpus : 1), in.waited_s + out.waited_s, 0);
  }
  for (std::size_t i = 0; i < kDriveStations; ++i) {
    const auto station = static_cast<DriveStation>(i);
    if (station == DriveStation::shared_links) continue;
    // What no station worked in is the time of commands in the controller: interrupts, DMA, latencies.
    const double rest = station == DriveStation::controller ? uses.path(PathResource::of(ResourceKind::drive_kv)) : 0;
    const bool always = station == DriveStation::flash_arrays || station == DriveStation::flash_channels ||
                        station == DriveStation::link_to_drive || station == DriveStation::link_to_host;
    uses.add(kDriveStationNames[i], phase.stations.busy[station] / drives, phase.stations.waited[station],
             uses.path(PathResource::of(station)) + rest, always);
  }
  // Block commands are not followed through the drive: the rest of their time belongs to what they keep busiest.
  uses.busiest({"controller", "lookup_cores", "dram", "flash_arrays", "flash_channels"})->path_s +=
      uses.path(PathResource::of(ResourceKind::drive_blocks));
  const double shared = uses.path(PathResource::of(DriveStation::shared_links));
  if (ResourceUse* const link = uses.busiest({"gpu_link", "root_complex", "switch"})) link->path_s += shared;
  return uses.take();
}

namespace {

/// Page buffers are in use while their pages wait for something else.
bool works(const ResourceUse& use) {
  return use.name != kDriveStationNames[static_cast<std::size_t>(DriveStation::page_buffers)];
}

}  // namespace

const ResourceUse& bounding(const std::vector<ResourceUse>& uses, bool by_path) {
  return *std::ranges::max_element(uses, {}, [by_path](const ResourceUse& use) {
    if (by_path) return use.path_s;
    return works(use) ? use.utilization : 0;
  });
}

double lengthen_decode(host::GenerationTimes& times, const PhaseTotals& decode, const ResourceCounts& counts) {
  double least_s = 0;
  for (const ResourceUse& use : resource_use(decode, counts, nullptr)) least_s = std::max(least_s, use.busy_s);
  if (times.decode_s >= least_s || times.decode_s == 0) return 0;
  const double factor = least_s / times.decode_s;
  for (double& part : times.decode_path_s) part *= factor;
  for (double& part : times.decode_resource_s) part *= factor;
  times.decode_s = least_s;
  return 1 - 1 / factor;
}

nlohmann::ordered_json to_json(const std::vector<ResourceUse>& uses, bool with_path) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  double path = 0;
  for (const ResourceUse& use : uses) path += use.path_s;
  for (const ResourceUse& use : uses) {
    nlohmann::ordered_json& one = all[use.name];
    one = {{"busy_s", use.busy_s}, {"waited_s", use.waited_s}, {"utilization", use.utilization}};
    if (with_path) one["path_share"] = path > 0 ? use.path_s / path : 0;
  }
  return all;
}

}  // namespace csdsim::experiment

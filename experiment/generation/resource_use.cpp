#include "experiment/generation/resource_use.h"

#include <algorithm>
#include <array>

namespace csdsim::experiment {

std::vector<std::pair<const char*, double>> busy_times(const PhaseTotals& t, const ResourceCounts& n) {
  std::vector<std::pair<const char*, double>> busy = {{"gpu", t.gpu_busy_s / n.gpus},
                                                      {"flash_channels", t.channel_busy / (n.channels * n.drives)},
                                                      {"flash_arrays", t.array_busy() / (n.planes * n.drives)},
                                                      {"link", std::max(t.to_host_busy, t.to_drive_busy) / n.drives}};
  const auto add_used = [&](const char* name, double seconds) {
    if (seconds > 0) busy.emplace_back(name, seconds);
  };
  add_used("host", t.host_busy_s);
  add_used("host_to_gpu", t.host_to_gpu_busy_s / n.gpus);
  add_used("gpu_to_host", t.gpu_to_host_busy_s / n.gpus);
  if (n.behind_switch) {
    busy.emplace_back("internal_link", std::max(t.from_controller_busy, t.to_controller_busy) / n.drives);
    busy.emplace_back("fpga_dram", t.fpga_dram_busy / n.drives);
  }
  constexpr std::array<const char*, 3> kShared{"gpu_link", "root_complex", "switch"};
  for (std::size_t link = 0; link < kShared.size(); ++link)
    add_used(kShared[link],
             std::max(t.*kSharedBusy[2 * link], t.*kSharedBusy[2 * link + 1]) / (link == 0 ? n.gpus : 1));
  return busy;
}

double busiest_s(const PhaseTotals& phase, const ResourceCounts& counts) {
  double most = 0;
  for (const auto& [name, seconds] : busy_times(phase, counts)) most = std::max(most, seconds);
  return most;
}

}  // namespace csdsim::experiment

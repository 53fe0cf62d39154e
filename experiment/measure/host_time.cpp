#include "experiment/measure/host_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::experiment {

void add_host_time(scenario::RunResult& result, const host::DeviceTimes& device, double run_s,
                   const GenerationOutcome& out) {
  const double simulation = std::max(0.0, run_s - device.host_waited_s);
  const double simulated = out.prefill.seconds + out.decode.seconds,
               waits = std::max(0.0, simulated - out.prefill.gpu_busy_s() - out.decode.gpu_busy_s());
  nlohmann::ordered_json& wall = result.document["wall"];
  wall["device"] = {{"compute_s", device.compute_s},       {"copies_in_s", device.copies_in_s},
                    {"copies_out_s", device.copies_out_s}, {"bytes_in", device.bytes_in},
                    {"bytes_out", device.bytes_out},       {"host_waited_s", device.host_waited_s}};
  wall["simulation_s"] = simulation;
  result.document["stats"]["simulated_drive_wait_s"] = waits;
  result.meaning += fmt::format(
      " Of {:.3f} s on this machine, the simulation took {:.3f} s and the host waited {:.3f} s for the GPU, which "
      "computed for {:.3f} s and, beside that, copied {:.3f} s to itself and {:.3f} s to the host. In simulated time, "
      "a real "
      "host waits for drives and links for {:.4g} of {:.4g} s.",
      run_s, simulation, device.host_waited_s, device.compute_s, device.copies_in_s, device.copies_out_s, waits,
      simulated);
}

}  // namespace csdsim::experiment

// Block commands beside a generation run, on the same drive.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/metric.h"
#include "experiment/block_io/block_io.h"
#include "experiment/block_io/request_driver.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// `background_*` among the metrics of a generation.
std::vector<Metric<BlockIoOutcome>> background_metrics();

/// Requests of a pattern in a closed loop, on a host queue of their own, from the start of the run until stop(). Timing
/// only. Must outlive the simulation.
class BackgroundIo {
 public:
  BackgroundIo(const scenario::Scenario& scenario, const BackgroundWorkload& work);
  ~BackgroundIo();

  /// Fills the block namespace and joins a platform whose simulation has not started.
  void join(platform::Platform& platform);
  /// Submits no more; `done` is called when everything submitted has completed.
  void stop(std::function<void()> done);
  /// The modules of the simulation go: what was counted stays.
  void leave() noexcept;

  /// Adds its metrics to a result. What is wrong with them; empty if nothing is.
  /// Rethrows what the source of the requests has thrown.
  std::string add_result(nlohmann::ordered_json& document) const;

 private:
  BlockIoSetup setup_;
  BlockIoProgress progress_;
  std::unique_ptr<workload::RequestSource> source_;
  std::unique_ptr<RequestDriver> driver_;
  BlockIoOutcome outcome_;
  std::exception_ptr error_;
};

}  // namespace csdsim::experiment

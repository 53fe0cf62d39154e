#include "experiment/generation/background_io.h"

#include <fmt/format.h>

#include <utility>

#include "experiment/requests/synthetic.h"
#include "experiment/write_metrics.h"

namespace csdsim::experiment {

BackgroundIo::BackgroundIo(const scenario::Scenario& s, const BackgroundWorkload& work) {
  setup_.source = [block_io = work.block_io(), block = s.platform.device.nvme.block_size,
                   seed = s.seed](Bytes capacity) {
    return std::make_unique<workload::SyntheticRequests>(synthetic_config(block_io, block, capacity, seed));
  };
  setup_.queue_depth = work.queue_depth;
  setup_.first_queue = static_cast<std::uint16_t>(s.platform.device.nvme.queues);
  setup_.seed = s.seed;
}

BackgroundIo::~BackgroundIo() = default;

void BackgroundIo::join(platform::Platform& platform) {
  ftl::BlockFtl& ftl = platform.drive(0).block_ftl();
  source_ = setup_.source(ftl.capacity());
  ftl.precondition(source_->footprint(), setup_.seed);
  driver_ = std::make_unique<RequestDriver>("background", setup_, platform, *source_, progress_);
}

void BackgroundIo::stop(std::function<void()> done) { driver_->stop(std::move(done)); }

void BackgroundIo::leave() noexcept {
  if (!driver_) return;
  try {
    outcome_ = driver_->outcome();
  } catch (...) {
    error_ = std::current_exception();
  }
  driver_.reset();
}

std::string BackgroundIo::add_result(nlohmann::ordered_json& document) const {
  if (error_) std::rethrow_exception(error_);
  nlohmann::ordered_json& metrics = document["metrics"];
  const double seconds = outcome_.duration.seconds();
  const auto requests = static_cast<double>(outcome_.latency_ps.count());
  metrics["background_iops"] = seconds > 0 ? requests / seconds : 0;
  metrics["background_latency_mean_ns"] = outcome_.latency_ps.mean() * 1e-3;
  metrics["background_latency_p99_ns"] = static_cast<double>(outcome_.latency_ps.quantile(99)) * 1e-3;
  add_write_amplification(metrics, "background_", outcome_.writes);
  metrics["background_requests_issued"] = outcome_.issued;
  metrics["background_requests_completed"] = outcome_.completed;
  if (outcome_.issued != outcome_.completed)
    return fmt::format("{} background requests were issued and {} completed", outcome_.issued, outcome_.completed);
  if (outcome_.failed > 0)
    return fmt::format("{} of {} background requests failed, the first with {}", outcome_.failed, outcome_.issued,
                       outcome_.first_failure);
  return {};
}

}  // namespace csdsim::experiment

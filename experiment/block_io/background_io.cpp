#include "experiment/block_io/background_io.h"

#include <fmt/format.h>

#include <utility>

#include "experiment/block_io/requests/synthetic.h"
#include "experiment/result.h"
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
  if (platform.drive(0).config().may_lose_power)
    setup_.fill = Fill::none;  // what is read before it is written is zeros
  else
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

std::vector<Metric<BlockIoOutcome>> background_metrics() {
  const auto metric = [](const char* name, const char* unit, const char* what, double (*value)(const BlockIoOutcome&),
                         bool whole = false) {
    return Metric<BlockIoOutcome>{
        {fmt::format("background_{}", name), unit, fmt::format("Block commands beside a generation: {}.", what)},
        value,
        whole};
  };
  std::vector<Metric<BlockIoOutcome>> all{
      metric("iops", "1/s", "completed commands per second",
             [](const BlockIoOutcome& out) {
               const double seconds = out.duration.seconds();
               return seconds > 0 ? double(out.latency_ps.count()) / seconds : 0;
             }),
      metric("latency_mean_ns", "ns", "mean latency",
             [](const BlockIoOutcome& out) { return out.latency_ps.mean() * 1e-3; }),
      metric("latency_p99_ns", "ns", "99th percentile",
             [](const BlockIoOutcome& out) { return double(out.latency_ps.quantile(99)) * 1e-3; })};
  for (auto& part : write_amplification_metrics<BlockIoOutcome>(
           {"background_write_amplification", "1",
            "Block commands beside a generation: write_amplification of what they write. Its parts follow."},
           [](const BlockIoOutcome& out) { return &out.writes; }))
    all.push_back(std::move(part));
  all.push_back(
      {{"background_blocks_checked", "1",
        "The same where the power of the drive fails: logical blocks that were compared with all versions that "
        "they may hold."},
       [](const BlockIoOutcome& out) -> std::optional<double> {
         return out.power ? std::optional(double(out.blocks_checked)) : std::nullopt;
       },
       true});
  all.push_back(metric(
      "requests_issued", "1", "requests submitted, a command each",
      [](const BlockIoOutcome& out) { return double(out.issued); }, true));
  all.push_back(metric(
      "requests_completed", "1", "requests completed", [](const BlockIoOutcome& out) { return double(out.completed); },
      true));
  return all;
}

std::string BackgroundIo::add_result(nlohmann::ordered_json& document) const {
  if (error_) std::rethrow_exception(error_);
  add_metrics(document["metrics"], background_metrics(), outcome_);
  if (outcome_.issued != outcome_.completed)
    return fmt::format("{} background requests were issued and {} completed", outcome_.issued, outcome_.completed);
  if (outcome_.failed > 0)
    return fmt::format("{} of {} background requests failed, the first with {}", outcome_.failed, outcome_.issued,
                       outcome_.first_failure);
  return {};
}

}  // namespace csdsim::experiment

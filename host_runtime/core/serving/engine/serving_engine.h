// Serves the requests of a trace on one or several engines that share the tiers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/param_codec.h"
#include "host_runtime/core/serving/engine/request_blocks.h"
#include "host_runtime/core/serving/engine/serving_instance.h"

namespace csdsim::host {

/// Which engine a request goes to.
enum class Routing : std::uint8_t { round_robin, prefix };

class ServingEngine {
 public:
  struct Config {
    EngineConfig engine;
    std::uint32_t instances = 1;
    Routing routing = Routing::round_robin;
  };

  /// All references and `contents` must outlive this; it is null in runs that carry no data. Throws UserError for a
  /// request that the blocks of a GPU do not hold.
  ServingEngine(const Config& config, const StepCost& cost, const ServingTrace& trace, KvTiers& tiers,
                KvTransport& transport, KvContents* contents = nullptr);

  /// Lets the requests arrive, at their times from now on.
  void start();

  std::uint64_t ended() const { return ended_; }
  bool finished() const { return ended_ == trace_.requests.size(); }
  ServingMeter& meter() { return meter_; }
  const ServingMeter& meter() const { return meter_; }
  /// Called with the number of requests that have ended.
  void on_progress(std::function<void(std::uint64_t)> listener) { progress_ = std::move(listener); }
  /// Called once: when all requests have ended, or after the first step at which ends_early() says so.
  void on_finished(std::function<void()> listener) { finished_ = std::move(listener); }
  void ends_early(std::function<bool()> asked) { ends_early_ = std::move(asked); }

 private:
  void check(const TracedRequest& request) const;
  void schedule_arrival(std::uint32_t request);
  void arrive(std::uint32_t request);
  void trigger(std::uint32_t request, TraceDependency::Trigger trigger);
  std::size_t route(const ServedSequence& sequence);
  void sample();
  /// A step has ended.
  void stepped();

  Config config_;
  const ServingTrace& trace_;
  KvTiers& tiers_;
  KvTransport& transport_;
  RequestBlocks blocks_;
  ServingMeter meter_;
  std::vector<std::unique_ptr<ServingInstance>> instances_;
  std::vector<std::unique_ptr<ServedSequence>> sequences_;  ///< [request]; null before and after its life

  struct Follower {
    std::uint32_t request;
    TraceDependency::Trigger trigger;
    SimTime delay;
  };
  std::vector<std::vector<Follower>> followers_;  ///< [request]: who waits for it
  std::vector<std::uint32_t> waits_for_;          ///< [request]: how many have not come
  std::vector<SimTime> not_before_;               ///< [request]
  SimTime start_;
  std::size_t next_instance_ = 0;
  std::uint64_t ended_ = 0;
  std::function<void(std::uint64_t)> progress_ = [](std::uint64_t) {};
  std::function<void()> finished_ = [] {};
  std::function<bool()> ends_early_ = [] { return false; };
  bool told_ = false;  ///< that it has finished
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::Routing> {
  static constexpr EnumValue<host::Routing> values[] = {
      {host::Routing::round_robin, "round_robin", "Engines take the requests in turn."},
      {host::Routing::prefix, "prefix",
       "The engine whose GPU has most of the prompt; of several, the one with the fewest requests."}};
};

}  // namespace csdsim

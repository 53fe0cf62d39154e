#include "host_runtime/core/serving/engine/serving_meter.h"

#include <utility>

namespace csdsim::host {

void ServingMeter::ended(ServedSequence& s) {
  requests_.push_back({.life = s.request,
                       .instance = s.instance,
                       .hit_gpu = s.hit_gpu,
                       .hit_host = s.hit_host,
                       .hit_drives = s.hit_drives,
                       .preemptions = s.preemptions,
                       .load_began = s.load_began,
                       .loaded_at = s.loaded_at,
                       .has_loaded = s.has_loaded,
                       .spans = std::move(s.spans)});
}

void ServingMeter::load(SimTime now, const ServingLoad& load) {
  const double seconds = (now - last_at_).seconds();
  in_system_seconds_ += seconds * static_cast<double>(last_.waiting + last_.loading + last_.running);
  running_seconds_ += seconds * static_cast<double>(last_.running);
  last_ = load;
  last_at_ = now;
  if (!samples_.empty() && now - samples_.back().at < interval_) return;
  samples_.push_back({now, load});
  if (samples_.size() > 2 * kSamples) thin();
}

void ServingMeter::thin() {
  interval_ = interval_ * 2;
  std::vector<Sample> kept;
  for (const Sample& sample : samples_)
    if (kept.empty() || sample.at - kept.back().at >= interval_) kept.push_back(sample);
  samples_ = std::move(kept);
}

void ServingMeter::finish(SimTime now) {
  load(now, last_);
  if (samples_.empty() || samples_.back().at < now) samples_.push_back({now, last_});
}

}  // namespace csdsim::host

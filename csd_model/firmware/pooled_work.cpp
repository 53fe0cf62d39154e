#include "csd_model/firmware/pooled_work.h"

#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

PooledWork::PooledWork(const sc_core::sc_module_name& name, std::uint32_t units, const UnitPool::Make& make,
                       SimTime& busy, SimTime& waited)
    : busy_(busy), waited_(waited), pool_(name, units, make, [this](const UnitPool::End& e) { end(e); }) {}

void PooledWork::run(std::uint64_t amount, SimTime expected, Work then, std::uint32_t kind) {
  const std::uint64_t id = next_++;
  pending_[id] = {expected, std::move(then)};
  pool_.request({.id = id, .amount = amount, .kind = kind, .expected = expected});
}

void PooledWork::end(const UnitPool::End& end) {
  const auto found = pending_.find(end.id);
  Pending work = std::move(found->second);
  pending_.erase(found);
  waited_ += end.waited;
  busy_ += end.worked - work.expected;
  if (work.then) ended_.at(sim_time_now(), end.id, std::move(work.then));
}

}  // namespace csdsim::csd_model

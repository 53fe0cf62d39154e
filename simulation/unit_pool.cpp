#include "simulation/unit_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim {

UnitPool::Unit::Unit(std::uint32_t index)
    : start(fmt::format("start{}", index).c_str()),
      amount(fmt::format("amount{}", index).c_str()),
      kind(fmt::format("kind{}", index).c_str()),
      done(fmt::format("done{}", index).c_str()) {}

UnitPool::UnitPool(const sc_core::sc_module_name& name, std::uint32_t count, const Make& make, Ended ended)
    : sc_module(name), ended_(std::move(ended)) {
  hold_.engage();
  SC_METHOD(on_done);
  dont_initialize();
  for (std::uint32_t i = 0; i < count; ++i) {
    units_.push_back(std::make_unique<Unit>(i));
    bind(*units_.back(), make(i));
    sensitive << units_.back()->done;
  }
}

void UnitPool::bind(Unit& unit, UnitParts parts) {
  if (parts.module == nullptr || parts.start == nullptr || parts.amount == nullptr || parts.done == nullptr)
    throw UserError(fmt::format("{}: a unit needs module, start, amount and done of its UnitParts", name()));
  unit.parts = std::move(parts);
  unit.parts.start->bind(unit.start);
  unit.parts.amount->bind(unit.amount);
  if (unit.parts.kind != nullptr) unit.parts.kind->bind(unit.kind);
  unit.parts.done->bind(unit.done);
}

void UnitPool::request(const Request& request) {
  queue_.push_back({request, sim_time_now()});
  serve();
}

/// Gives waiting requests to free units.
void UnitPool::serve() {
  while (!queue_.empty() && working_ < units_.size()) {
    const SimTime now = sim_time_now();
    const Waiting first = queue_.front();
    queue_.pop_front();
    if (first.request.expected.ps == 0) {
      ended_({.id = first.request.id, .waited = now - first.since});
      continue;
    }
    Unit& unit = **std::find_if(units_.begin(), units_.end(), [](const auto& u) { return !u->working; });
    ++working_;
    unit.working = true;
    unit.work = first;
    unit.since = now;
    unit.level = !unit.level;
    unit.start.write(unit.level);
    unit.amount.write(first.request.amount);
    unit.kind.write(first.request.kind);
  }
  traced_waiting_ = static_cast<std::uint32_t>(queue_.size());
}

void UnitPool::on_done() {
  hold_.loop().guarded([this] {
    const SimTime now = sim_time_now();
    for (const auto& unit : units_) {
      if (!unit->done.event()) continue;
      if (!unit->working || unit->done.read() != unit->level)
        throw UserError(fmt::format("{}: its pin done changed while it had no work", unit->parts.module->name()));
      unit->working = false;
      unit->kind.write(0);
      --working_;
      const Waiting& work = unit->work;
      ended_({.id = work.request.id, .waited = unit->since - work.since, .worked = now - unit->since});
    }
    serve();
  });
}

SimTime UnitPool::ahead(SimTime now) const {
  SimTime sum;
  for (const Waiting& waiting : queue_) sum += waiting.request.expected;
  for (const auto& unit : units_)
    if (unit->working) sum += std::max(unit->work.request.expected - (now - unit->since), SimTime{});
  return sum;
}

void UnitPool::trace(sc_core::sc_trace_file* file) const {
  sc_core::sc_trace(file, traced_waiting_, std::string(name()) + ".waiting");
  for (const auto& unit : units_) {
    const std::string of_unit = std::string(unit->parts.module->name()) + ".";
    sc_core::sc_trace(file, unit->start.read(), of_unit + "start");
    sc_core::sc_trace(file, unit->done.read(), of_unit + "done");
    sc_core::sc_trace(file, unit->amount.read(), of_unit + "amount");
    sc_core::sc_trace(file, unit->kind.read(), of_unit + "kind");
    unit->parts.module->trace(file);
  }
}

}  // namespace csdsim

#include "simulation/unit_module.h"

#include <utility>

#include "simulation/sim_time.h"

namespace csdsim {

UnitModule::UnitModule(const sc_core::sc_module_name& name) : sc_module(name) {
  SC_METHOD(on_start);
  sensitive << start;
  dont_initialize();
  SC_METHOD(on_end);
  sensitive << end_;
  dont_initialize();
}

void UnitModule::on_start() { end_.notify(to_sc_time(time_of(amount.read(), kind.read()))); }

void UnitModule::on_end() { done.write(start.read()); }

UnitParts parts_of(std::unique_ptr<UnitModule> unit) {
  UnitParts parts{.start = &unit->start, .amount = &unit->amount, .kind = &unit->kind, .done = &unit->done};
  parts.module = std::move(unit);
  return parts;
}

}  // namespace csdsim

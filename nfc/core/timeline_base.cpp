#include "nfc/core/timeline_base.h"

#include "nfc/core/flash_names.h"

namespace csdsim::nfc {

using flash_names::kArrays;
using flash_names::kCommands;
using flash_names::kData;
using flash_names::name;

void TimelineBase::report_command(std::uint32_t channel, OpClass op_class, PageOpKind kind, SimTime start) const {
  if (observers_.channels == nullptr) return;
  observers_.channels->work(channel, name(kCommands, op_class, kind), start, start + timing_.command_time, 0);
}

void TimelineBase::report_data(std::uint32_t channel, OpClass op_class, PageOpKind kind, std::uint32_t bytes,
                               SimTime start, SimTime end) const {
  if (observers_.channels != nullptr)
    observers_.channels->work(channel, name(kData, op_class, kind), start, end, bytes);
  // A filter with a bandwidth has times of its own.
  const bool filtered = op_class == OpClass::attend && kind == PageOpKind::read && !timing_.filter_bandwidth;
  if (filtered && observers_.filters != nullptr) observers_.filters->work(channel, "filter", start, end, bytes);
}

void TimelineBase::report_array(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime start,
                                SimTime end) const {
  if (observers_.planes != nullptr) observers_.planes->work(plane, name(kArrays, op_class, kind), start, end, 0);
}

}  // namespace csdsim::nfc

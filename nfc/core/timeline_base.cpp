#include "nfc/core/timeline_base.h"

#include <array>
#include <string_view>

namespace csdsim::nfc {
namespace {

/// [OpClass][PageOpKind], as slices of a trace are called: equal names can be added up.
using Names = std::array<std::array<std::string_view, kPageOpKinds>, kOpClasses>;
constexpr Names kCommands{{{"host read command", "host program command", "host erase command"},
                           {"attend read command", "attend program command", "attend erase command"},
                           {"flush read command", "flush program command", "flush erase command"},
                           {"gc read command", "gc program command", "gc erase command"},
                           {"map read command", "map program command", "map erase command"}}};
constexpr Names kData{{{"host data out", "host data in", ""},
                       {"attend data out", "attend data in", ""},
                       {"flush data out", "flush data in", ""},
                       {"gc data out", "gc data in", ""},
                       {"map data out", "map data in", ""}}};
constexpr Names kArrays{{{"host read", "host program", "host erase"},
                         {"attend read", "attend program", "attend erase"},
                         {"flush read", "flush program", "flush erase"},
                         {"gc read", "gc program", "gc erase"},
                         {"map read", "map program", "map erase"}}};
static_assert(kOpClassNames == std::array<std::string_view, kOpClasses>{"host", "attend", "flush", "gc", "map"});

std::string_view name(const Names& names, OpClass op_class, PageOpKind kind) {
  return names[static_cast<std::size_t>(op_class)][static_cast<std::size_t>(kind)];
}

}  // namespace

void TimelineBase::report_command(std::uint32_t channel, OpClass op_class, PageOpKind kind, SimTime start) const {
  if (observers_.channels == nullptr) return;
  observers_.channels->work(channel, name(kCommands, op_class, kind), start, start + timing_.command_time, 0);
}

void TimelineBase::report_data(std::uint32_t channel, OpClass op_class, PageOpKind kind, std::uint32_t bytes,
                               SimTime start, SimTime end) const {
  if (observers_.channels != nullptr)
    observers_.channels->work(channel, name(kData, op_class, kind), start, end, bytes);
  // A filter with a bandwidth has times of its own.
  const bool filtered =
      op_class == OpClass::attend && kind == PageOpKind::read && timing_.filter_bandwidth.bytes_per_second == 0;
  if (filtered && observers_.filters != nullptr) observers_.filters->work(channel, "filter", start, end, bytes);
}

void TimelineBase::report_array(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime start,
                                SimTime end) const {
  if (observers_.planes != nullptr) observers_.planes->work(plane, name(kArrays, op_class, kind), start, end, 0);
}

}  // namespace csdsim::nfc

// Names of flash work in traces. Work of the same name may be added up.
#pragma once

#include <array>
#include <string_view>

#include "nfc/core/flash_statistics.h"

namespace csdsim::nfc::flash_names {

/// [OpClass][PageOpKind]
using Names = std::array<std::array<std::string_view, kPageOpKinds>, kOpClasses>;
inline constexpr Names kCommands{{{"host read command", "host program command", "host erase command"},
                                  {"attend read command", "attend program command", "attend erase command"},
                                  {"flush read command", "flush program command", "flush erase command"},
                                  {"gc read command", "gc program command", "gc erase command"},
                                  {"map read command", "map program command", "map erase command"}}};
inline constexpr Names kData{{{"host data out", "host data in", ""},
                              {"attend data out", "attend data in", ""},
                              {"flush data out", "flush data in", ""},
                              {"gc data out", "gc data in", ""},
                              {"map data out", "map data in", ""}}};
inline constexpr Names kArrays{{{"host read", "host program", "host erase"},
                                {"attend read", "attend program", "attend erase"},
                                {"flush read", "flush program", "flush erase"},
                                {"gc read", "gc program", "gc erase"},
                                {"map read", "map program", "map erase"}}};
static_assert(kOpClassNames == std::array<std::string_view, kOpClasses>{"host", "attend", "flush", "gc", "map"});

constexpr std::string_view name(const Names& names, OpClass op_class, PageOpKind kind) {
  return names[static_cast<std::size_t>(op_class)][static_cast<std::size_t>(kind)];
}

}  // namespace csdsim::nfc::flash_names

// The host's answer where a drive cannot read K or V back.
#pragma once

#include <cstdint>

#include "base/param_codec.h"

namespace csdsim::host {

enum class LostKv : std::uint8_t { stop, drop, recompute };

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::LostKv> {
  static constexpr EnumValue<host::LostKv> values[] = {
      {host::LostKv::stop, "stop", "The run ends with the address of the page."},
      {host::LostKv::drop, "drop", "Drives attend without the tokens of the page from then on."},
      {host::LostKv::recompute, "recompute",
       "The GPU computes K and V of the tokens again, and the host writes them again."}};
};

}  // namespace csdsim

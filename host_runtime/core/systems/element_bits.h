// The bits per element that systems offer for what they keep: records of neurons, K and V.
#pragma once

#include <cstdint>

#include "base/param.h"

namespace csdsim::host {

enum class ElementBits : std::uint8_t { sixteen, eight, four };

constexpr std::uint32_t bits_of(ElementBits bits) {
  return bits == ElementBits::sixteen ? 16 : bits == ElementBits::eight ? 8 : 4;
}

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::ElementBits> {
  static constexpr EnumValue<host::ElementBits> values[] = {
      {host::ElementBits::sixteen, "16", "As the checkpoint has them."},
      {host::ElementBits::eight, "8", "Integers of 8 bits, with a scale per group."},
      {host::ElementBits::four, "4", "Integers of 4 bits, with a scale per group."}};
};

}  // namespace csdsim

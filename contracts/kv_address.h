// Addresses of keys and values: heads, and rows of them.
#pragma once

#include <compare>
#include <cstdint>

#include "base/address.h"

namespace csdsim {

/// One KV head of one layer of one sequence: the unit of attention work.
struct HeadKey {
  SequenceId sequence;
  LayerId layer;
  KvHead head;
  auto operator<=>(const HeadKey&) const = default;
};

/// `count` consecutive KV heads.
struct HeadRange {
  KvHead first;
  std::uint32_t count = 0;
  constexpr auto operator<=>(const HeadRange&) const = default;
};

enum class KvKind : std::uint8_t { key, value };

/// The wanted rows of a token group: keys and values may share pages.
enum class KvRows : std::uint8_t { keys, values, both };

}  // namespace csdsim

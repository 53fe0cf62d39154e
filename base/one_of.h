// A parameter with some values of a type that other parameters use too.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/param_codec.h"

namespace csdsim {

/// Its values are those of `values`, EnumValues with sentences of their own; the first one is the default.
template <const auto& values>
struct OneOf {
  using Value = std::remove_const_t<decltype(values[0].value)>;
  Value value = values[0].value;

  constexpr OneOf() = default;
  constexpr OneOf(Value v) : value(v) {}
  constexpr operator Value() const { return value; }
};

template <const auto& values>
struct Codec<OneOf<values>> {
  static std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& v : values) out.emplace_back(v.name);
    return out;
  }
  static std::string type() {
    std::string out = "one of";
    for (const auto& v : values) {
      out += &v == &values[0] ? " " : ", ";
      out += v.name;
    }
    return out;
  }
  static OneOf<values> parse(std::string_view text) { return values[detail::find_name(text, names())].value; }
  static std::string format(const OneOf<values>& chosen) {
    for (const auto& v : values)
      if (v.value == chosen.value) return std::string(v.name);
    return "?";
  }
};

}  // namespace csdsim

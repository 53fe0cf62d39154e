// Each type of parameter is parsed, written and named here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/quantity.h"

namespace csdsim {

/// A file or directory that the user names. `path` is where it was found; it stays empty until someone looks.
struct InputPath {
  std::string given;
  std::filesystem::path path;
  bool operator==(const InputPath& o) const { return given == o.given; }
};

/// One value of an enum: its name in files and a sentence.
template <class E>
struct EnumValue {
  E value;
  std::string_view name;
  std::string_view doc;
};

/// Specialise for an enum that is a parameter: `static constexpr EnumValue<E> values[] = {...};`
template <class E>
struct EnumValues;

/// Name of an enum's value as written in files.
template <class E>
requires std::is_enum_v<E>
constexpr std::string_view name_of(E value) {
  for (const auto& v : EnumValues<E>::values) {
    if (v.value == value) return v.name;
  }
  return "?";
}

namespace detail {
/// Index of `text` in `names`; throws UserError that lists what exists.
std::size_t find_name(std::string_view text, const std::vector<std::string>& names);
bool parse_bool(std::string_view text);
/// Throws UserError for an empty text.
std::string parse_text(std::string_view text);
/// Throws UserError when the count does not fit in 32 bits.
std::uint32_t narrow_count(std::uint64_t value);
}  // namespace detail

/// parse and type name of a parameter's type; format where format_quantity does not write it.
template <class T>
struct Codec;

template <>
struct Codec<SimTime> {
  static std::string type() { return "time"; }
  static SimTime parse(std::string_view text) { return parse_time(text); }
};
template <>
struct Codec<Bytes> {
  static std::string type() { return "size"; }
  static Bytes parse(std::string_view text) { return parse_bytes(text); }
};
template <>
struct Codec<Bandwidth> {
  static std::string type() { return "bandwidth"; }
  static Bandwidth parse(std::string_view text) { return parse_bandwidth(text); }
};
template <>
struct Codec<Frequency> {
  static std::string type() { return "frequency"; }
  static Frequency parse(std::string_view text) { return parse_frequency(text); }
};
template <>
struct Codec<ComputeRate> {
  static std::string type() { return "compute rate"; }
  static ComputeRate parse(std::string_view text) { return parse_compute_rate(text); }
};
template <>
struct Codec<Energy> {
  static std::string type() { return "energy"; }
  static Energy parse(std::string_view text) { return parse_energy(text); }
};
template <>
struct Codec<Power> {
  static std::string type() { return "power"; }
  static Power parse(std::string_view text) { return parse_power(text); }
};
template <>
struct Codec<Ratio> {
  static std::string type() { return "ratio"; }
  static Ratio parse(std::string_view text) { return parse_ratio(text); }
};
template <>
struct Codec<std::uint64_t> {
  static std::string type() { return "count"; }
  static std::uint64_t parse(std::string_view text) { return parse_count(text); }
};
template <>
struct Codec<std::uint32_t> {
  static std::string type() { return "count"; }
  static std::uint32_t parse(std::string_view text) { return detail::narrow_count(parse_count(text)); }
};
template <>
struct Codec<bool> {
  static std::string type() { return "true or false"; }
  static bool parse(std::string_view text) { return detail::parse_bool(text); }
};
template <>
struct Codec<std::string> {
  static std::string type() { return "text"; }
  static std::string parse(std::string_view text) { return detail::parse_text(text); }
};
template <>
struct Codec<InputPath> {
  static std::string type() { return "path"; }
  static InputPath parse(std::string_view text) { return {detail::parse_text(text), {}}; }
};
template <class E>
requires std::is_enum_v<E>
struct Codec<E> {
  static std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& v : EnumValues<E>::values) out.emplace_back(v.name);
    return out;
  }
  static std::string type() {
    std::string out = "one of";
    for (const auto& v : EnumValues<E>::values) {
      out += &v == &EnumValues<E>::values[0] ? " " : ", ";
      out += v.name;
    }
    return out;
  }
  static E parse(std::string_view text) { return EnumValues<E>::values[detail::find_name(text, names())].value; }
};

/// The text that Codec<T>::parse reads back.
template <class T>
std::string format_value(const T& value) {
  if constexpr (requires { Codec<T>::format(value); }) {
    return Codec<T>::format(value);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, InputPath>) {
    return value.given;
  } else {
    return format_quantity(value);
  }
}

}  // namespace csdsim

// The part of fmt that the host runtime's messages use: {} in order, {:02x} and {:04x}, join.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fmt {

template <class Range>
std::string join(const Range& values, std::string_view separator) {
  std::ostringstream out;
  std::string_view before;
  for (const auto& value : values) {
    out << before << value;
    before = separator;
  }
  return out.str();
}

template <class... Arguments>
std::string format(std::string_view pattern, const Arguments&... arguments) {
  std::vector<std::string> texts;
  const auto keep = [&](const auto& value) {
    std::ostringstream out;
    if constexpr (sizeof(value) == 1) {
      out << +value;
    } else {
      out << value;
    }
    texts.push_back(out.str());
  };
  (keep(arguments), ...);
  std::string result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '{') {
      result += pattern[i];
      continue;
    }
    i = pattern.find('}', i);
    result += next < texts.size() ? texts[next] : std::string("?");
    ++next;
  }
  return result;
}

}  // namespace fmt

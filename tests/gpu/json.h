// The part of JSON that checkpoints and golden vectors use: valid documents, ASCII strings without escapes but \" and
// \\.
#pragma once

#include <cctype>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gpu_test {

struct Json {
  double number = 0;  ///< also of true and false
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> fields;
  bool null = false;

  bool has(const std::string& name) const { return fields.contains(name) && !fields.at(name).null; }
  const Json& at(const std::string& name) const {
    const auto it = fields.find(name);
    if (it == fields.end()) throw std::runtime_error("json: no field " + name);
    return it->second;
  }
  double number_or(const std::string& name, double otherwise) const {
    return has(name) ? fields.at(name).number : otherwise;
  }
};

/// Takes a value from the front of `rest`.
inline Json take_json(std::string_view& rest) {
  const auto peek = [&] {
    while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.front())) != 0) rest.remove_prefix(1);
    return rest.empty() ? '\0' : rest.front();
  };
  const auto expect = [&](char c) {
    if (peek() != c) throw std::runtime_error(std::string("json: expected ") + c);
    rest.remove_prefix(1);
  };
  const auto string = [&] {
    std::string text;
    for (expect('"'); !rest.empty() && rest.front() != '"'; rest.remove_prefix(1)) {
      if (rest.front() == '\\') rest.remove_prefix(1);
      text += rest.front();
    }
    expect('"');
    return text;
  };
  Json value;
  switch (peek()) {
    case '{':
      expect('{');
      while (peek() != '}') {
        std::string name = string();
        expect(':');
        value.fields.emplace(std::move(name), take_json(rest));
        if (peek() == ',') expect(',');
      }
      expect('}');
      break;
    case '[':
      expect('[');
      while (peek() != ']') {
        value.items.push_back(take_json(rest));
        if (peek() == ',') expect(',');
      }
      expect(']');
      break;
    case '"':
      value.text = string();
      break;
    default: {
      std::size_t size = 0;
      while (size < rest.size() && std::string_view(",]} \n").find(rest[size]) == std::string_view::npos) ++size;
      const std::string word(rest.substr(0, size));
      value.null = word == "null";
      value.number = word == "true" ? 1 : std::strtod(word.c_str(), nullptr);
      rest.remove_prefix(size);
    }
  }
  return value;
}

inline Json parse_json(std::string_view text) { return take_json(text); }

}  // namespace gpu_test

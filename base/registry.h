// Named implementations. A registry is an object that someone fills; nothing registers itself.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {

/// Name to T (usually a factory), in order of registration.
template <class T>
class Registry {
 public:
  struct Item {
    std::string name;
    std::string doc;  ///< one sentence
    T value;
  };

  /// `what` names a member in messages: "mapping policy".
  explicit Registry(std::string what) : what_(std::move(what)) {}

  /// UserError when the name is taken (plugins register names, too), InternalError when it is empty.
  void add(std::string name, std::string doc, T value) {
    if (name.empty()) throw InternalError(fmt::format("a {} without a name", what_));
    if (contains(name)) throw UserError(fmt::format("{} '{}' is registered twice", what_, name));
    items_.push_back({std::move(name), std::move(doc), std::move(value)});
  }

  /// Throws UserError that lists what exists and the nearest name.
  const T& at(std::string_view name) const {
    for (const Item& item : items_) {
      if (item.name == name) return item.value;
    }
    throw UserError(fmt::format("unknown {} '{}'{}; exists: {}", what_, printable(name), did_you_mean(name, names()),
                                items_.empty() ? "none" : join(names())));
  }

  bool contains(std::string_view name) const {
    for (const Item& item : items_) {
      if (item.name == name) return true;
    }
    return false;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Item& item : items_) out.push_back(item.name);
    return out;
  }

  const std::vector<Item>& items() const { return items_; }

 private:
  std::string what_;
  std::vector<Item> items_;
};

}  // namespace csdsim

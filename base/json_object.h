// Room in JSON objects.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

namespace csdsim {

/// An empty object with room for so many keys. Without it ordered_json copies all its values, nested ones included,
/// each time it grows: its pairs have const keys, so that a vector does not move them.
inline nlohmann::ordered_json object_for(std::size_t keys) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  object.get_ref<nlohmann::ordered_json::object_t&>().reserve(keys);
  return object;
}

}  // namespace csdsim

// Decides when K and V go down to the tiers behind the GPU.
#pragma once

#include <cstdint>

#include "base/param_codec.h"

namespace csdsim::host {

enum class StorePolicy : std::uint8_t { write_through, prompt_only, write_back, on_eviction };

/// What a policy decides.
struct StoreTraits {
  bool when_computed = true;  ///< as soon as a tier block is complete; otherwise when the GPU gives it up
  bool answers = true;        ///< K and V of generated tokens, too
  bool through = true;        ///< to the drives at once; otherwise when host memory gives it up
};

constexpr StoreTraits traits_of(StorePolicy policy) {
  switch (policy) {
    case StorePolicy::write_through:
      return {};
    case StorePolicy::prompt_only:
      return {.answers = false};
    case StorePolicy::write_back:
      return {.through = false};
    case StorePolicy::on_eviction:
      return {.when_computed = false, .through = false};
  }
  return {};
}

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::StorePolicy> {
  static constexpr EnumValue<host::StorePolicy> values[] = {
      {host::StorePolicy::write_through, "write_through", "Every block goes to all tiers once it is computed."},
      {host::StorePolicy::prompt_only, "prompt_only", "The same for blocks of prompts; answers are not stored."},
      {host::StorePolicy::write_back, "write_back",
       "Every block goes to host memory once it is computed, and to the drives when host memory gives it up."},
      {host::StorePolicy::on_eviction, "on_eviction",
       "A block goes to host memory when the GPU gives it up, and to the drives when host memory does."}};
};

}  // namespace csdsim

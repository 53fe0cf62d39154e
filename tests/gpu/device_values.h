// Values on the GPU for tests of operators.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/operators.h"
#include "tests/gpu/reference.h"

namespace gpu_test {

using namespace csdsim::host::cuda;

inline Context& context() {
  static Context instance;
  return instance;
}

struct Heads {
  std::uint32_t kv_heads, group, d;
};

template <class T>
inline constexpr Format kFormat = std::is_same_v<T, __half> ? Format::f16 : Format::bf16;
template <class T>
inline constexpr double kBound = std::is_same_v<T, __half> ? 2e-3 : 1.2e-2;

inline bool has(Format format) { return format == Format::f16 || context().device.compute_capability >= 80; }

template <class V>
DeviceBuffer<V> on_device(const std::vector<V>& values) {
  DeviceBuffer<V> buffer(context().pool, std::max<std::size_t>(values.size(), 1));
  copy_to_device(context().stream, std::span<const V>(values), buffer.data());
  return buffer;
}

template <class T>
DeviceBuffer<T> narrowed(const Floats& values) {
  const auto wide = on_device(values);
  DeviceBuffer<T> buffer(context().pool, values.size());
  convert(context().stream, static_cast<const float*>(wide.data()), buffer.data(), values.size());
  return buffer;
}

template <class T>
Floats on_host(const DeviceBuffer<T>& buffer) {
  Floats values(buffer.size());
  if constexpr (std::is_same_v<T, float>) {
    copy_to_host(context().stream, static_cast<const float*>(buffer.data()), std::span<float>(values));
  } else {
    DeviceBuffer<float> wide(context().pool, buffer.size());
    convert(context().stream, static_cast<const T*>(buffer.data()), wide.data(), buffer.size());
    copy_to_host(context().stream, static_cast<const float*>(wide.data()), std::span<float>(values));
  }
  return values;
}

}  // namespace gpu_test

// Wire structs as bytes.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace csdsim::nvme {

template <class Data>
void put(std::vector<std::byte>& out, const Data& data) {
  static_assert(std::is_trivially_copyable_v<Data>);
  const std::size_t at = out.size();
  out.resize(at + sizeof data);
  std::memcpy(out.data() + at, &data, sizeof data);
}

template <class Data>
std::vector<std::byte> bytes_of(const Data& data) {
  std::vector<std::byte> bytes;
  put(bytes, data);
  return bytes;
}

/// Precondition: there are as many bytes.
template <class Data>
Data from_bytes(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<Data>);
  Data data;
  std::memcpy(&data, bytes.data(), sizeof data);
  return data;
}

}  // namespace csdsim::nvme

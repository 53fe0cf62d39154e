// The weights of a decoder. The file formats live in host_runtime/checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim::host {

enum class ElementType : std::uint8_t { f16, bf16, f32 };

constexpr std::size_t element_size(ElementType type) { return type == ElementType::f32 ? 4 : 2; }

/// A tensor as it is stored: row-major, little-endian, bytes.size() == product of shape * element_size(type).
/// The bytes belong to the source and carry no alignment promise.
struct StoredTensor {
  ElementType type = ElementType::f32;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

/// Named tensors.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool contains(std::string_view name) const = 0;
  /// The tensor `name`; UserError naming the file if it is missing or of a type that is not a float of StoredTensor.
  virtual StoredTensor tensor(std::string_view name) const = 0;
  /// Names of all tensors; none where they are not known.
  virtual std::vector<std::string> names() const { return {}; }
  /// Tells that the bytes of a tensor have been copied: a source that maps a file may drop them from memory until they
  /// are asked for again.
  virtual void release(std::string_view /*name*/) const {}
  /// Name of this source in messages (a path).
  virtual std::string description() const = 0;
};

}  // namespace csdsim::host

// Block requests and their sources.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace csdsim::experiment::workload {

enum class RequestKind : std::uint8_t { read, write, trim, flush };
inline constexpr std::size_t kRequestKinds = 4;
constexpr std::array<std::string_view, kRequestKinds> kRequestKindNames{"read", "write", "trim", "flush"};

/// One request, in whole logical blocks. A flush has neither offset nor length.
struct BlockRequest {
  RequestKind kind = RequestKind::read;
  Bytes offset;
  Bytes length;
  std::uint32_t stream = 0;                ///< all requests of a stream can be assigned to one queue
  std::optional<std::uint16_t> placement;  ///< placement identifier of a write
  SimTime at{};  ///< open loops: time since the start of the run, never before the previous request
};

/// Generates or reads the requests of a run, one at a time.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// Returns the next request, of `stream` if the streams are independent; nothing at the end. Throws UserError when a
  /// request cannot be read or generated.
  virtual std::optional<BlockRequest> next(std::uint32_t stream) = 0;
  /// End of the address range of all requests, which preconditioning must fill.
  virtual Bytes footprint() const = 0;
};

}  // namespace csdsim::experiment::workload

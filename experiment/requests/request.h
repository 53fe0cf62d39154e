// Requests to a drive's blocks, and where they come from.
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
struct Request {
  RequestKind kind = RequestKind::read;
  Bytes offset;
  Bytes length;
  std::uint32_t stream = 0;  ///< requests of a stream may be kept on one queue
  SimTime at{};              ///< open loops: since the start of the run; not before the one that came before it
};

/// Makes the requests of a run, one after another.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// The next request; of `stream` where streams are independent of one another. Nothing when there are no more.
  /// UserError for what cannot be read or made.
  virtual std::optional<Request> next(std::uint32_t stream) = 0;
  /// All requests lie below it: what preconditioning has to fill.
  virtual Bytes footprint() const = 0;
};

}  // namespace csdsim::experiment::workload

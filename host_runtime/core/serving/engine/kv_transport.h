// Moves K and V between the GPU, host memory and drives while time goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/units.h"
#include "host_runtime/core/place.h"

namespace csdsim::host {

/// Bytes [offset, offset + size) of the range that a tier has on a drive. Both are whole logical blocks.
struct DriveRange {
  DriveIndex drive;
  Bytes offset;
  Bytes size;
  constexpr auto operator<=>(const DriveRange&) const = default;
};

/// Whether bytes go to the GPU or away from it.
enum class CopyDirection : std::uint8_t { to_gpu, from_gpu };

/// Carries out what a serving engine asks for and calls back when it has ended, never before the call has returned.
/// host_runtime/sysc has one over simulated links and drives; RatesTransport is one over a table of rates.
class KvTransport {
 public:
  using Done = std::function<void()>;
  using ReadDone = std::function<void(bool read)>;  ///< false: the drive cannot read it back

  virtual ~KvTransport() = default;

  virtual SimTime now() const = 0;
  /// Calls `work` at a time that is not before now.
  virtual void at(SimTime time, Done work) = 0;
  /// Copies between host memory and a GPU. Copies of a GPU and direction follow one another.
  virtual void copy(std::uint32_t gpu, CopyDirection direction, Bytes bytes, Done done) = 0;
  /// Reads from a drive into host or GPU memory. `bytes` are those of the range in runs that carry data, and empty in
  /// others; they must stay until the transfer has ended.
  virtual void read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) = 0;
  virtual void write(const DriveRange& to, Place from, std::span<const std::byte> bytes, Done done) = 0;
  /// Tells a drive that a range holds nothing that will be read (TRIM).
  virtual void discard(const DriveRange& range, Done done) = 0;
};

}  // namespace csdsim::host

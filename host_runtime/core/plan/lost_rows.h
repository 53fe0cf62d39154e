// K and V that a drive cannot read back: what the host does, and the rows that are lost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fp16.h"
#include "base/param_codec.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// The host's answer where a drive cannot read K or V back.
enum class LostKv : std::uint8_t { stop, drop, recompute };

/// Asked by the backend of the drives (host_runtime/sysc/drive_kv_backend.h). A run without it ends when an attend
/// finds a page that cannot be read.
class LostRows {
 public:
  virtual ~LostRows() = default;

  /// True: drives attend without the tokens of such pages, and no attend fails.
  virtual bool left_out() const = 0;
  /// A sequence is about to be attended to.
  virtual void attending(const Operation& /*attend*/, std::size_t /*index*/) {}
  /// The work of the mini-batch's GPU that makes K and V of `tokens` tokens at the operation's layer again, the newest
  /// of which is end - 1.
  virtual std::vector<ComputeWork> work(const Operation& attend, std::uint32_t tokens, std::uint32_t end) const = 0;
  /// K and V of tokens [first, first + count) of a sequence at the operation's layer as [head][token][d]. In runs that
  /// carry data.
  virtual void load(const Operation& attend, SequenceId sequence, std::uint32_t first, std::uint32_t count,
                    HeadRange heads, std::span<Half> k, std::span<Half> v) = 0;
  /// An attend has waited `computing` for rows of K and V, tokens counted for each KV head.
  virtual void computed(std::uint64_t rows, SimTime computing) = 0;
  /// They are written to the drive.
  virtual void written(Bytes kv) = 0;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::LostKv> {
  static constexpr EnumValue<host::LostKv> values[] = {
      {host::LostKv::stop, "stop", "The run ends with the address of the page."},
      {host::LostKv::drop, "drop", "Drives attend without the tokens of the page from then on."},
      {host::LostKv::recompute, "recompute",
       "The GPU computes K and V of the tokens again, and the host writes them again."}};
};

}  // namespace csdsim

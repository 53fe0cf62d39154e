// Fits the requests of a trace to a drive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ratio.h"
#include "experiment/block_io/requests/trace_reader.h"

namespace csdsim::experiment::workload {

/// Treatment of a request that does not fit the drive.
enum class Misfit : std::uint8_t {
  adapt,  ///< wrap a request beyond the end; extend a request to whole blocks
  refuse  ///< report an error, located in the trace
};

struct TraceConfig {
  TraceFormat format = TraceFormat::msr;
  std::string file;
  Ratio speed{1, 1};  ///< 2 is twice as fast as recorded
  Misfit beyond = Misfit::adapt;
  Misfit unaligned = Misfit::adapt;
  bool separate = true;   ///< each disk or file has its own range, one behind the other; else all share one
  bool placement = true;  ///< the drive takes placement identifiers; otherwise those of the trace are errors
  Bytes block;            ///< size of a logical block
  Bytes span;             ///< end of the usable address range; whole blocks
};

/// Counters of reading a trace.
struct TraceCounts {
  std::uint64_t records = 0;
  std::uint64_t wrapped = 0;        ///< requests wrapped because they were beyond the end of the drive
  std::uint64_t extended = 0;       ///< requests extended to whole blocks
  std::uint64_t rounded_trims = 0;  ///< trims rounded inwards to whole blocks
  std::uint64_t empty_trims = 0;    ///< trims that cover no whole block: they are counted above, and not sent
  std::uint64_t backwards = 0;  ///< requests with a time before an earlier record's; submitted together with that one
  /// A note about the last record if the file ends in it without a line end: "FILE:LINE: note: ...".
  std::string torn_note;
};

/// The parts of blocks that trims have covered since the block was written. Trims that cover a block together
/// deallocate it.
class PartialTrims {
 public:
  /// Adds bytes [from, to) of a block of `size` bytes. Returns whether all of it is covered now, and forgets it then.
  bool add(std::uint64_t block, std::uint64_t from, std::uint64_t to, std::uint64_t size);
  /// Blocks [first, end) are written: forgets the parts of them that trims have covered.
  void forget(std::uint64_t first, std::uint64_t end);

 private:
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> ranges_;  ///< block -> start -> end, apart
};

class TraceRequests final : public RequestSource {
 public:
  /// Adds to `counts`, which must outlive this object. Throws UserError when the trace cannot be opened.
  TraceRequests(const TraceConfig& config, TraceCounts& counts);

  /// Returns the next record of any stream. Throws UserError when it is malformed or does not fit.
  std::optional<BlockRequest> next(std::uint32_t stream) override;
  Bytes footprint() const override { return config_.span; }

 private:
  /// False for a trim of no whole block.
  bool fit(BlockRequest& request, const TraceRecord& record);
  std::optional<BlockRequest> request_of(const TraceRecord& record);
  void lay_out();
  bool fit_trim(BlockRequest& request, std::uint64_t offset, std::uint64_t end);

  TraceConfig config_;
  TraceCounts& counts_;
  std::unique_ptr<TraceReader> reader_;
  SimTime last_{};
  PartialTrims partial_;
  std::vector<std::uint64_t> begins_;  ///< first byte of each disk or file; empty: all begin at 0
};

}  // namespace csdsim::experiment::workload

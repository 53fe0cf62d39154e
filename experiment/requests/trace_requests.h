// Fits the requests of a trace to a drive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/ratio.h"
#include "experiment/requests/trace_reader.h"

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
  Bytes block;  ///< size of a logical block
  Bytes span;   ///< end of the usable address range; whole blocks
};

/// Counters of reading a trace.
struct TraceCounts {
  std::uint64_t records = 0;
  std::uint64_t wrapped = 0;    ///< requests wrapped because they were beyond the end of the drive
  std::uint64_t extended = 0;   ///< requests extended to whole blocks
  std::uint64_t backwards = 0;  ///< requests with a time before an earlier record's; submitted together with that one
};

class TraceRequests final : public RequestSource {
 public:
  /// Adds to `counts`, which must outlive this object. Throws UserError when the trace cannot be opened.
  TraceRequests(const TraceConfig& config, TraceCounts& counts);

  /// Returns the next record of any stream. Throws UserError when it is malformed or does not fit.
  std::optional<Request> next(std::uint32_t stream) override;
  Bytes footprint() const override { return config_.span; }

 private:
  void fit(Request& request, const TraceRecord& record);

  TraceConfig config_;
  TraceCounts& counts_;
  std::unique_ptr<TraceReader> reader_;
  SimTime last_{};
};

}  // namespace csdsim::experiment::workload

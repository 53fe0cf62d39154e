// The requests of a trace, fitted to a drive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/ratio.h"
#include "experiment/requests/trace_reader.h"

namespace csdsim::experiment::workload {

/// What to do with a request that does not fit the drive.
enum class Misfit : std::uint8_t {
  adapt,  ///< beyond the end: wrapped around it; not whole blocks: extended to them
  refuse  ///< an error, located in the trace
};

struct TraceConfig {
  TraceFormat format = TraceFormat::msr;
  std::string file;
  Ratio speed{1, 1};  ///< twice as fast as recorded is 2
  Misfit beyond = Misfit::adapt;
  Misfit unaligned = Misfit::adapt;
  Bytes block;  ///< a logical block
  Bytes span;   ///< requests have to lie below it; whole blocks
};

/// What reading a trace came upon so far.
struct TraceCounts {
  std::uint64_t records = 0;
  std::uint64_t wrapped = 0;    ///< beyond the end of the drive
  std::uint64_t extended = 0;   ///< to whole blocks
  std::uint64_t backwards = 0;  ///< recorded before the one that precedes it; submitted together with it
};

class TraceRequests final : public RequestSource {
 public:
  /// Adds to `counts`, which must outlive it. UserError when the trace cannot be opened.
  TraceRequests(const TraceConfig& config, TraceCounts& counts);

  /// The next record, whatever the stream: UserError for a malformed or misfitting one.
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

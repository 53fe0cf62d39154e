// Requests of a pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "experiment/requests/permutation.h"
#include "experiment/requests/request.h"
#include "experiment/requests/zipf.h"

namespace csdsim::experiment::workload {

enum class Placement : std::uint8_t { random, zipf, sequential };

/// Times between the requests of an open loop.
struct Arrivals {
  SimTime mean;
  bool exponential = true;
};

struct SyntheticConfig {
  Placement placement = Placement::random;
  double reads = 1;  ///< share of reads in what is no TRIM
  double trims = 0;
  double zipf_exponent = 0.99;
  std::vector<Bytes> sizes;            ///< at least one, whole blocks
  std::vector<std::uint32_t> weights;  ///< of sizes; empty: all the same
  std::optional<Bytes> alignment;      ///< whole blocks; unset: of the request's own size, or none if sequential
  Bytes block;                         ///< a logical block
  Bytes working_set;                   ///< addresses below it
  std::uint32_t streams = 1;           ///< each in its own part of the working set
  std::optional<Arrivals> arrivals;    ///< open loops
  std::uint64_t seed = 1;
};

/// Never runs out. In an open loop requests are of the streams in turn, whatever stream is asked for.
class SyntheticRequests final : public RequestSource {
 public:
  /// UserError when a stream's part of the working set has no place for one of the sizes.
  explicit SyntheticRequests(const SyntheticConfig& config);

  std::optional<Request> next(std::uint32_t stream) override;
  Bytes footprint() const override { return {part_ * config_.streams}; }

 private:
  /// Where requests of one size may start: `count` places from `first` on, `step` bytes apart.
  struct Places {
    std::uint64_t first = 0;
    std::uint64_t step = 0;
    std::uint64_t count = 0;
    std::optional<ZipfSampler> zipf;
    std::optional<Permutation> scatter;
  };
  struct Stream {
    Rng rng;
    std::uint64_t begin = 0;
    std::uint64_t position = 0;  ///< sequential: where the last request ended
    std::vector<Places> places;  ///< by size
  };

  Places places_of(std::uint64_t begin, Bytes size, std::uint64_t seed) const;
  std::size_t draw_size();
  std::uint64_t draw_offset(Stream& stream, std::size_t size) const;

  SyntheticConfig config_;
  std::uint64_t part_ = 0;  ///< bytes of a stream
  std::vector<std::uint64_t> cumulative_weights_;
  std::vector<Stream> streams_;
  Rng size_rng_;
  Rng trim_rng_;
  Rng arrival_rng_;
  std::uint64_t made_ = 0;
  SimTime clock_{};
};

}  // namespace csdsim::experiment::workload

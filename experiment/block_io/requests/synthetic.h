// Generates requests of a pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "experiment/block_io/requests/block_request.h"
#include "experiment/block_io/requests/permutation.h"
#include "experiment/block_io/requests/zipf.h"

namespace csdsim::experiment::workload {

enum class Placement : std::uint8_t { random, zipf, sequential };

/// Times between the requests of an open loop.
struct Arrivals {
  SimTime mean;
  bool exponential = true;
};

struct SyntheticConfig {
  Placement placement = Placement::random;
  double reads = 1;  ///< share of reads among reads and writes
  double trims = 0;  ///< share of TRIMs among all requests
  double zipf_exponent = 0.99;
  std::vector<Bytes> sizes;            ///< at least one, whole blocks
  std::vector<std::uint32_t> weights;  ///< weights of the sizes; empty: equal weights
  std::optional<Bytes> alignment;      ///< whole blocks; unset: the size of the request, or one block if sequential
  Bytes block;                         ///< size of a logical block
  Bytes working_set;                   ///< requests address offsets below this
  std::uint32_t streams = 1;           ///< each stream has a separate part of the working set
  std::optional<Arrivals> arrivals;    ///< open loops
  std::uint64_t seed = 1;
};

/// An endless source. In an open loop it serves the streams in turn and ignores the argument of next().
class SyntheticRequests final : public RequestSource {
 public:
  /// Throws UserError when the part of a stream cannot hold a request of one of the sizes.
  explicit SyntheticRequests(const SyntheticConfig& config);

  std::optional<BlockRequest> next(std::uint32_t stream) override;
  Bytes footprint() const override { return {part_ * config_.streams}; }

 private:
  /// Possible offsets of requests of one size: `count` offsets from `first` on, `step` bytes apart.
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
    std::uint64_t position = 0;  ///< sequential: end of the last request
    std::vector<Places> places;  ///< by size
  };

  Places places_of(std::uint64_t begin, Bytes size, std::uint64_t seed) const;
  std::size_t draw_size();
  std::uint64_t draw_offset(Stream& stream, std::size_t size) const;

  SyntheticConfig config_;
  std::uint64_t part_ = 0;  ///< bytes per stream
  std::vector<std::uint64_t> cumulative_weights_;
  std::vector<Stream> streams_;
  Rng size_rng_;
  Rng trim_rng_;
  Rng arrival_rng_;
  std::uint64_t made_ = 0;
  SimTime clock_{};
};

}  // namespace csdsim::experiment::workload

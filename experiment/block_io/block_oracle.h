// The contents that logical blocks may have while requests overlap and the power fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/units.h"
#include "experiment/block_io/requests/block_request.h"

namespace csdsim::experiment {

/// Knows the versions of each block that may come back: those that no durable one has replaced, and among them the
/// ones that a read may return. Each block of a write has content of its own. InternalError where a block holds
/// something else: another's bytes, a torn version, one older than the last durable one.
class BlockOracle {
 public:
  struct Config {
    Bytes block;
    Bytes unit;           ///< a trim leaves alone what it covers of one in part; a multiple of the block
    Bytes filled;         ///< the first bytes of the namespace were written before the first request
    bool cached = false;  ///< a complete write may be in the volatile cache
    bool trims_cached = false;
  };
  explicit BlockOracle(const Config& config) : config_(config) {}

  /// The content of a block that was filled before the first request.
  void fill(std::uint64_t block, std::span<std::byte> bytes) const { content(block, 0, bytes); }

  /// A request is submitted. Returns its number; for a write, `data` gets the bytes to write.
  std::uint64_t submit(workload::BlockRequest request, std::span<std::byte> data);
  /// It has completed; `data` is what a read has got.
  void complete(std::uint64_t number, std::span<const std::byte> data);
  /// The power has failed. Requests under way will complete later.
  void note_cut();
  /// Checks all blocks that were written or filled; `read` gets what the drive holds.
  void check_all(const std::function<void(std::uint64_t block, std::span<std::byte> bytes)>& read);

  std::uint64_t checked() const { return checked_; }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  /// Moments are counted in submissions and completions.
  struct Version {
    std::uint64_t serial = 0;
    bool zeros = false;
    bool cached = false;    ///< it may complete in the volatile cache
    bool doubtful = false;  ///< a cut has come since it completed: the drive may not have it any more
    std::uint64_t submitted = 0, completed = 0;
  };
  struct Block {
    std::vector<Version> versions;
    std::uint64_t cut = 0;  ///< the last cut that may have lost some of them; 0: none
  };
  struct Request {
    workload::BlockRequest request;
    std::uint64_t submitted = 0, cuts = 0;
  };

  Block& at(std::uint64_t block);
  void content(std::uint64_t block, std::uint64_t serial, std::span<std::byte> bytes) const;
  bool holds(std::uint64_t block, const Version& version, std::span<const std::byte> bytes) const;
  void check(std::uint64_t block, std::span<const std::byte> bytes, std::uint64_t submitted);
  void replace(std::uint64_t block, std::uint64_t durable_before);
  template <class Each>
  void each_block(const workload::BlockRequest& request, Each each) const;

  Config config_;
  std::map<std::uint64_t, Block> blocks_;
  std::map<std::uint64_t, Request> under_way_;
  std::set<std::uint64_t> several_;     ///< blocks with more than one version
  std::multiset<std::uint64_t> reads_;  ///< when those under way were submitted
  std::uint64_t clock_ = 0, cuts_ = 0, checked_ = 0;
};

}  // namespace csdsim::experiment

// The pages of the block namespace that hold the records of a feed-forward command.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "nvme_if/spec/feed_forward_command.h"

namespace csdsim::csd_model {

/// One read of a page, for all rows that it serves.
struct RecordPage {
  std::uint64_t page = 0;   ///< logical page of the namespace
  std::uint64_t begin = 0;  ///< bytes [begin, end) of it are wanted
  std::uint64_t end = 0;
};

/// The reads of a command, in the order in which its neurons use them: up, gate, down of the first neuron, and so on. A
/// page is read once as long as it is the last page that the up rows, the gates or the down rows used; so records in
/// ascending order take each of their pages once.
class RecordPages {
 public:
  /// `runs` lie within the namespace. Pieces are kept only with `carried`.
  RecordPages(const nvme::FeedForward& command, std::span<const nvme::NeuronRun> runs, Bytes page_size, bool carried);

  const std::vector<RecordPage>& reads() const { return reads_; }
  /// [neuron]: reads that it and all before it need, counted from the first one.
  const std::vector<std::uint32_t>& needed() const { return needed_; }

  /// Copies the wanted bytes of read `index`, which start at its `begin`, into the rows.
  void scatter(std::uint32_t index, std::span<const std::byte> bytes, std::span<std::byte> rows) const;

 private:
  /// Bytes of a page that belong to a row, and where they go in [neuron][matrix][width] fp16.
  struct Piece {
    std::uint64_t in_page = 0;
    std::uint64_t size = 0;
    std::uint64_t to = 0;
  };

  void add_row(std::uint64_t address, std::size_t matrix, std::uint64_t to);

  std::uint64_t page_size_;
  std::uint64_t row_;
  bool carried_;
  std::vector<RecordPage> reads_;
  std::vector<std::uint32_t> needed_;
  std::vector<std::vector<Piece>> pieces_;                 ///< [read]
  std::array<std::optional<std::uint32_t>, 3> last_ = {};  ///< [matrix] read that its rows used last
};

}  // namespace csdsim::csd_model

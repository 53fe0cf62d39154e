#include "csd_model/firmware/record_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace csdsim::csd_model {

RecordPages::RecordPages(const nvme::FeedForward& command, std::span<const nvme::NeuronRun> runs, Bytes page_size,
                         bool carried)
    : page_size_(page_size.value), row_(command.row().value), carried_(carried) {
  needed_.reserve(command.neurons);
  std::uint64_t to = 0;
  for (const nvme::NeuronRun& run : runs)
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const std::uint64_t offset = i * run.stride;
      add_row(run.up + offset, 0, std::exchange(to, to + row_));
      if (command.gated()) add_row(run.gate + offset, 1, std::exchange(to, to + row_));
      add_row(run.down + offset, 2, std::exchange(to, to + row_));
      needed_.push_back(static_cast<std::uint32_t>(reads_.size()));
    }
}

void RecordPages::add_row(std::uint64_t address, std::size_t matrix, std::uint64_t to) {
  for (std::uint64_t done = 0; done < row_;) {
    const std::uint64_t page = (address + done) / page_size_;
    const std::uint64_t in_page = (address + done) % page_size_;
    const std::uint64_t size = std::min(page_size_ - in_page, row_ - done);
    auto index = static_cast<std::uint32_t>(reads_.size());
    for (const std::optional<std::uint32_t>& last : last_)
      if (last && reads_[*last].page == page) index = *last;
    if (index == reads_.size()) {
      reads_.push_back({page, in_page, in_page + size});
      if (carried_) pieces_.emplace_back();
    }
    RecordPage& read = reads_[index];
    read.begin = std::min(read.begin, in_page);
    read.end = std::max(read.end, in_page + size);
    last_[matrix] = index;
    if (carried_) pieces_[index].push_back({in_page, size, to + done});
    done += size;
  }
}

void RecordPages::scatter(std::uint32_t index, std::span<const std::byte> bytes, std::span<std::byte> rows) const {
  for (const Piece& piece : pieces_[index])
    std::memcpy(rows.data() + piece.to, bytes.data() + (piece.in_page - reads_[index].begin), piece.size);
}

}  // namespace csdsim::csd_model

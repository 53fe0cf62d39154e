#include "nfc/core/kv_filter.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/statistics.h"

namespace csdsim::nfc {

KvFilter::KvFilter(const FlashGeometry& geometry, FilterLocation location)
    : pages_per_channel_(geometry.pages_per_plane() * geometry.planes_per_channel()),
      location_(location),
      counts_(location == FilterLocation::none ? 0 : geometry.channels) {}

void KvFilter::plan(std::span<PageOp> ops, std::span<const std::uint32_t> wanted) {
  if (ops.size() != wanted.size()) throw InternalError("a filter needs to know what is wanted of each page");
  if (counts_.empty()) return;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    FilterCounts& counts = counts_[pages_per_channel_.quotient(ops[i].ppa.value)];
    ++counts.pages;
    counts.bytes_in += ops[i].channel_bytes;
    counts.bytes_out += wanted[i];
    if (location_ == FilterLocation::die) ops[i].channel_bytes = wanted[i];
  }
}

void KvFilter::pass(const std::byte* page, std::size_t row, const std::vector<bool>& mask,
                    std::vector<const std::byte*>& out) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    out.push_back(page + i * row);
    passed_bytes_ += row;
  }
}

void KvFilter::register_statistics(Statistics& s) const {
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    Statistics& channel = s.child_if_any(fmt::format("channel_{}", c));
    channel.counter("pages", counts_[c].pages, "pages", "Pages of attention that the filter was given.", skip_zero());
    channel.counter("bytes_in", counts_[c].bytes_in, "B", "Their bytes.", skip_zero());
    channel.counter("bytes_out", counts_[c].bytes_out, "B", "Bytes of the rows that it passed.", skip_zero());
  }
}

}  // namespace csdsim::nfc

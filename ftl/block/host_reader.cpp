#include "ftl/block/host_reader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace csdsim::ftl {

/// Appends the read of `count` bytes from `first` on of a page, if it was written.
[[gnu::always_inline]] inline IoStatus HostReader::plan_page(LogicalPage page, std::uint64_t first, std::uint64_t count,
                                                             Phase& ops) {
  const PhysicalPageAddress ppa = map_.lookup(page);
  if (!ppa.valid()) return plan_unmapped(page);
  ++flash_.stats.host_pages_read;
  PageOp& read = ops.emplace_back();
  const bool correctable = reader_.plan(page, ppa, OpClass::host, read);
  if (flash_.codeword != flash_.page_size) read.channel_bytes = reader_.read_bytes(first, count);
  return correctable ? IoStatus::ok : IoStatus::uncorrectable;
}

/// The read of a page that is not mapped: it was never written, or it is in DRAM only.
IoStatus HostReader::plan_unmapped(LogicalPage page) {
  const auto image = unwritten_.find(page);
  if (image != unwritten_.end()) return image->second.damaged ? IoStatus::uncorrectable : IoStatus::ok;
  ++flash_.stats.unwritten_reads;
  return IoStatus::ok;
}

IoStatus HostReader::read(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  const LogicalPage page{by_page_.quotient(offset.value)};
  const std::uint64_t in_page = offset.value - page.value * flash_.page_size.value;
  // Most reads are of one page. One of length 0 takes the other way.
  const bool one_page = length.value - 1 < flash_.page_size.value - in_page;
  if (flash_.store.carried()) return read_pages(offset, length, out, ops);
  const bool whole = flash_.faults == nullptr && flash_.codeword == flash_.page_size && length.value > 0;
  if (!one_page) return whole ? plan_runs(page, in_page, length, ops) : read_pages(offset, length, out, ops);
  return plan_page(page, in_page, length.value, ops);
}

/// Pages without errors or bytes, which the flash moves whole: those that follow each other in the flash are looked up
/// together.
IoStatus HostReader::plan_runs(LogicalPage page, std::uint64_t in_page, Bytes length, Phase& ops) {
  const std::uint64_t size = flash_.page_size.value;
  const std::size_t before = ops.size();
  IoStatus status = IoStatus::ok;
  const std::uint64_t pages = by_page_.quotient(in_page + length.value + size - 1);
  for (std::uint64_t left = pages; left > 0;) {
    const PageMap::Run run = map_.find_run(page, static_cast<std::uint32_t>(left));
    if (run.first.valid())
      for (std::uint32_t i = 0; i < run.count; ++i)
        ops.push_back(flash_.op({run.first.value + i}, PageOpKind::read, OpClass::host));
    else if (plan_unmapped(page) != IoStatus::ok)
      status = IoStatus::uncorrectable;
    page.value += run.count;
    left -= run.count;
  }
  flash_.stats.host_pages_read += ops.size() - before;
  return status;
}

IoStatus HostReader::read_pages(Bytes offset, Bytes length, std::span<std::byte> out, Phase& ops) {
  const bool carried = flash_.store.carried();
  if (carried && out.size() != length.value) throw InternalError("read: buffer and length disagree");
  IoStatus status = IoStatus::ok;
  LogicalPage page{by_page_.quotient(offset.value)};
  std::uint64_t in_page = offset.value - page.value * flash_.page_size.value;
  for (std::uint64_t done = 0; done < length.value; ++page.value, in_page = 0) {
    const std::uint64_t count = std::min(flash_.page_size.value - in_page, length.value - done);
    if (plan_page(page, in_page, count, ops) != IoStatus::ok) status = IoStatus::uncorrectable;
    if (carried) {
      const PhysicalPageAddress ppa = map_.lookup(page);
      std::byte* to = out.data() + done;
      if (ppa.valid()) {
        std::memcpy(to, flash_.store.read_verified(ppa, host_tag(page), flash_.config.check).data() + in_page, count);
      } else if (const auto image = unwritten_.find(page); image != unwritten_.end()) {
        std::memcpy(to, image->second.bytes.data() + in_page, count);
      } else {
        std::memset(to, 0, count);
      }
    }
    done += count;
  }
  return status;
}

}  // namespace csdsim::ftl

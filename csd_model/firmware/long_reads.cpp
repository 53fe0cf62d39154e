#include "csd_model/firmware/long_reads.h"

#include <algorithm>
#include <utility>

namespace csdsim::csd_model {
namespace {

/// Whole packets: cutting the data adds none.
constexpr std::uint64_t kPiece = nvme::kSharedPiece.value;

}  // namespace

void LongReads::start(nvme::Command& command, nvme::Status planned, DramBuffer data, std::span<const PageOp> pages) {
  const std::uint64_t tag = reading_.take();
  Read& read = reading_[tag];
  read.command = &command;
  read.pages = static_cast<std::uint32_t>(std::max<std::size_t>(1, pages.size()));
  read.arrived = 0;
  const std::uint64_t all = command.io().data.value;
  read.step = Bytes{all % (read.pages * kPiece) == 0 ? all / read.pages : 0};
  read.sent = {};
  read.planned = planned;
  read.data = std::move(data);
  if (pages.empty()) return flash_done(tag, {});
  flash_.submit_each(pages, *this, tag, command.stages() != nullptr);
}

/// Where the data ends that the pages which have arrived bring.
inline Bytes LongReads::Read::end() const {
  if (step.value > 0) return step * arrived;
  const std::uint64_t all = command->io().data.value;
  return Bytes{arrived == pages ? all : all * arrived / pages / kPiece * kPiece};
}

/// One more page comes at `at`.
bool LongReads::flash_part(std::uint64_t tag, SimTime at) {
  if (carried_ || internal_link_.present() || port_.limited()) return false;
  Read& read = reading_[tag];
  ++read.arrived;
  if (!read.planned.ok()) return true;
  const Bytes end = read.end();
  if (end != read.sent && !read.command->send_part_ahead(read.sent, end - read.sent, at)) {
    --read.arrived;
    return false;
  }
  read.sent = end;
  return true;
}

/// One more page has come.
void LongReads::flash_done(std::uint64_t tag, const FlashStages& stages) {
  Read& read = reading_[tag];
  nvme::Command& command = *read.command;
  const bool last = ++read.arrived == read.pages;
  if (last) mark_read(command, stages);
  if (!read.planned.ok()) {
    if (!last) return;
    const nvme::Status failed = read.planned;
    end(tag);
    return command.complete(failed);
  }
  const Bytes end = read.end();
  const Bytes begin = std::exchange(read.sent, end), length = end - begin;
  if (length.value == 0) return;
  if (!internal_link_.present()) return send(tag, begin, length);
  internal_link_.move(nvme::LinkDirection::to_host, length, [=, this] { send(tag, begin, length); });
}

/// Pieces come here in their order; the last one takes the completion along.
void LongReads::send(std::uint64_t tag, Bytes begin, Bytes length) {
  Read& read = reading_[tag];
  nvme::Command& command = *read.command;
  const bool last = begin + length == command.io().data;
  port_.stream(DramTraffic::host_data, length);
  if (!carried_) {
    if (!last) return command.send_part_timing(begin, length);
    end(tag);
    return command.complete_with_data_timing(begin, length);
  }
  const std::span<const std::byte> bytes = read.data.bytes().subspan(begin.value, length.value);
  if (!last) return command.send_part(begin, bytes);
  command.complete_with_data(begin, bytes, [this, tag](nvme::Status) { end(tag); });
}

void LongReads::end(std::uint64_t tag) {
  reading_[tag].data = DramBuffer{};
  reading_.give_back(tag);
}

}  // namespace csdsim::csd_model

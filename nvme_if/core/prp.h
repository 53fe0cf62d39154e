// Physical Region Pages: the walk from PRP1, PRP2 and PRP lists to segments, and back (NVMe Base
// Specification 1.4, 4.3).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nvme_if/spec/command.h"

namespace csdsim::nvme {

/// The state of the walk of a data pointer.
enum class WalkState : std::uint8_t { done, needs_list, failed };

/// Turns the PRPs of one command into segments. It asks for list pages and never reads memory itself:
///
///   PrpWalker walk; walk.start(prp1, prp2, length, page_size);
///   while (walk.state() == WalkState::needs_list) { read walk.list() from memory; walk.feed(entries); }
///   if (walk.state() == WalkState::failed) complete(walk.error()); else use walk.segments();
///
/// Contiguous pages become one segment. prp_offset_invalid: PRP1 not dword aligned, PRP2 or a list entry with an
/// offset, a first list pointer that is not qword aligned, a chained list pointer that is not page aligned.
/// invalid_field: a zero entry.
class PrpWalker {
 public:
  /// `page_size`: power of two. A length of 0 is done at once, without segments. Reuses its memory from walk to walk.
  void start(std::uint64_t prp1, std::uint64_t prp2, Bytes length, Bytes page_size);

  WalkState state() const { return state_; }
  /// Valid in state needs_list: where the next list entries are; a multiple of 8 bytes that never crosses a page.
  Segment list() const { return list_; }
  /// Entries of the requested list piece, all of them.
  void feed(std::span<const std::uint64_t> entries);
  /// Ends the walk because a list page could not be read: the state becomes failed, with error `s`.
  void fail(Status s);

  /// Valid in state failed: the reason.
  Status error() const { return error_; }
  /// Valid in state done: the segments, whose lengths add up to the length.
  std::span<const Segment> segments() const {
    return one_page_ ? std::span<const Segment>(&page_, 1) : std::span<const Segment>(segments_);
  }

 private:
  void walk(std::uint64_t prp1, std::uint64_t prp2, Bytes length, Bytes page_size);
  void append(std::uint64_t address, std::uint64_t length);
  void request_list(std::uint64_t pointer);

  WalkState state_ = WalkState::done;
  bool one_page_ = false;  ///< `page_` is the whole buffer
  Status error_;
  Segment page_;
  std::uint64_t page_size_ = 4096;
  std::uint64_t remaining_ = 0;  ///< bytes without a segment yet
  bool chained_ = false;         ///< the last entry of the requested piece points to the next list
  Segment list_;
  std::vector<Segment> segments_;
};

inline void PrpWalker::start(std::uint64_t prp1, std::uint64_t prp2, Bytes length, Bytes page_size) {
  const std::uint64_t room = page_size.value - (prp1 & (page_size.value - 1));
  // Length 0 has no segment.
  one_page_ = prp1 != 0 && prp1 % 4 == 0 && length.value - 1 < room;
  page_ = {PhysicalAddress{prp1}, length};
  error_ = {};
  state_ = WalkState::done;
  if (!one_page_) walk(prp1, prp2, length, page_size);
}

/// The data pointer field (DPTR) of a command: PRP1 and PRP2, or the descriptor SGL1.
struct DataPointerField {
  std::uint64_t prp1 = 0;
  std::uint64_t prp2 = 0;
};

/// Builds the PRPs for `segments`: the host's side. All but the first must start on a page boundary, all but the last
/// must end on one, the first on a dword: UserError otherwise. `list_page(i)` gives the physical address of the i-th
/// list page and `write_entry(address, value)` stores one entry.
DataPointerField build_prps(std::span<const Segment> segments, Bytes page_size,
                            const std::function<PhysicalAddress(std::uint32_t)>& list_page,
                            const std::function<void(PhysicalAddress, std::uint64_t)>& write_entry);

}  // namespace csdsim::nvme

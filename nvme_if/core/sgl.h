// Scatter gather lists: the walk from the SGL1 descriptor to segments, and back
// (NVMe Base Specification 1.4, 4.4).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nvme_if/core/prp.h"
#include "nvme_if/spec/sgl.h"
#include "nvme_if/spec/status.h"
#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// The form in which commands of the host point at their data: physical region pages, or scatter gather lists.
enum class DataPointer : std::uint8_t { prp, sgl };

/// Turns the SGL of one command into segments. It asks for pieces of SGL segments and never reads memory itself, as
/// PrpWalker. Adjacent data blocks become one segment, those of length 0 none.
///
/// Errors, in the order in which descriptors come: sgl_type_invalid for what is neither data block nor segment,
/// sgl_subtype_invalid for anything but an address, sgl_granularity_invalid for a data block that is not in dwords,
/// sgl_segment_invalid for a segment that is empty, no multiple of 16 bytes or not on a qword, for one that follows a
/// last segment, and for a segment without a next one that is not the last, sgl_number_invalid for a segment descriptor
/// in front of the end of its segment, and for more than kMostDescriptors, sgl_length_invalid if the data blocks do not
/// add up to the length.
class SglWalker {
 public:
  static constexpr std::uint32_t kMostDescriptors = 1u << 18;  ///< four for each page of the largest transfer
  static constexpr std::uint64_t kPiece = 4096;                ///< bytes of a segment that are asked for at a time

  /// A length of 0 is done at once, whatever the descriptor.
  void start(const SglDescriptor& first, Bytes length);

  WalkState state() const { return state_; }
  /// Valid in state needs_list: where the next descriptors are; a multiple of 16 bytes.
  Segment list() const { return list_; }
  /// The bytes of the piece that was asked for, as qwords.
  void feed(std::span<const std::uint64_t> words);
  /// Ends the walk because a piece could not be read.
  void fail(Status s);

  Status error() const { return error_; }
  /// Valid in state done: the segments, whose lengths add up to the length.
  std::span<const Segment> segments() const { return segments_; }

 private:
  bool take_data(const SglDescriptor& d);
  void enter_segment(const SglDescriptor& d);
  void request_piece();
  void finish();

  WalkState state_ = WalkState::done;
  Status error_;
  std::uint64_t remaining_ = 0;    ///< bytes without a data block yet
  std::uint64_t at_ = 0;           ///< address of the descriptor that is asked for next
  std::uint64_t left_ = 0;         ///< bytes of the segment from there on
  std::uint32_t descriptors_ = 0;  ///< taken so far
  bool last_ = false;              ///< no segment may follow this one
  Segment list_;
  std::vector<Segment> segments_;
};

/// Builds the SGL of a buffer and returns SGL1: the host's side. Segments must be in dwords, and not empty: UserError
/// otherwise. A buffer of one piece takes no memory; others take list pages of 4 KiB, each a segment of up to 256
/// descriptors. `list_page(i)` gives the physical address of the i-th page, `write_word(address, value)` stores a
/// qword.
SglDescriptor build_sgl(std::span<const Segment> segments,
                        const std::function<PhysicalAddress(std::uint32_t)>& list_page,
                        const std::function<void(PhysicalAddress, std::uint64_t)>& write_word);

}  // namespace csdsim::nvme

// Word lines that are not full: the rest of them is programmed without data.
#pragma once

#include <cstdint>
#include <vector>

#include "ftl/block/page_appender.h"

namespace csdsim::ftl {

/// With BlockFtlConfig::volatile_lines it also knows which blocks hold older versions of the pages that are in open
/// word lines of the host. Collection has its own word lines; it fills them when it erases the block that their pages
/// came from.
class LineFiller {
 public:
  LineFiller(BlockFlash& flash, PageAppender& appender);

  /// Call it when the host's page at `to` has replaced the one at `old`, if there was one.
  void note_replaced(PhysicalPageAddress to, PhysicalPageAddress old);

  /// Programs the rest of the word line that `stream` has open in `plane`, if one is begun. Programs are appended to
  /// `ops`, unless that is null. Returns the number of empty units.
  std::uint32_t fill(PlaneId plane, Stream stream, OpClass op_class, Phase* ops);

  /// Fills the word lines without whose pages an erase of `block` would lose data together with the power: those that
  /// its valid pages have moved to, and those of newer versions of its pages. No operations unless the configuration
  /// has volatile_lines.
  void fill_before_erase(BlockId block, std::vector<Phase>* phases);

 private:
  /// The last word line that the host began in a plane with data of a handle, and the blocks whose pages its units
  /// replace.
  struct Replaced {
    std::uint64_t line = 0;
    std::vector<BlockId> blocks;
  };

  bool tracks() const { return flash_.config.volatile_lines && flash_.config.units_per_program > 1; }

  BlockFlash& flash_;
  PageAppender& appender_;
  std::vector<Replaced> replaced_;  ///< by plane and handle
  std::vector<Stream> moved_to_;    ///< where collection and wear levelling put pages
};

}  // namespace csdsim::ftl

// The interface of KV mapping policies: what a policy decides, what the FTL does for it.
//
// A policy answers four questions about the KV cache of a sequence: what a page holds (layout), where it goes (place,
// move), when it is written (groups_to_write), and what finding it again costs (lookups, table_bytes). The FTL does the
// rest for all policies alike: token counts, tails in DRAM, both address maps, page operations, garbage collection,
// failed blocks, DRAM accounting, sharing, recovery. docs/mapping_policies.md shows how to write one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/error.h"
#include "base/units.h"
#include "ftl/kv/kv_layout.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

/// A policy broke a rule of this interface. The message names the policy, the page and the address.
class PolicyError : public UserError {
 public:
  using UserError::UserError;
};

/// A series of open erase blocks, at most one per plane, that fill page by page. Pages given to one append point share
/// blocks with one another and with no others, as long as there is room. What a point means is the policy's choice: one
/// for all (the default), one per sequence, one per layer.
using AppendPoint = StrongId<struct AppendPointTag>;
/// All pages of all sequences, unless a policy says otherwise.
inline constexpr AppendPoint kSharedPoint{0};
/// Moved pages, which live longer than new ones.
inline constexpr AppendPoint kMovedPoint{1};
/// The first number that a policy may use as it likes; those above belong to it as well.
inline constexpr AppendPoint kFirstOwnPoint{2};

/// What a policy may see of the flash, and the way to its pages.
class PageAllocator {
 public:
  virtual const FlashGeometry& geometry() const = 0;

  /// The next page of `point` in plane `wanted`. Where that plane has none left, the page comes from elsewhere: from
  /// another plane of the channel, from another channel, at last from another append point's open block. A page that
  /// fails to program is skipped. Invalid only when the drive has become full of failed blocks. Throws PolicyError for
  /// a plane that does not exist.
  virtual PhysicalPageAddress take(PlaneId wanted, AppendPoint point = kSharedPoint) = 0;

  /// Nothing more goes to the open blocks of `point`; its number may be used again.
  virtual void close(AppendPoint point) = 0;

  /// Pages of `plane` that can still be written without an erase, those of other append points included.
  virtual std::uint64_t free_pages(PlaneId plane) const = 0;
  /// Pages read for attention from `channel`, older ones counting less and less (halved every 1,024 reads per channel).
  virtual double read_load(ChannelId channel) const = 0;
  /// Valid KV pages of `channel`.
  virtual std::uint64_t valid_pages(ChannelId channel) const = 0;

 protected:
  ~PageAllocator() = default;
};

/// What the pages of a sequence look like, decided when it is created.
struct KvLayoutOptions {
  std::uint32_t embedding_group = 0;  ///< m, components per embedding page; 0: the policy chooses
  bool adaptive = false;              ///< m halves as the context grows (KvLayout::doublings)
};

struct KvSequenceInfo {
  SequenceId id;
  const KvShape& shape;
  const KvLayout& layout;
};

/// A mapping policy. One object serves a drive; calls come one at a time and must be deterministic: the same calls in
/// the same order get the same answers. Exceptions of a policy end the run with their message.
///
/// Every page passes through place() once, and from then on through move() any number of times, until its sequence is
/// freed, a fuller version of it was written (tail policy `partial_program`), or power fails.
class KvMappingPolicy {
 public:
  virtual ~KvMappingPolicy() = default;

  /// As registered; appears in results and errors.
  virtual std::string_view name() const = 0;

  /// What a page holds. The FTL checks the answer (KvLayout::validate). Throws UserError, with the numbers, for a shape
  /// that does not fit the page size. The default: KvLayout::make, with the windows that `options` ask for.
  virtual KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const;

  /// Where a new page goes: an address that `pages.take` has returned during this call, taken for this page only.
  virtual PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) = 0;

  /// The same for a valid page that garbage collection moves out of `from`. The default stays in the plane.
  virtual PhysicalPageAddress move(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress from,
                                   PageAllocator& pages);

  /// How many of the full token groups that are still in DRAM are written now, oldest first: at most
  /// tokens / n - written_groups. Asked after every append to the heads of a page; `tokens` is the least of theirs.
  /// What is not written stays in the group buffer and counts against controller DRAM. The default writes all.
  virtual std::uint32_t groups_to_write(const KvSequenceInfo& sequence, std::uint32_t tokens,
                                        std::uint32_t written_groups) const;

  /// Table entries that the firmware looks up to find `pages` pages of one head. The default: one per page.
  virtual std::uint64_t lookups(const KvSequenceInfo& sequence, std::uint64_t pages) const;

  /// Controller DRAM that finding `pages` pages of one head takes. The default: eight bytes per page.
  virtual Bytes table_bytes(const KvSequenceInfo& sequence, std::uint64_t pages) const;

  /// The sequence is gone and its pages with it: a good time to close append points.
  virtual void sequence_freed(const KvSequenceInfo& sequence, PageAllocator& pages);

  /// After a power loss, in a new object, once for every page that was found in flash: to rebuild what place() relies
  /// on. Open blocks were closed.
  virtual void page_restored(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress ppa);
};

/// A policy that chooses the plane of a page and leaves the rest to the defaults.
class KvPlanePolicy : public KvMappingPolicy {
 public:
  virtual PlaneId plane(const KvPageId& page, const KvSequenceInfo& sequence) = 0;
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override {
    return pages.take(plane(page, sequence));
  }
};

/// "sequence 3, layer 1, KV head 2, K of token group 5": how errors name a page.
std::string to_string(const KvPageId& page);

}  // namespace csdsim::ftl

// The two address maps of one KV head: (kind, gt) -> page and (w, ge) -> page. Eight bytes per entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "ftl/kv/kv_layout.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

/// A physical page and its two states.
class KvMapEntry {
 public:
  KvMapEntry() = default;
  KvMapEntry(PhysicalPageAddress ppa, bool awaits_read_back)
      : bits_(ppa.value | kInDram | (awaits_read_back ? kAwaitsReadBack : 0)) {}
  /// The entry of a page that was found in flash.
  static KvMapEntry in_flash(PhysicalPageAddress ppa) {
    KvMapEntry entry;
    entry.bits_ = ppa.value;
    return entry;
  }

  /// The entry of a page that is yet to be found.
  static KvMapEntry nowhere() { return in_flash({kAddress}); }

  PhysicalPageAddress ppa() const { return {bits_ & kAddress}; }
  bool is_nowhere() const { return (bits_ & kAddress) == kAddress; }
  /// The program has not completed: reads are served from controller DRAM.
  bool in_dram() const { return (bits_ & kInDram) != 0; }
  /// Embedding pages: the keys of the window are still being read back from flash, so the page is not readable yet.
  bool awaits_read_back() const { return (bits_ & kAwaitsReadBack) != 0; }
  void flushed() { bits_ &= kAddress; }
  /// Fault injection: points elsewhere, states unchanged.
  void redirect(PhysicalPageAddress ppa) { bits_ = (bits_ & ~kAddress) | ppa.value; }

 private:
  static constexpr std::uint64_t kInDram = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kAwaitsReadBack = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kAddress = kAwaitsReadBack - 1;
  std::uint64_t bits_ = 0;
};
static_assert(sizeof(KvMapEntry) == 8);

/// Both maps of the heads that share token pages, for token groups from `first_group` and embedding positions from
/// `first_position` on (KvLayout::embedding_position).
class HeadMap {
 public:
  HeadMap() = default;
  HeadMap(std::uint32_t first_group, std::uint32_t first_position, std::uint32_t pages_per_group)
      : first_group_(first_group), first_position_(first_position), pages_per_group_(pages_per_group) {}

  void reserve(const KvLayout& layout, std::uint64_t tokens);

  /// The entries of all groups up to `end_group` and positions up to `end_position`, pointing at no page of any flash.
  void assign_nowhere(std::uint32_t end_group, std::uint32_t end_position);

  void push_token(KvMapEntry entry) { tokens_.push_back(entry); }
  void push_embedding(KvMapEntry entry) { embedding_.push_back(entry); }

  std::uint32_t first_group() const { return first_group_; }
  std::uint32_t first_position() const { return first_position_; }
  std::uint32_t end_group() const {
    return first_group_ + static_cast<std::uint32_t>(tokens_.size() / pages_per_group_);
  }
  std::uint32_t end_position() const { return first_position_ + static_cast<std::uint32_t>(embedding_.size()); }
  std::size_t pages() const { return tokens_.size() + embedding_.size(); }

  /// Token pages count [group][K, V], or [group] where K and V share one.
  KvMapEntry& token(KvKind kind, std::uint32_t group) { return tokens_[slot(kind, group)]; }
  const KvMapEntry& token(KvKind kind, std::uint32_t group) const { return tokens_[slot(kind, group)]; }
  KvMapEntry& token_at(std::uint32_t i) { return tokens_[i - first_group_ * pages_per_group_]; }
  KvMapEntry& embedding_at(std::uint32_t i) { return embedding_[i - first_position_]; }
  const KvMapEntry& embedding_at(std::uint32_t i) const { return embedding_[i - first_position_]; }

  std::span<const KvMapEntry> all_tokens() const { return tokens_; }
  std::span<const KvMapEntry> all_embedding() const { return embedding_; }

 private:
  std::size_t slot(KvKind kind, std::uint32_t group) const {
    const std::size_t at = std::size_t{group - first_group_} * pages_per_group_;
    return pages_per_group_ == 1 ? at : at + static_cast<std::size_t>(kind);
  }
  std::vector<KvMapEntry> tokens_;
  std::vector<KvMapEntry> embedding_;
  std::uint32_t first_group_ = 0;
  std::uint32_t first_position_ = 0;
  std::uint32_t pages_per_group_ = 2;
};

}  // namespace csdsim::ftl

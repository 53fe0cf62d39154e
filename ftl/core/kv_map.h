// The two address maps of one KV head: (kind, gt) -> page and (w, ge) -> page. Eight bytes an entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "ftl/core/kv_layout.h"
#include "ftl/core/kv_types.h"

namespace csdsim::ftl {

/// A physical page and its two states.
class KvMapEntry {
 public:
  KvMapEntry() = default;
  KvMapEntry(PhysicalPageAddress ppa, bool awaits_read_back)
      : bits_(ppa.value | kInDram | (awaits_read_back ? kAwaitsReadBack : 0)) {}

  PhysicalPageAddress ppa() const { return {bits_ & kAddress}; }
  /// The program has not completed: reads are served from controller DRAM.
  bool in_dram() const { return (bits_ & kInDram) != 0; }
  /// Embedding pages: the keys of the window are still on their way back from flash; not readable in this layout yet.
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

/// Both maps of one (layer, sequence, head).
class HeadMap {
 public:
  static constexpr Bytes kEntryBytes{sizeof(KvMapEntry)};

  void reserve(const KvLayout& layout, std::uint64_t tokens);

  /// Appends the entries of the next token group.
  void push_group(KvMapEntry key, KvMapEntry value);
  /// Appends the entry of the next embedding page: ge counts up within a window.
  void push_embedding(KvMapEntry entry) { embedding_.push_back(entry); }

  std::uint32_t groups() const { return static_cast<std::uint32_t>(tokens_.size() / 2); }
  std::uint32_t windows(const KvLayout& layout) const {
    return static_cast<std::uint32_t>(embedding_.size() / layout.embedding_pages());
  }

  KvMapEntry& token(KvKind kind, std::uint32_t group) { return tokens_[slot(kind, group)]; }
  const KvMapEntry& token(KvKind kind, std::uint32_t group) const { return tokens_[slot(kind, group)]; }
  KvMapEntry& embedding(const KvLayout& layout, std::uint32_t window, std::uint32_t ge) {
    return embedding_[std::size_t{window} * layout.embedding_pages() + ge];
  }
  const KvMapEntry& embedding(const KvLayout& layout, std::uint32_t window, std::uint32_t ge) const {
    return embedding_[std::size_t{window} * layout.embedding_pages() + ge];
  }

  /// By position: [group][K, V] and [window][ge].
  KvMapEntry& token_at(std::uint32_t i) { return tokens_[i]; }
  KvMapEntry& embedding_at(std::uint32_t i) { return embedding_[i]; }

  std::span<const KvMapEntry> all_tokens() const { return tokens_; }
  std::span<const KvMapEntry> all_embedding() const { return embedding_; }

 private:
  static std::size_t slot(KvKind kind, std::uint32_t group) {
    return std::size_t{group} * 2 + static_cast<std::size_t>(kind);
  }
  std::vector<KvMapEntry> tokens_;     ///< [group][K, V]
  std::vector<KvMapEntry> embedding_;  ///< [window][ge]
};

}  // namespace csdsim::ftl

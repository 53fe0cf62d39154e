// The sequences that exist, by id, and what is known of their heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

class SequenceTable {
 public:
  /// Null if there is none, or if it was freed.
  KvSequence* find(SequenceId id);
  const KvSequence* find(SequenceId id) const;
  /// A freed sequence that is still pinned stays readable for whoever pins it. Throws InternalError if there is none.
  KvSequence& at(SequenceId id);
  const KvSequence& at(SequenceId id) const;
  bool contains(SequenceId id) const { return sequences_.contains(id); }
  /// Whether a new sequence may have this id: ok, bad_sequence (in use), busy (freed, but still pinned).
  KvStatus check_unused(SequenceId id) const;
  /// ok, bad_sequence, bad_layer, bad_head.
  KvStatus check(const HeadKey& key) const;

  void add(KvSequence sequence);
  void remove(SequenceId id) { sequences_.erase(id); }
  auto begin() { return sequences_.begin(); }
  auto begin() const { return sequences_.begin(); }
  auto end() { return sequences_.end(); }
  auto end() const { return sequences_.end(); }

  /// Throws InternalError for a head that does not exist; one without tokens is empty.
  const KvHeadState& head(const HeadKey& key) const;
  const KvTile& tile(const HeadKey& key) const;
  const KvLayout& layout(SequenceId id) const { return at(id).layout; }

  std::uint32_t tokens(const HeadKey& key) const { return head(key).tokens; }
  /// The next four are described in kv_ftl.h.
  std::uint32_t flushed_tokens(const HeadKey& key) const;
  std::uint32_t transposed_tokens(const HeadKey& key) const;
  std::uint32_t transposed_windows(const HeadKey& key) const;
  std::size_t superseded_pages() const;

  /// Numbers of map segments: every sequence, and both sides of a fork, write under a number of their own.
  std::uint32_t new_segment_number() { return next_segment_++; }
  std::uint32_t segment_numbers() const { return next_segment_; }
  void restore_segment_numbers(std::uint32_t next) { next_segment_ = next; }

 private:
  std::map<SequenceId, KvSequence> sequences_;
  std::uint32_t next_segment_ = 0;
};

}  // namespace csdsim::ftl

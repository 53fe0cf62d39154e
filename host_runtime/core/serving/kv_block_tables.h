// Block tables of running sequences: which blocks of the GPU's KV pool hold their tokens (PagedAttention).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "host_runtime/core/serving/kv_block_slots.h"

namespace csdsim::host {

/// Sequences share whole blocks with equal prefixes, and forks share all. A block that is shared and not full is copied
/// before a sequence appends to it. Blocks of sequences that have ended stay as long as there is room, for those that
/// come with the same prefix.
class KvBlockTables {
 public:
  /// A block to be copied before the appended tokens are written.
  struct Copy {
    KvBlockSlot from, to;
    bool operator==(const Copy&) const = default;
  };
  using Copies = std::vector<Copy>;

  /// Throws UserError for a block of 0 tokens.
  KvBlockTables(std::uint64_t blocks, std::uint32_t block_tokens, std::unique_ptr<EvictionPolicy> eviction);

  /// Begins a sequence with a prompt. Returns how many of its tokens stand in blocks that were there, a multiple of the
  /// block; or nothing, having changed nothing, without room for the others. Throws InternalError if the sequence
  /// exists.
  std::optional<std::uint64_t> create(SequenceId sequence, std::span<const std::uint32_t> tokens,
                                      std::uint64_t salt = 0);
  /// Appends tokens. Returns the copies to be made first; or nothing, having changed nothing, without room.
  std::optional<Copies> append(SequenceId sequence, std::span<const std::uint32_t> tokens);
  /// Begins a sequence that continues another one. Takes no room.
  void fork(SequenceId parent, SequenceId child);
  /// Ends a sequence. Blocks that a transfer holds stay until it has released them, so that a transfer into the blocks
  /// of a preempted sequence never writes into those of another one.
  void free(SequenceId sequence);

  /// A transfer reads or writes these blocks.
  void hold(std::span<const KvBlockSlot> slots);
  void release(std::span<const KvBlockSlot> slots);

  std::span<const KvBlockSlot> table(SequenceId sequence) const { return at(sequence).slots; }
  /// The ids of the whole blocks.
  std::span<const KvBlockId> ids(SequenceId sequence) const { return at(sequence).ids; }
  std::uint64_t tokens(SequenceId sequence) const;
  /// How many sequences and transfers hold a block.
  std::uint32_t holds(KvBlockSlot slot) const { return slots_.holds(slot); }
  std::uint64_t free_blocks() const { return *slots_.capacity() - slots_.taken() + slots_.evictable(); }

 private:
  struct Sequence {
    std::vector<KvBlockSlot> slots;
    std::vector<KvBlockId> ids;
    std::vector<std::uint32_t> tail;  ///< tokens behind the last whole block
    KvBlockId root;
  };

  const Sequence& at(SequenceId sequence) const;
  void extend(Sequence& sequence, std::span<const std::uint32_t> tokens);

  KvBlockSlots slots_;
  std::uint32_t block_tokens_;
  std::map<SequenceId, Sequence> sequences_;
};

}  // namespace csdsim::host

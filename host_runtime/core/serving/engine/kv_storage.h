// The layout of a tier's blocks on its drives.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "host_runtime/core/serving/engine/kv_transport.h"
#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

/// What files cost beside the blocks in them.
struct FileUse {
  std::uint64_t created = 0, deleted = 0;  ///< files
  Bytes metadata_read;
  Bytes journal_written, metadata_written;  ///< to the journal, and to their places
  Bytes discarded;

  Bytes written() const { return journal_written + metadata_written; }
  FileUse& operator+=(const FileUse& other) {
    created += other.created;
    deleted += other.deleted;
    metadata_read += other.metadata_read;
    journal_written += other.journal_written;
    metadata_written += other.metadata_written;
    discarded += other.discarded;
    return *this;
  }
};

/// Bytes of a block: its part `first`, and so many.
struct KvParts {
  std::uint32_t first = 0, count = 1;
};

/// Reads and writes blocks by their slots. Slots take the drives in turn. Calls back as KvTransport does.
class KvStorage {
 public:
  virtual ~KvStorage() = default;

  virtual void read(KvBlockSlot slot, KvParts parts, Place to, std::span<std::byte> bytes,
                    KvTransport::ReadDone done) = 0;
  /// Writes a whole block in place of the one that the slot had.
  virtual void write(KvBlockSlot slot, Place from, std::span<const std::byte> bytes, KvTransport::Done done) = 0;
  /// Whether the drives have all that they will get, unless more is written.
  virtual bool settled() const { return true; }
  /// Writes what is held back, and calls back when that has ended.
  virtual void sync(KvTransport::Done done) { done(); }
  virtual FileUse files() const { return {}; }
};

/// A slot is a place in a range of the drive that begins at address 0; a new block overwrites the old one.
class KvRange final : public KvStorage {
 public:
  KvRange(KvTransport& transport, std::uint32_t drives, std::uint32_t parts, Bytes part)
      : transport_(transport), drives_(drives), parts_(parts), part_(part) {}

  void read(KvBlockSlot slot, KvParts parts, Place to, std::span<std::byte> bytes,
            KvTransport::ReadDone done) override {
    transport_.read(range(slot, parts), to, bytes, std::move(done));
  }
  void write(KvBlockSlot slot, Place from, std::span<const std::byte> bytes, KvTransport::Done done) override {
    transport_.write(range(slot, {0, parts_}), from, bytes, std::move(done));
  }

 private:
  DriveRange range(KvBlockSlot slot, KvParts parts) const {
    return {.drive = DriveIndex{slot % drives_},
            .offset = part_ * parts_ * (slot / drives_) + part_ * parts.first,
            .size = part_ * parts.count};
  }

  KvTransport& transport_;
  std::uint32_t drives_, parts_;
  Bytes part_;
};

}  // namespace csdsim::host

// The bytes in the flash. Programs write them, reads return them, and an out-of-band tag on every page says whose they
// are, so that a wrong mapping shows up as a wrong answer and as a counted error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"

namespace csdsim::ftl {

/// `timing` keeps no bytes at all: the same state changes and page operations, without data.
enum class DataMode : std::uint8_t { timing, carried, wear };

/// What a page holds; the FTL that owns it follows from that.
enum class PageKind : std::uint8_t {
  host,
  token_k,
  token_v,
  embedding,
  token_kv  ///< K and V of the same tokens
};

/// Out-of-band metadata of a page: the logical key it was written under.
struct OobTag {
  PageKind kind = PageKind::host;
  LayerId layer;        ///< KV pages only
  KvHead head;          ///< KV pages only
  SequenceId sequence;  ///< KV pages only
  std::uint64_t index =
      0;  ///< host: logical page; token pages: token group; embedding: KvLayout::embedding_position + group
  std::uint32_t segment = 0;  ///< KV pages only: number of the map segment that the page was written for
  /// Embedding pages of a window that was not full: its tokens that are in them; 0 for all others. With it, pages with
  /// equal tags hold equal bytes.
  std::uint32_t partial_tokens = 0;
  bool operator==(const OobTag&) const = default;
};

std::string to_string(const OobTag& tag);

/// The out-of-band metadata of a page, as a scan after a power loss finds it.
struct OobRecord {
  OobTag tag;
  std::uint64_t stamp = 0;  ///< programs of the whole drive up to and with this one; a copy() has that of its source
  bool damaged = false;     ///< a copy of what could not be corrected
};

/// What a power loss did to the flash. Only operations that were in progress, or had not begun although the state says
/// that they have happened, are listed.
struct PowerLoss {
  std::vector<PhysicalPageAddress> torn;          ///< their programs had begun and not ended
  std::vector<PhysicalPageAddress> unprogrammed;  ///< their programs had not begun
  std::vector<BlockId> half_erased;               ///< their erases had begun and not ended
};

/// What a verifying read compares: the logical key only (cheap), or the key and the CRC-32 of all bytes.
enum class PageCheck : std::uint8_t { key, key_and_crc };

/// One mismatch that a verifying read found.
struct IntegrityError {
  enum class What : std::uint8_t { not_written, torn, wrong_key, wrong_crc };
  What what = What::not_written;
  PhysicalPageAddress ppa;
  OobTag expected;
  OobTag found;
  std::uint32_t expected_crc = 0;
  std::uint32_t found_crc = 0;
};

std::string to_string(const IntegrityError& error);

/// Page bytes and their out-of-band metadata, allocated per erase block when the block is first programmed.
class BackingStore {
 public:
  BackingStore(const FlashGeometry& geometry, DataMode mode);
  ~BackingStore();
  BackingStore(const BackingStore&) = delete;
  BackingStore& operator=(const BackingStore&) = delete;

  const FlashGeometry& geometry() const { return geometry_; }
  DataMode mode() const { return mode_; }
  bool carried() const { return mode_ == DataMode::carried; }

  /// Programs a page: `data` is exactly one page. Throws InternalError if the page is not erased (NAND cannot
  /// overwrite), if the address is outside the array or if the size is wrong. Does nothing in timing mode.
  void write(PhysicalPageAddress ppa, std::span<const std::byte> data, const OobTag& tag);

  /// Programs what is moved from page `from`. Of host pages, equal tags and stamps mean equal bytes. `damaged`: the
  /// bytes could not be corrected. Otherwise as write().
  void copy(PhysicalPageAddress from, PhysicalPageAddress to, std::span<const std::byte> data, const OobTag& tag,
            bool damaged);

  /// Replaces what a page holds whose program has not begun: the same as write(), and the page was written before.
  void replace(PhysicalPageAddress ppa, std::span<const std::byte> data, const OobTag& tag);

  /// The bytes of a page; an erased page reads as all ones. Valid until the block is erased. Carried mode only.
  std::span<const std::byte> read(PhysicalPageAddress ppa) const;

  /// Reads and compares with what should be there. A mismatch is counted and kept (the first kMaxKeptErrors of them);
  /// the bytes are returned all the same, as a drive without this check would.
  std::span<const std::byte> read_verified(PhysicalPageAddress ppa, const OobTag& expected, PageCheck check);

  /// Erases a block; its pages read as all ones again.
  void erase(BlockId block);

  /// From now on, an erase is planned before it is run. The content of the block is kept until finish_erase(); if the
  /// power fails before that, the block has this content again.
  void keep_until_erased() { keeps_erased_ = true; }
  /// The first erase of the block that was not finished yet has been run.
  void finish_erase(BlockId block);

  /// The stamp of the last program.
  std::uint64_t clock() const { return programs_; }

  /// Whether the page was programmed since the last erase, completely or in part.
  bool written(PhysicalPageAddress ppa) const;

  /// Metadata of a page; empty if it is erased or cannot be read. Carried mode only.
  std::optional<OobRecord> oob(PhysicalPageAddress ppa) const;

  /// Undoes or spoils the state changes of write() and erase() that the flash had not completed. Where erases are not
  /// finished (keep_until_erased), `loss` is about the pages that the block held before the first of them. Pages that
  /// were torn, or lie in half-erased blocks, hold noise and no metadata until their block is erased. Pages that were
  /// not written (their programs had failed) are left alone. Carried mode only.
  void lose_power(const PowerLoss& loss);

  static constexpr std::size_t kMaxKeptErrors = 64;
  std::uint64_t integrity_errors() const { return integrity_errors_; }
  const std::vector<IntegrityError>& kept_integrity_errors() const { return kept_errors_; }

  /// Fault injection: inverts one bit of a programmed page and leaves its metadata alone. `bit` counts from the first
  /// byte's least significant bit. Throws UserError if there are no bytes to corrupt.
  void flip_bit(PhysicalPageAddress ppa, std::uint64_t bit);

 private:
  struct Oob {
    OobTag tag;
    std::uint64_t stamp = 0;  ///< 0: torn
    std::uint32_t crc = 0;
    bool written = false;
    bool damaged = false;
  };
  struct Block;

  const Block* block_at(PhysicalPageAddress ppa) const;
  void tear(Block& block, std::uint32_t page);
  void record(const IntegrityError& error);

  FlashGeometry geometry_;
  DataMode mode_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< by BlockId; empty in timing mode
  /// What blocks held before erases that are not finished, the oldest first. Empty unless keeps_erased_.
  std::map<std::uint32_t, std::deque<std::unique_ptr<Block>>> unfinished_erases_;
  bool keeps_erased_ = false;
  std::vector<std::byte> erased_page_;
  std::uint64_t programs_ = 0;
  std::uint64_t integrity_errors_ = 0;
  std::vector<IntegrityError> kept_errors_;
};

}  // namespace csdsim::ftl

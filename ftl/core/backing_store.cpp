#include "ftl/core/backing_store.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/crc32.h"
#include "base/error.h"
#include "base/rng.h"

namespace csdsim::ftl {

struct BackingStore::Block {
  // Not initialised: the operating system then commits memory only for pages that are programmed.
  std::unique_ptr<std::byte[]> bytes;
  std::vector<Oob> oob;
};

std::string to_string(const OobTag& tag) {
  switch (tag.kind) {
    case PageKind::host:
      return fmt::format("host page {}", tag.index);
    case PageKind::token_k:
    case PageKind::token_v:
      return fmt::format("{} group {} of sequence {}, layer {}, head {}", tag.kind == PageKind::token_k ? "K" : "V",
                         tag.index, tag.sequence.value, tag.layer.value, tag.head.value);
    case PageKind::token_kv:
      return fmt::format("K and V group {} of sequence {}, layer {}, head {}", tag.index, tag.sequence.value,
                         tag.layer.value, tag.head.value);
    case PageKind::embedding:
      return fmt::format("embedding page {} of sequence {}, layer {}, head {}", tag.index, tag.sequence.value,
                         tag.layer.value, tag.head.value);
  }
  throw InternalError("unknown page kind");
}

std::string to_string(const IntegrityError& error) {
  switch (error.what) {
    case IntegrityError::What::not_written:
      return fmt::format("physical page {}: expected {}, found an erased page", error.ppa.value,
                         to_string(error.expected));
    case IntegrityError::What::torn:
      return fmt::format("physical page {}: expected {}, found a page whose program was interrupted", error.ppa.value,
                         to_string(error.expected));
    case IntegrityError::What::wrong_key:
      return fmt::format("physical page {}: expected {}, found {}", error.ppa.value, to_string(error.expected),
                         to_string(error.found));
    case IntegrityError::What::wrong_crc:
      return fmt::format("physical page {} ({}): expected CRC {:08x}, found {:08x}", error.ppa.value,
                         to_string(error.expected), error.expected_crc, error.found_crc);
  }
  throw InternalError("unknown integrity error");
}

BackingStore::BackingStore(const FlashGeometry& geometry, DataMode mode) : geometry_(geometry), mode_(mode) {
  if (!carried()) return;
  blocks_.resize(geometry_.blocks());
  erased_page_.assign(geometry_.page_size.value, std::byte{0xFF});
}

BackingStore::~BackingStore() = default;

const BackingStore::Block* BackingStore::block_at(PhysicalPageAddress ppa) const {
  if (!carried()) throw InternalError("page bytes were asked for in timing mode, which keeps none");
  if (!geometry_.contains(ppa)) {
    throw InternalError(fmt::format("physical page {} is outside an array of {} pages", ppa.value, geometry_.pages()));
  }
  return blocks_[geometry_.block_of(ppa).value].get();
}

void BackingStore::write(PhysicalPageAddress ppa, std::span<const std::byte> data, const OobTag& tag) {
  if (!carried()) return;
  const std::size_t page_size = geometry_.page_size.value;
  if (data.size() != page_size) {
    throw InternalError(fmt::format("a program of {} bytes onto a page of {}", data.size(), page_size));
  }
  if (block_at(ppa) == nullptr) {
    auto fresh = std::make_unique<Block>();
    fresh->bytes = std::make_unique_for_overwrite<std::byte[]>(page_size * geometry_.pages_per_block);
    fresh->oob.resize(geometry_.pages_per_block);
    blocks_[geometry_.block_of(ppa).value] = std::move(fresh);
  }
  Block& block = *blocks_[geometry_.block_of(ppa).value];
  const std::uint32_t page = geometry_.page_in_block(ppa);
  Oob& oob = block.oob[page];
  if (oob.written) {
    throw InternalError(fmt::format("physical page {} is programmed twice: as {}, then as {}", ppa.value,
                                    to_string(oob.tag), to_string(tag)));
  }
  std::memcpy(block.bytes.get() + page * page_size, data.data(), page_size);
  oob = {tag, ++programs_, crc32(data), true, false};
}

void BackingStore::copy(PhysicalPageAddress from, PhysicalPageAddress to, std::span<const std::byte> data,
                        const OobTag& tag, bool damaged) {
  if (!carried()) return;
  const auto source = oob(from);
  if (!source) throw InternalError(fmt::format("physical page {} is copied but cannot be read", from.value));
  write(to, data, tag);
  Oob& oob = blocks_[geometry_.block_of(to).value]->oob[geometry_.page_in_block(to)];
  oob.stamp = source->stamp;
  oob.damaged = damaged;
}

void BackingStore::replace(PhysicalPageAddress ppa, std::span<const std::byte> data, const OobTag& tag) {
  if (!carried()) return;
  if (!written(ppa)) throw InternalError(fmt::format("physical page {} is replaced but erased", ppa.value));
  blocks_[geometry_.block_of(ppa).value]->oob[geometry_.page_in_block(ppa)].written = false;
  write(ppa, data, tag);
}

std::span<const std::byte> BackingStore::read(PhysicalPageAddress ppa) const {
  const Block* block = block_at(ppa);
  const std::uint32_t page = geometry_.page_in_block(ppa);
  if (block == nullptr || !block->oob[page].written) return erased_page_;
  const std::size_t page_size = geometry_.page_size.value;
  return {block->bytes.get() + page * page_size, page_size};
}

std::span<const std::byte> BackingStore::read_verified(PhysicalPageAddress ppa, const OobTag& expected,
                                                       PageCheck check) {
  const Block* block = block_at(ppa);
  const std::span<const std::byte> bytes = read(ppa);
  if (block == nullptr || !block->oob[geometry_.page_in_block(ppa)].written) {
    record({IntegrityError::What::not_written, ppa, expected, {}, 0, 0});
    return bytes;
  }
  const Oob& oob = block->oob[geometry_.page_in_block(ppa)];
  if (oob.stamp == 0) {
    record({IntegrityError::What::torn, ppa, expected, {}, 0, 0});
  } else if (oob.tag != expected) {
    record({IntegrityError::What::wrong_key, ppa, expected, oob.tag, 0, 0});
  } else if (check == PageCheck::key_and_crc) {
    const std::uint32_t found = crc32(bytes);
    if (found != oob.crc) record({IntegrityError::What::wrong_crc, ppa, expected, oob.tag, oob.crc, found});
  }
  return bytes;
}

void BackingStore::erase(BlockId block) {
  if (!carried()) return;
  std::unique_ptr<Block> held = std::move(blocks_.at(block.value));
  if (keeps_erased_) unfinished_erases_[block.value].push_back(std::move(held));
}

void BackingStore::finish_erase(BlockId block) {
  const auto at = unfinished_erases_.find(block.value);
  if (at == unfinished_erases_.end()) throw InternalError(fmt::format("block {} has no erase to finish", block.value));
  at->second.pop_front();
  if (at->second.empty()) unfinished_erases_.erase(at);
}

bool BackingStore::written(PhysicalPageAddress ppa) const {
  const Block* block = block_at(ppa);
  return block != nullptr && block->oob[geometry_.page_in_block(ppa)].written;
}

std::optional<OobRecord> BackingStore::oob(PhysicalPageAddress ppa) const {
  const Block* block = block_at(ppa);
  if (block == nullptr) return std::nullopt;
  const Oob& oob = block->oob[geometry_.page_in_block(ppa)];
  if (!oob.written || oob.stamp == 0) return std::nullopt;
  return OobRecord{oob.tag, oob.stamp, oob.damaged};
}

void BackingStore::tear(Block& block, std::uint32_t page) {
  Oob& oob = block.oob[page];
  const std::size_t size = geometry_.page_size.value;
  Rng noise(oob.stamp);
  for (std::byte& byte : std::span(block.bytes.get() + page * size, size)) byte = static_cast<std::byte>(noise());
  oob = {{}, 0, 0, true, false};
}

void BackingStore::lose_power(const PowerLoss& loss) {
  for (auto& [block, held] : std::exchange(unfinished_erases_, {})) blocks_[block] = std::move(held.front());
  for (const PhysicalPageAddress ppa : loss.torn) {
    if (written(ppa)) tear(*blocks_[geometry_.block_of(ppa).value], geometry_.page_in_block(ppa));
  }
  for (const PhysicalPageAddress ppa : loss.unprogrammed) {
    if (written(ppa)) blocks_[geometry_.block_of(ppa).value]->oob[geometry_.page_in_block(ppa)] = {};
  }
  for (const BlockId id : loss.half_erased) {
    if (Block* const block = blocks_.at(id.value).get()) {
      for (std::uint32_t page = 0; page < geometry_.pages_per_block; ++page) tear(*block, page);
    }
  }
}

void BackingStore::record(const IntegrityError& error) {
  ++integrity_errors_;
  if (kept_errors_.size() < kMaxKeptErrors) kept_errors_.push_back(error);
}

void BackingStore::flip_bit(PhysicalPageAddress ppa, std::uint64_t bit) {
  if (!carried() || !geometry_.contains(ppa) || !written(ppa) || bit >= geometry_.page_size.value * 8) {
    throw UserError(fmt::format("fault injection: no bit {} in physical page {}", bit, ppa.value));
  }
  Block& block = *blocks_[geometry_.block_of(ppa).value];
  std::byte& byte = block.bytes[geometry_.page_in_block(ppa) * geometry_.page_size.value + bit / 8];
  byte ^= std::byte{1} << (bit % 8);
}

}  // namespace csdsim::ftl

#include "host_runtime/core/serving/engine/file_system.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/rng.h"
#include "base/rounding.h"

namespace csdsim::host {

namespace {

constexpr std::uint64_t kGroup = std::uint64_t{128} << 20, kBytesPerInode = 16'384, kInodesPerBlock = 16;
constexpr std::uint64_t kDescriptorsPerBlock = 64;
/// Names of 64 hexadecimal digits and an ending; the blocks of a directory are three quarters full.
constexpr std::uint64_t kEntriesPerBlock = 40;
/// Files begin at multiples of this, so that large ones are aligned as the buddy allocator of ext4 aligns them.
constexpr std::uint64_t kAlignment = std::uint64_t{1} << 20;
/// Blocks whose places a descriptor block of the journal names (tags of 16 bytes).
constexpr std::uint64_t kTagsPerBlock = 254;
/// Blocks of the largest write of metadata: 1 MiB, as the block layer merges neighbours.
constexpr std::uint64_t kMostBlocks = 256;
constexpr Bytes kBlockBytes{FileSystemLayout::kBlock};

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

FileSystemLayout::FileSystemLayout(const KvFilesConfig& config, Bytes capacity, Bytes file) {
  const std::uint64_t blocks = capacity.value / kBlock;
  journal = config.journal.value / kBlock;
  groups = divide_up(capacity.value, kGroup);
  const std::uint64_t tables = divide_up(divide_up(capacity.value, kBytesPerInode), groups * kInodesPerBlock);
  group_inodes = tables * kInodesPerBlock;
  const std::uint64_t most = capacity.value / file.value;
  directory = divide_up(std::max<std::uint64_t>(most, 1), std::uint64_t{config.directories} * kEntriesPerBlock);
  descriptors = journal;
  block_bitmaps = descriptors + divide_up(groups, kDescriptorsPerBlock);
  inode_bitmaps = block_bitmaps + groups;
  inodes = inode_bitmaps + groups;
  entries = inodes + groups * tables;
  const std::uint64_t end = entries + config.directories * directory;
  data = Bytes{divide_up(end * kBlock, kAlignment) * kAlignment};
  if (end >= blocks || data >= capacity) return;
  places = (capacity - data).value / file.value;
  // One place is always free, so that a file can be written before the one that it replaces is forgotten.
  const std::uint64_t kept = config.reserved.floor_of(places);
  files = std::min(places - std::clamp<std::uint64_t>(kept, std::min<std::uint64_t>(places, 1), places),
                   groups * group_inodes);
}

FileSystem::FileSystem(const KvFilesConfig& config, Bytes capacity, Bytes file, DriveIndex drive,
                       KvTransport& transport)
    : config_(config),
      layout_(config, capacity, file),
      file_(file),
      drive_(drive),
      transport_(transport),
      directory_made_(config.directories),
      on_drive_(layout_.data.value / FileSystemLayout::kBlock),
      inodes_used_(layout_.groups),
      inodes_freed_(layout_.groups),
      cache_(config.metadata_cache) {}

DriveRange FileSystem::range(const File& file) const {
  return {.drive = drive_, .offset = layout_.data + file_ * file.place, .size = file_};
}

void FileSystem::spend(SimTime time, Done then) {
  if (time == SimTime{}) return then();
  transport_.at(transport_.now() + time, std::move(then));
}

/// The block of its directory comes first: it says which inode is the file's.
FileSystem::Blocks FileSystem::inode_blocks(const File& file, bool bitmap) const {
  const std::uint64_t tables = layout_.group_inodes / kInodesPerBlock;
  Blocks blocks{file.entry, layout_.inodes + file.group * tables + file.inode / kInodesPerBlock};
  if (bitmap) {
    blocks.push_back(layout_.inode_bitmaps + file.group);
    blocks.push_back(layout_.descriptors + file.group / kDescriptorsPerBlock);
  }
  return blocks;
}

void FileSystem::add_place_blocks(std::uint64_t place, Blocks& blocks) const {
  const std::uint64_t first = (layout_.data + file_ * place).value, end = first + file_.value;
  for (std::uint64_t group = first / kGroup; group * kGroup < end; ++group) {
    blocks.push_back(layout_.block_bitmaps + group);
    blocks.push_back(layout_.descriptors + group / kDescriptorsPerBlock);
  }
}

void FileSystem::open(const File& file, std::function<void(bool)> opened) {
  spend(config_.open_time, [this, file, opened = std::move(opened)]() mutable {
    access(inode_blocks(file, false), false, std::move(opened));
  });
}

/// The files of a directory have their inodes in its group, or in the next one that has any left.
std::uint64_t FileSystem::take_inode(std::uint64_t& group) {
  while (inodes_freed_[group].empty() && inodes_used_[group] == layout_.group_inodes)
    group = (group + 1) % layout_.groups;
  if (inodes_freed_[group].empty()) return inodes_used_[group]++;
  const std::uint32_t inode = inodes_freed_[group].back();
  inodes_freed_[group].pop_back();
  return inode;
}

void FileSystem::create(std::function<void(const File&)> created) {
  take_place([this, created = std::move(created)](std::uint64_t place) {
    ++use_.created;
    const std::uint64_t name = counter_random(drive_.value, files_created_++);
    const std::uint64_t directory = name % config_.directories;
    File file{.place = place, .group = directory % layout_.groups};
    file.inode = take_inode(file.group);
    file.entry = layout_.entries + directory * layout_.directory + (name >> 32U) % layout_.directory;
    Blocks blocks = inode_blocks(file, true);
    add_place_blocks(place, blocks);
    SimTime time = config_.create_time;
    if (!directory_made_[directory]) {
      // Its inode is in the group of its files; the directory around it gets an entry.
      directory_made_[directory] = true;
      blocks.push_back(layout_.entries + directory / kEntriesPerBlock * layout_.directory);
      time += config_.create_time;
    }
    spend(time, [this, file, blocks, created] { access(blocks, true, [file, created](bool) { created(file); }); });
  });
}

void FileSystem::rename(const File& file, Done done) {
  spend(config_.rename_time,
        [this, file, done = std::move(done)] { access(inode_blocks(file, false), true, [done](bool) { done(); }); });
}

void FileSystem::unlink(const File& file, Done done) {
  ++use_.deleted;
  spend(config_.unlink_time, [this, file, done = std::move(done)] {
    Blocks blocks = inode_blocks(file, true);
    add_place_blocks(file.place, blocks);
    access(blocks, true, [this, file, done](bool) {
      freed_.push_back(file.place);
      inodes_freed_[file.group].push_back(static_cast<std::uint32_t>(file.inode));
      done();
    });
  });
}

/// What was never on the drive is made in memory. A block that cannot be read back is made anew where it is changed.
void FileSystem::access(Blocks blocks, bool changes, std::function<void(bool)> then) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint64_t block = blocks[i];
    if (on_drive_[block] && cache_.find({drive_.value, block}) == nullptr) {
      use_.metadata_read += kBlockBytes;
      const DriveRange from{.drive = drive_, .offset = kBlockBytes * block, .size = kBlockBytes};
      blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return transport_.read(from, Place::host(), {},
                             [this, block, blocks, changes, then = std::move(then)](bool read) mutable {
                               if (!read && !changes) return then(false);
                               keep(block, changes);
                               access(std::move(blocks), changes, std::move(then));
                             });
    }
    keep(block, changes);
  }
  then(true);
}

/// Changed blocks stay in memory until they are in their places.
void FileSystem::keep(std::uint64_t block, bool changes) {
  Cache::Entry& entry = cache_.use({drive_.value, block}, kBlockBytes);
  entry.pinned = entry.pinned || changes;
  if (changes && transaction_.insert(block).second) changed();
  while (const auto gone = cache_.excess(std::nullopt, {})) cache_.erase(*gone);
}

void FileSystem::changed() {
  if (transaction_.size() == 1) {
    ++transactions_;
    transport_.at(transport_.now() + config_.commit_interval, [this, of = transactions_] {
      if (of == transactions_ && !transaction_.empty()) commit();
    });
  }
  // A transaction takes a quarter of the journal at most.
  if (transaction_.size() >= layout_.journal / 4) commit();
}

void FileSystem::take_place(std::function<void(std::uint64_t)> then) {
  if (places_used_ < layout_.places) {
    last_place_ = places_used_++;
    return then(last_place_);
  }
  if (free_places_.empty()) {
    wait_for_place_.push_back(std::move(then));
    return commit();
  }
  auto next = free_places_.upper_bound(last_place_);
  if (next == free_places_.end()) next = free_places_.begin();
  last_place_ = *next;
  free_places_.erase(next);
  then(last_place_);
}

void FileSystem::place_free(std::uint64_t place) {
  free_places_.insert(place);
  if (wait_for_place_.empty()) return;
  auto then = std::move(wait_for_place_.front());
  wait_for_place_.pop_front();
  take_place(std::move(then));
}

std::uint64_t FileSystem::write_run(std::uint64_t first, std::uint64_t blocks, const Done& written) {
  std::uint64_t writes = 0;
  for (std::uint64_t at = 0; at < blocks; at += kMostBlocks, ++writes)
    transport_.write({.drive = drive_,
                      .offset = kBlockBytes * (first + at),
                      .size = kBlockBytes * std::min(kMostBlocks, blocks - at)},
                     Place::host(), {}, written);
  return writes;
}

/// A descriptor block per 254 blocks, the blocks, and a commit block, one behind the other in the journal.
void FileSystem::commit() {
  if (committing_) {
    commit_again_ = true;
    return;
  }
  if (transaction_.empty()) return;
  committing_ = true;
  commit_again_ = false;
  in_journal_ = std::exchange(transaction_, {});
  freeing_ = std::exchange(freed_, {});
  std::uint64_t left = divide_up(in_journal_.size(), kTagsPerBlock) + in_journal_.size() + 1;
  use_.journal_written += kBlockBytes * left;
  while (left > 0) {
    const std::uint64_t run = std::min(left, layout_.journal - journal_at_);
    journal_writes_ += write_run(journal_at_, run, [this] {
      if (--journal_writes_ == 0) committed();
    });
    journal_at_ = (journal_at_ + run) % layout_.journal;
    left -= run;
  }
}

void FileSystem::committed() {
  committing_ = false;
  checkpoint_.merge(in_journal_);
  in_journal_.clear();
  if (!write_back_due_) {
    write_back_due_ = true;
    transport_.at(transport_.now() + config_.write_back_interval, [this] {
      write_back_due_ = false;
      write_back();
    });
  }
  for (const std::uint64_t place : std::exchange(freeing_, {})) {
    if (!config_.discard) {
      place_free(place);
      continue;
    }
    use_.discarded += file_;
    transport_.discard(range({.place = place}), [this, place] { place_free(place); });
  }
  if (commit_again_ || !wait_for_place_.empty()) commit();
  go_on();
}

void FileSystem::write_back() {
  const Blocks blocks(checkpoint_.begin(), checkpoint_.end());
  checkpoint_.clear();
  use_.metadata_written += kBlockBytes * blocks.size();
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t end = i + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) ++end;
    const Blocks run(blocks.begin() + static_cast<std::ptrdiff_t>(i),
                     blocks.begin() + static_cast<std::ptrdiff_t>(end));
    const std::uint64_t writes = divide_up(run.size(), kMostBlocks);
    writing_back_ += writes;
    const auto left = std::make_shared<std::uint64_t>(writes);
    write_run(run.front(), run.size(), [this, run, left] {
      --writing_back_;
      if (--*left == 0) written_back(run);
    });
    i = end;
  }
}

void FileSystem::written_back(const Blocks& blocks) {
  for (const std::uint64_t block : blocks) {
    on_drive_[block] = true;
    if (transaction_.contains(block) || in_journal_.contains(block) || checkpoint_.contains(block)) continue;
    if (Cache::Entry* const entry = cache_.find({drive_.value, block})) entry->pinned = false;
  }
  while (const auto gone = cache_.excess(std::nullopt, {})) cache_.erase(*gone);
  go_on();
}

void FileSystem::sync(Done done) {
  synced_ = std::move(done);
  go_on();
}

/// What a sync has still to write.
void FileSystem::go_on() {
  if (!synced_ || committing_ || writing_back_ > 0) return;
  if (!transaction_.empty()) return commit();
  if (!checkpoint_.empty()) return write_back();
  std::exchange(synced_, {})();
}

}  // namespace csdsim::host

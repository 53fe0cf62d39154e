#include "host_runtime/sysc/file_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim::host {

FileBackend::FileBackend(DriveCommands& commands, const std::vector<FileTable>& files, const FileIoParams& params,
                         OperationData* data)
    : commands_(commands), files_(files), params_(params), data_(data), cache_(params.page_cache) {
  if (params.threads == 0) throw UserError("file: threads is 0, must be at least 1");
}

std::optional<SimTime> FileBackend::start(const Operation& op, SimTime now) {
  const auto* work = std::get_if<FileWork>(&op.work);
  const auto refuse = [&](std::string_view why) {
    throw InternalError(fmt::format("{} of {}: {}", operation_name(op.kind, op.tag), resource_name(op.resource), why));
  };
  const bool known = op.kind == OpKind::read_file || op.kind == OpKind::write_file;
  if (op.resource.kind != ResourceKind::file || work == nullptr || !known) refuse("no work of a file");
  if (op.resource.index >= files_.size()) refuse("no files there");
  if (params_.access != FileAccess::direct && !work->memory.in_host())
    refuse("threads copy to and from host memory only");
  const auto running = commands_.begin(op, now);
  const FileCut how = cached() ? FileCut::chunks : FileCut::blocks;
  for (const FileIo& io : files_[op.resource.index].cut(op, params_.io_size, how)) {
    commands_.hold(running);
    waiting_.push_back({&op, running, io});
  }
  start_ios();
  // Not at once: an operation that needs no time must not end before it has started.
  due_.emplace(std::pair(now, next_due_++), [this, running] { commands_.end_command(running); });
  alarm_.set(now);
  return std::nullopt;
}

SimTime FileBackend::copy_time(const FileIo& io) const {
  return params_.copy_bandwidth.bytes_per_second == 0 ? SimTime{} : transfer_time(io.size, params_.copy_bandwidth);
}

/// I/Os that take no time end within this function, so it must not call itself for each of them.
void FileBackend::start_ios() {
  if (std::exchange(starting_, true)) return;
  while (busy_ < params_.threads && !waiting_.empty()) {
    ++busy_;
    const auto a = std::make_shared<Active>(Active{std::move(waiting_.front()), {}});
    waiting_.pop_front();
    ++totals_.ios;
    totals_.wanted += a->io.size;
    if (params_.access != FileAccess::direct) totals_.copied += a->io.size;
    if (cached())
      start_cached(a);
    else
      start_uncached(a);
  }
  starting_ = false;
}

void FileBackend::thread_free() {
  --busy_;
  start_ios();
}

void FileBackend::start_uncached(const ActivePtr& a) {
  const Bytes block = files_[a->op->resource.index].block();
  const bool direct = params_.access == FileAccess::direct;
  a->buffer = commands_.allocate(direct ? work_of(*a).memory : Place::host(), block * a->io.extent.blocks);
  totals_.transferred += a->buffer.segment.length;
  if (writes(*a) && data_ != nullptr)
    data_->load_file(*a->op, a->io.range, a->io.at, {a->buffer.bytes, a->io.size.value});
  spend(params_.io_overhead + (writes(*a) ? copy_time(a->io) : SimTime{}), [this, a] { ask_drive(a); });
}

void FileBackend::ask_drive(const ActivePtr& a) {
  commands_.submit_blocks(a->running, writes(*a) ? nvme::nvm_opcode::write : nvme::nvm_opcode::read, a->io.extent,
                          a->buffer.segment, operation_name(a->op->kind, a->op->tag), [this, a] { arrived(a); });
}

void FileBackend::arrived(const ActivePtr& a) {
  if (writes(*a)) return end(a);
  spend(copy_time(a->io), [this, a] { end(a); });
}

void FileBackend::end(const ActivePtr& a) {
  if (!cached()) {
    if (!writes(*a) && data_ != nullptr)
      data_->store_file(*a->op, a->io.range, a->io.at, {a->buffer.bytes + a->io.skip.value, a->io.size.value});
    commands_.release(a->buffer);
  }
  thread_free();
  commands_.end_command(a->running);
}

void FileBackend::spend(SimTime duration, Callback<void()> then) {
  if (duration == SimTime{}) return then();
  totals_.thread_time += duration;
  due_.emplace(std::pair(sim_time_now() + duration, next_due_++), std::move(then));
  alarm_.set(due_.begin()->first.first);
}

void FileBackend::on_due() {
  while (!due_.empty() && due_.begin()->first.first <= sim_time_now()) {
    const auto then = std::move(due_.extract(due_.begin()).mapped());
    then();
  }
  if (!due_.empty()) alarm_.set(due_.begin()->first.first);
}

// With the page cache.

void FileBackend::start_cached(const ActivePtr& a) {
  const Bytes size = files_[a->op->resource.index].block() * a->io.extent.blocks;
  Cache::Entry& entry = cache_.use(key_of(*a), size);
  Chunk& chunk = entry.value;
  chunk.wanted = true;
  if (chunk.valid) {
    ++totals_.cache_hits;
    return use(a);
  }
  if (entry.pinned) {  // another thread is reading it
    ++totals_.cache_hits;
    chunk.waiting.push_back(a);
    return;
  }
  chunk.extent = a->io.extent;
  if (data_ != nullptr) chunk.bytes.resize(size.value);
  make_room(key_of(*a));
  if (writes(*a) && !needs_contents(*a)) {
    chunk.valid = true;
    return use(a);
  }
  entry.pinned = true;
  chunk.waiting.push_back(a);
  const auto go_on = [this, a] { spend(params_.io_overhead, [this, a] { fetch(a); }); };
  if (params_.write_back_on_eviction && throttles())
    throttled_.push_back(go_on);
  else
    go_on();
}

/// True if a write needs the rest of its chunk from the drive. A chunk that nobody has written is a hole of the file.
bool FileBackend::needs_contents(const Active& a) const {
  const Bytes chunk = files_[a.op->resource.index].block() * a.io.extent.blocks;
  return a.io.size != chunk && written_.contains(key_of(a));
}

void FileBackend::fetch(const ActivePtr& a) {
  a->buffer = commands_.allocate(Place::host(), cache_.find(key_of(*a))->size);
  totals_.transferred += a->buffer.segment.length;
  commands_.submit_blocks(a->running, nvme::nvm_opcode::read, a->io.extent, a->buffer.segment,
                          operation_name(a->op->kind, a->op->tag), [this, a] { fetched(a); });
}

void FileBackend::fetched(const ActivePtr& a) {
  Cache::Entry& entry = *cache_.find(key_of(*a));
  entry.value.valid = true;
  if (data_ != nullptr) std::copy_n(a->buffer.bytes, entry.size.value, entry.value.bytes.begin());
  commands_.release(a->buffer);
  // The chunk stays pinned until all have used it: a use that takes no time may start an I/O that makes room.
  for (const ActivePtr& each : std::exchange(entry.value.waiting, {})) use(each);
  if (!entry.value.queued) entry.pinned = false;
}

/// The chunk is in the cache: the bytes are copied now, the thread is busy with it from now on.
void FileBackend::use(const ActivePtr& a) {
  Chunk& chunk = cache_.find(key_of(*a))->value;
  const std::span<std::byte> bytes =
      data_ == nullptr ? std::span<std::byte>{} : std::span(chunk.bytes).subspan(a->io.skip.value, a->io.size.value);
  if (!writes(*a)) {
    if (data_ != nullptr) data_->store_file(*a->op, a->io.range, a->io.at, bytes);
    return spend(copy_time(a->io), [this, a] { end(a); });
  }
  if (data_ != nullptr) data_->load_file(*a->op, a->io.range, a->io.at, bytes);
  chunk.dirty = true;
  written_.insert(key_of(*a));
  spend(copy_time(a->io), [this, a] { changed(a); });
}

void FileBackend::changed(const ActivePtr& a) {
  const ChunkKey key = key_of(*a);
  Cache::Entry* const entry = cache_.find(key);
  if (entry != nullptr && entry->value.dirty && !params_.write_back_on_eviction) queue_write_back(key, *entry);
  if (throttles())
    throttled_.push_back([this, a] { end(a); });
  else
    end(a);
}

/// Changed chunks are written first, and leave when they are: until then the cache holds more than its capacity.
void FileBackend::make_room(std::optional<ChunkKey> keep) {
  while (const std::optional<ChunkKey> key = cache_.excess(keep, leaving_)) {
    Cache::Entry& entry = *cache_.find(*key);
    if (!entry.value.dirty) {
      cache_.erase(*key);
      continue;
    }
    entry.value.leaving = true;
    entry.value.wanted = false;
    leaving_ += entry.size;
    cache_.pin_to_end(entry);
    queue_write_back(*key, entry);
  }
}

/// The chunk stays in the cache until it is written.
void FileBackend::queue_write_back(ChunkKey key, Cache::Entry& entry) {
  entry.pinned = true;
  if (std::exchange(entry.value.queued, true)) return;
  unwritten_ += entry.size;
  write_backs_.push_back(key);
  start_write_backs();
}

void FileBackend::start_write_backs() {
  while (writing_back_ < kWriteBackDepth && !write_backs_.empty()) {
    const ChunkKey key = write_backs_.front();
    write_backs_.pop_front();
    if (waits_for_write_back(key)) write_back(write_back_run(key));
  }
}

/// False for a chunk that was written in the run of another one, and may have left since.
bool FileBackend::waits_for_write_back(ChunkKey key) {
  const Cache::Entry* const entry = cache_.find(key);
  return entry != nullptr && entry->value.queued && !entry->value.writing;
}

std::vector<ChunkKey> FileBackend::write_back_run(ChunkKey first) {
  std::vector<ChunkKey> run{first};
  Bytes size = cache_.find(first)->size;
  while (true) {
    const ChunkKey next{first.drive, run.back().first_block + cache_.find(run.back())->value.extent.blocks};
    if (!waits_for_write_back(next) || size + cache_.find(next)->size > params_.write_back_size) return run;
    size += cache_.find(next)->size;
    run.push_back(next);
  }
}

void FileBackend::write_back(const std::vector<ChunkKey>& run) {
  Extent extent{run.front().first_block, 0};
  for (const ChunkKey& key : run) extent.blocks += cache_.find(key)->value.extent.blocks;
  const Bytes size = files_[run.front().drive].block() * extent.blocks;
  const DriveCommands::Buffer buffer = commands_.allocate(Place::host(), size);
  std::byte* to = buffer.bytes;
  for (const ChunkKey& key : run) {
    Chunk& chunk = cache_.find(key)->value;
    chunk.dirty = false;
    chunk.writing = true;
    if (data_ != nullptr) to = std::ranges::copy(chunk.bytes, to).out;
  }
  ++writing_back_;
  totals_.transferred += size;
  totals_.written_back += size;
  commands_.write_in_background(run.front().drive, extent, buffer.segment, "writing back a file",
                                [this, run, buffer] { written_back(run, buffer); });
}

void FileBackend::written_back(const std::vector<ChunkKey>& run, const DriveCommands::Buffer& buffer) {
  commands_.release(buffer);
  --writing_back_;
  for (const ChunkKey& key : run) written_back(key);
  make_room(std::nullopt);
  start_write_backs();
  resume_throttled();
  if (unwritten_ == Bytes{} && when_written_back_) std::exchange(when_written_back_, nullptr)();
}

void FileBackend::written_back(ChunkKey key) {
  Cache::Entry& entry = *cache_.find(key);
  unwritten_ = unwritten_ - entry.size;
  entry.pinned = false;
  entry.value.queued = false;
  entry.value.writing = false;
  const bool left = std::exchange(entry.value.leaving, false);
  if (left) leaving_ = leaving_ - entry.size;
  if (left && !entry.value.wanted && !entry.value.dirty)
    cache_.erase(key);
  else if (entry.value.dirty && !params_.write_back_on_eviction)
    queue_write_back(key, entry);  // changed while it was written
}

void FileBackend::when_written_back(std::function<void()> done) {
  if (unwritten_ == Bytes{}) return done();
  when_written_back_ = std::move(done);
}

void FileBackend::resume_throttled() {
  if (throttles()) return;
  for (const std::function<void()>& go_on : std::exchange(throttled_, {})) go_on();
}

void FileBackend::drop_others(const std::vector<PlannedFile>& files) {
  if (!cached()) return;
  std::unordered_set<ChunkKey, ChunkKey::Hash> kept;
  for (const PlannedFile& file : files)
    for (const FileRange& range : file.written)
      for (const FileIo& io : files_.at(file.drive.value).cut(file.name, range, params_.io_size, FileCut::chunks))
        kept.insert({file.drive.value, io.extent.first});
  cache_.erase_if([&](ChunkKey key) { return !kept.contains(key); });
}

void FileBackend::materialise(std::uint32_t drive, const std::string& file, FileRange range) {
  if (data_ != nullptr) throw InternalError("only timing runs skip file operations");
  if (!cached()) return;
  for (const FileIo& io : files_.at(drive).cut(file, range, params_.io_size, FileCut::chunks)) {
    const ChunkKey key{drive, io.extent.first};
    written_.insert(key);
    Cache::Entry& entry = cache_.use(key, files_[drive].block() * io.extent.blocks);
    entry.value.valid = true;
    entry.value.extent = io.extent;
    while (const std::optional<ChunkKey> gone = cache_.excess(key, {})) cache_.erase(*gone);
  }
}

}  // namespace csdsim::host

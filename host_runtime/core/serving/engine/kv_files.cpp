#include "host_runtime/core/serving/engine/kv_files.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

KvFiles::KvFiles(const Config& config, KvTransport& transport, std::uint32_t drives, std::uint32_t parts, Bytes part)
    : config_(config), transport_(transport), parts_(parts), part_(part), mounts_(drives) {
  if (config.io.access == FileAccess::cached) throw InternalError("files of a tier with a page cache");
  for (std::uint32_t i = 0; i < drives; ++i)
    mounts_[i].system =
        std::make_unique<FileSystem>(config.files, config.capacity, part * parts, DriveIndex{i}, transport);
}

std::optional<FileSystem::File>& KvFiles::file(KvBlockSlot slot) {
  auto& files = mount(slot).files;
  const std::size_t at = slot / mounts_.size();
  if (at >= files.size()) files.resize(at + 1);
  return files[at];
}

void KvFiles::run(Threads& threads, std::function<void()> work) {
  if (threads.busy == config_.threads) return threads.waiting.push_back(std::move(work));
  ++threads.busy;
  work();
}

void KvFiles::end(Threads& threads) {
  --threads.busy;
  if (threads.waiting.empty()) return go_on();
  auto next = std::move(threads.waiting.front());
  threads.waiting.pop_front();
  run(threads, std::move(next));
}

void KvFiles::read(KvBlockSlot slot, KvParts parts, Place to, std::span<std::byte> bytes, KvTransport::ReadDone done) {
  Mount& on = mount(slot);
  run(on.readers, [this, &on, slot, parts, to, bytes, done = std::move(done)] {
    const FileSystem::File of = file(slot).value();
    const auto ended = [this, &on, done](bool read) {
      end(on.readers);
      done(read);
    };
    DriveRange range = on.system->range(of);
    range.offset += part_ * parts.first;
    range.size = part_ * parts.count;
    on.system->open(of, [this, range, to, bytes, ended](bool opened) {
      if (!opened) return ended(false);
      next_io(
          std::make_shared<Transfer>(Transfer{.range = range, .memory = to, .read = bytes, .done = ended, .at = {}}));
    });
  });
}

void KvFiles::write(KvBlockSlot slot, Place from, std::span<const std::byte> bytes, KvTransport::Done done) {
  Mount& on = mount(slot);
  const auto fill = [this, &on, slot, from, bytes, done = std::move(done)](const FileSystem::File& created) {
    const auto written = [this, &on, slot, created, done](bool) {
      on.system->rename(created, [this, &on, slot, created, done] {
        file(slot) = created;
        end(on.writers);
        done();
      });
    };
    next_io(std::make_shared<Transfer>(Transfer{.range = on.system->range(created),
                                                .memory = from,
                                                .written = bytes,
                                                .writes = true,
                                                .done = written,
                                                .at = {}}));
  };
  run(on.writers, [this, &on, slot, fill] {
    const auto old = std::exchange(file(slot), std::nullopt);
    if (!old) return on.system->create(fill);
    on.system->unlink(*old, [&on, fill] { on.system->create(fill); });
  });
}

void KvFiles::spend(SimTime time, KvTransport::Done then) {
  if (time == SimTime{}) return then();
  transport_.at(transport_.now() + time, std::move(then));
}

void KvFiles::next_io(const TransferPtr& transfer) {
  if (transfer->at == transfer->range.size) return transfer->done(true);
  const Bytes size = std::min(config_.io.io_size, transfer->range.size - transfer->at);
  const Bandwidth copies = config_.io.copy_bandwidth;
  const SimTime copy = copies.bytes_per_second > 0 ? transfer_time(size, copies) : SimTime{};
  spend(config_.io.io_overhead + (transfer->writes ? copy : SimTime{}),
        [this, transfer, size] { move(transfer, size); });
}

void KvFiles::move(const TransferPtr& transfer, Bytes size) {
  const DriveRange range{.drive = transfer->range.drive, .offset = transfer->range.offset + transfer->at, .size = size};
  const auto some = [&](auto bytes) { return bytes.empty() ? bytes : bytes.subspan(transfer->at.value, size.value); };
  if (transfer->writes) {
    transport_.write(range, transfer->memory, some(transfer->written), [this, transfer, size] {
      transfer->at += size;
      next_io(transfer);
    });
    return;
  }
  transport_.read(range, transfer->memory, some(transfer->read), [this, transfer, size](bool read) {
    if (!read) return transfer->done(false);
    const Bandwidth copies = config_.io.copy_bandwidth;
    spend(copies.bytes_per_second > 0 ? transfer_time(size, copies) : SimTime{}, [this, transfer, size] {
      transfer->at += size;
      next_io(transfer);
    });
  });
}

bool KvFiles::settled() const {
  return std::ranges::all_of(
      mounts_, [](const Mount& m) { return m.readers.busy == 0 && m.writers.busy == 0 && m.system->clean(); });
}

void KvFiles::sync(KvTransport::Done done) {
  synced_ = std::move(done);
  go_on();
}

/// A sync begins when no thread has a file.
void KvFiles::go_on() {
  const bool busy =
      std::ranges::any_of(mounts_, [](const Mount& m) { return m.readers.busy > 0 || m.writers.busy > 0; });
  if (!synced_ || busy) return;
  const auto done = std::exchange(synced_, {});
  const auto left = std::make_shared<std::size_t>(mounts_.size());
  for (Mount& m : mounts_)
    m.system->sync([left, done] {
      if (--*left == 0) done();
    });
}

FileUse KvFiles::files() const {
  FileUse use;
  for (const Mount& m : mounts_) use += m.system->use();
  return use;
}

}  // namespace csdsim::host

#include "host_runtime/core/serving/engine/kv_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

/// Blocks on their way to a GPU.
struct KvTiers::Loading {
  struct Block {
    KvBlockId id;
    bool from_host = false;
    KvBlockSlot slot = 0;
    KvJobId job;
    std::optional<KvJobId> promotion;
    KvBlockSlot promoted_to = 0;
    std::uint32_t ended = 0;  ///< parts
    std::uint32_t read = 0;   ///< parts whose read into host memory has ended, those that are lost included
    bool lost = false;
  };
  std::uint32_t gpu = 0;
  SimTime began;
  SlotsOf slots;
  PartDone part_done;
  std::vector<Block> blocks;
  std::vector<std::size_t> left;  ///< [part]: blocks that have not arrived
};

/// Blocks on their way from drives to host memory.
struct KvTiers::Promoting {
  SimTime began;
  KvBlockManager::Store room;
  std::vector<KvBlockManager::Load> loads;
  std::vector<Buffer> bytes;
  std::size_t left = 0;
  bool lost = false;
};

/// Blocks on their way from a GPU.
struct KvTiers::Storing {
  struct Block {
    KvBlockId id;
    std::size_t index = 0;  ///< among those that were offered
    std::optional<KvBlockSlot> host_slot, drive_slot;
    std::optional<KvJobId> hold;  ///< in host memory, from which it is written to a drive
    bool written = false;
  };
  std::uint32_t gpu = 0;
  SimTime began;
  SlotsOf slots;
  KvTransport::Done copied;
  std::optional<KvJobId> host_job, drive_job;
  std::vector<Block> blocks;
  std::size_t copies = 0, writes = 0;  ///< that have not ended
};

namespace {

bool readable(const KvBlockManager& tier, KvBlockId id) {
  const KvBlockState state = tier.state(id);
  return state == KvBlockState::ready || state == KvBlockState::loading;
}

std::uint64_t absent(const KvBlockManager& tier, std::span<const KvBlockId> ids) {
  std::uint64_t count = 0;
  for (const KvBlockId id : ids) count += tier.state(id) == KvBlockState::absent ? 1 : 0;
  return count;
}

std::unique_ptr<KvStorage> make_storage(const KvTiersConfig& config, KvTransport& transport) {
  if (config.files)
    return std::make_unique<KvFiles>(*config.files, transport, config.drives, config.parts, config.whole_part());
  return std::make_unique<KvRange>(transport, config.drives, config.parts, config.whole_part());
}

}  // namespace

KvTiers::KvTiers(const KvTiersConfig& config, std::unique_ptr<KvBlockManager> host,
                 std::unique_ptr<KvBlockManager> drives, KvTransport& transport, KvContents* contents)
    : config_(config),
      host_(std::move(host)),
      drives_(std::move(drives)),
      transport_(transport),
      contents_(contents),
      staging_(config.staging),
      part_(config.whole_part()) {
  if (config.back_pressure) back_pressure_.emplace(*config.back_pressure);
  if (drives_ && config.drives == 0) throw InternalError("a tier on no drive");
  if (drives_) storage_ = make_storage(config, transport);
  if (host_)
    host_->on_event([this](const KvBlockEvent& event) {
      if (event.kind == KvBlockEvent::Kind::evicted) use_.promoted_unread += unread_.erase(event.id.value);
    });
  if (drives_ && config.path == DrivePath::staged && staging_.capacity() < whole_block())
    throw UserError(
        fmt::format("staging: {} B do not hold a block of {} B", config.staging.value, whole_block().value));
}

void KvTiers::sight(std::span<const KvBlockId> ids) {
  if (host_) host_->sight(ids);
  if (drives_) drives_->sight(ids);
}

KvTiers::Found KvTiers::lookup(std::span<const KvBlockId> ids, std::uint64_t most_of_drives) const {
  Found found;
  for (const KvBlockId id : ids) {
    if (host_ && readable(*host_, id)) {
      ++found.host;
    } else if (drives_ && readable(*drives_, id)) {
      if (found.drives == most_of_drives) break;
      ++found.drives;
    } else {
      const auto writing = [id](const KvBlockManager* tier) {
        return tier != nullptr && tier->state(id) == KvBlockState::writing;
      };
      found.pending = writing(host_.get()) || writing(drives_.get());
      break;
    }
  }
  return found;
}

KvTiers::Found KvTiers::loadable(std::span<const KvBlockId> ids, const Found& found) const {
  if (!config_.fills_staging_once || config_.path == DrivePath::direct) return found;
  const std::uint64_t most = config_.staging.value / whole_block().value;
  return found.drives > most ? lookup(ids, most) : found;
}

bool KvTiers::promote(std::span<const KvBlockId> ids) {
  if (absent(*host_, ids) == 0) return true;
  const auto promotion = std::make_shared<Promoting>();
  promotion->began = transport_.now();
  auto room = host_->prepare_store(ids, promotion->began);
  if (!room) {
    ++use_.promotion_failures;
    return false;
  }
  promotion->room = std::move(*room);
  promotion->left = promotion->room.stored.size();
  // Blocks that go down to the drives may push others out of them.
  for (const KvBlockId id : promotion->room.stored) {
    promotion->loads.push_back(drives_->prepare_load(std::array{id}, promotion->began));
    promotion->bytes.push_back(buffer(whole_block()));
  }
  demote(promotion->room);
  // They stand from the last to the first, and are read from the first on.
  for (std::size_t block = promotion->loads.size(); block-- > 0;)
    storage_->read(promotion->loads[block].slots.front(), {.count = config_.parts}, Place::host(),
                   *promotion->bytes[block],
                   [this, promotion, block](bool read) { block_promoted(promotion, block, read); });
  return true;
}

/// All blocks of a promotion can be read when the last one has come. If one is lost, none of them stays.
void KvTiers::block_promoted(const std::shared_ptr<Promoting>& promotion, std::size_t block, bool read) {
  Promoting& of = *promotion;
  drives_->complete_load(of.loads[block].job, read);
  if (read) {
    fill_host(of.room.slots[block], of.bytes[block]);
    use_.drives.bytes_read += whole_block();
    use_.drives.load_time += transport_.now() - of.began;
  }
  use_.drives.loaded += read ? 1 : 0;
  use_.drives.lost += read ? 0 : 1;
  of.lost |= !read;
  if (--of.left > 0) return;
  if (!of.lost) {
    const std::uint64_t blocks = of.room.stored.size();
    use_.promoted += blocks;
    use_.host.stored += blocks;
    use_.host.bytes_written += whole_block() * blocks;
    for (const KvBlockId id : of.room.stored) unread_.insert(id.value);
  }
  host_->complete_store(of.room.job, !of.lost);
  changed_();
}

void KvTiers::count(std::size_t asked, const Found& found) {
  use_.asked += asked;
  use_.host.found += found.host;
  use_.drives.found += found.drives;
}

void KvTiers::touch(std::span<const KvBlockId> ids) {
  if (host_) host_->touch(ids);
  if (drives_) drives_->touch(ids);
}

KvTiers::GpuTraffic& KvTiers::traffic(std::uint32_t gpu) {
  if (gpu >= traffic_.size()) traffic_.resize(gpu + std::size_t{1});
  return traffic_[gpu];
}

KvTiers::Buffer KvTiers::buffer(Bytes size) const {
  return std::make_shared<std::vector<std::byte>>(contents_ != nullptr ? size.value : 0);
}

std::span<std::byte> KvTiers::host_part(KvBlockSlot slot, std::uint32_t part) {
  if (contents_ == nullptr) return {};
  if (slot >= host_contents_.size()) host_contents_.resize(slot + std::size_t{1});
  host_contents_[slot].resize(whole_block().value);
  return std::span(host_contents_[slot]).subspan(part_.value * part, part_.value);
}

void KvTiers::fill_host(KvBlockSlot slot, const Buffer& bytes) {
  for (std::uint32_t part = 0; part < config_.parts && !bytes->empty(); ++part)
    std::ranges::copy(std::span(*bytes).subspan(part_.value * part, part_.value), host_part(slot, part).begin());
}

std::function<void()> KvTiers::load(std::span<const KvBlockId> ids, std::uint32_t gpu, SlotsOf slots,
                                    PartDone part_done) {
  const auto load = std::make_shared<Loading>();
  load->gpu = gpu;
  load->began = transport_.now();
  load->slots = std::move(slots);
  load->part_done = std::move(part_done);
  load->left.assign(config_.parts, ids.size());
  for (const KvBlockId id : ids) {
    Loading::Block block;
    block.id = id;
    block.from_host = host_ && readable(*host_, id);
    const KvBlockManager::Load begun = (block.from_host ? *host_ : *drives_).prepare_load(std::array{id}, load->began);
    block.job = begun.job;
    block.slot = begun.slots.front();
    if (block.from_host) unread_.erase(id.value);
    load->blocks.push_back(block);
  }
  return [this, load] {
    for (std::uint32_t part = 0; part < config_.parts; ++part)
      for (std::size_t block = 0; block < load->blocks.size(); ++block) load_part(load, block, part);
  };
}

void KvTiers::load_part(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part) {
  const Loading::Block& of = load->blocks[block];
  if (of.from_host)
    return transport_.copy(load->gpu, CopyDirection::to_gpu, part_, [this, load, block, part] {
      part_arrived(load, block, part, host_part(load->blocks[block].slot, part));
    });
  const Buffer bytes = buffer(part_);
  if (config_.path == DrivePath::staged)
    return staging_.take(part_, [this, load, block, part, bytes] { load_staged(load, block, part, bytes); });
  storage_->read(of.slot, {.first = part}, Place::gpu(load->gpu), *bytes, [this, load, block, part, bytes](bool read) {
    if (read) return part_arrived(load, block, part, *bytes);
    part_lost(load, block, part);
  });
}

/// From a drive into the buffer in host memory, and on to the GPU.
void KvTiers::load_staged(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part,
                          const Buffer& bytes) {
  const Loading::Block& of = load->blocks[block];
  if (of.read == 0 && !of.promotion) promote(*load, block);
  storage_->read(of.slot, {.first = part}, Place::host(), *bytes, [this, load, block, part, bytes](bool read) {
    part_in_host(*load, block, part, bytes, read);
    if (!read) {
      staging_.give_back(part_);
      return part_lost(load, block, part);
    }
    transport_.copy(load->gpu, CopyDirection::to_gpu, part_, [this, load, block, part, bytes] {
      staging_.give_back(part_);
      part_arrived(load, block, part, *bytes);
    });
  });
}

void KvTiers::promote(Loading& load, std::size_t block) {
  if (!host_) return;
  const auto store = host_->prepare_store(std::array{load.blocks[block].id}, transport_.now());
  if (!store || store->stored.empty()) return;
  load.blocks[block].promotion = store->job;
  load.blocks[block].promoted_to = store->slots.front();
  demote(*store);
}

void KvTiers::part_in_host(Loading& load, std::size_t block, std::uint32_t part, const Buffer& bytes, bool read) {
  Loading::Block& of = load.blocks[block];
  ++of.read;
  of.lost |= !read;
  if (!of.promotion) return;
  if (read) std::ranges::copy(*bytes, host_part(of.promoted_to, part).begin());
  if (of.read < config_.parts) return;
  host_->complete_store(*of.promotion, !of.lost);
  changed_();
  if (of.lost) return;
  use_.host.stored += 1;
  use_.host.bytes_written += whole_block();
}

void KvTiers::part_arrived(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part,
                           std::span<const std::byte> bytes) {
  const Loading::Block& of = load->blocks[block];
  if (contents_ != nullptr) contents_->put(load->gpu, load->slots(block), part, bytes);
  (of.from_host ? use_.host : use_.drives).bytes_read += part_;
  const bool direct = !of.from_host && config_.path == DrivePath::direct;
  (direct ? traffic(load->gpu).direct : traffic(load->gpu).copied) += part_;
  part_ended(load, block, part);
}

void KvTiers::part_lost(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part) {
  load->blocks[block].lost = true;
  part_ended(load, block, part);
}

/// A block that is lost leaves its tier.
void KvTiers::part_ended(const std::shared_ptr<Loading>& load, std::size_t block, std::uint32_t part) {
  Loading::Block& of = load->blocks[block];
  if (++of.ended == config_.parts) {
    TierUse& use = of.from_host ? use_.host : use_.drives;
    (of.from_host ? *host_ : *drives_).complete_load(of.job, !of.lost);
    use.lost += of.lost ? 1 : 0;
    use.loaded += of.lost ? 0 : 1;
    use.load_time += transport_.now() - load->began;
  }
  if (--load->left[part] > 0) return;
  const auto lost = std::ranges::find_if(load->blocks, &Loading::Block::lost);
  load->part_done(part, static_cast<std::size_t>(lost - load->blocks.begin()));
}

/// Makes room in the tiers. Both lists of new blocks go from the last to the first.
std::shared_ptr<KvTiers::Storing> KvTiers::plan_store(std::span<const KvBlockId> ids, std::uint32_t gpu) {
  const auto store = std::make_shared<Storing>();
  store->gpu = gpu;
  store->began = transport_.now();
  const auto make_room = [&](KvBlockManager& tier) {
    auto room = tier.prepare_store(ids, store->began);
    if (!room) {
      use_.dropped_no_room += absent(tier, ids);
      tier.touch(ids);
    }
    return room;
  };
  std::optional<KvBlockManager::Store> in_host, in_drives;
  if (host_) in_host = make_room(*host_);
  if (drives_ && (config_.store.through || !host_)) in_drives = make_room(*drives_);
  std::size_t host_left = in_host ? in_host->stored.size() : 0, drives_left = in_drives ? in_drives->stored.size() : 0;
  if (host_left > 0) store->host_job = in_host->job;
  if (drives_left > 0) store->drive_job = in_drives->job;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const KvBlockId id = ids[i];
    Storing::Block block;
    block.id = id;
    block.index = i;
    if (host_left > 0 && in_host->stored[host_left - 1] == id) block.host_slot = in_host->slots[--host_left];
    if (drives_left > 0 && in_drives->stored[drives_left - 1] == id) block.drive_slot = in_drives->slots[--drives_left];
    if (block.host_slot || block.drive_slot) store->blocks.push_back(block);
    store->writes += block.drive_slot ? 1 : 0;
  }
  store->copies = store->blocks.size();
  if (in_host) demote(*in_host);
  return store;
}

bool KvTiers::store(std::span<const KvBlockId> ids, std::uint32_t gpu, SlotsOf slots, KvTransport::Done copied) {
  if (!any() || ids.empty()) return false;
  const KvBlockManager& first = host_ ? *host_ : *drives_;
  if (back_pressure_ && absent(first, ids) > 0 && !back_pressure_->admits()) {
    use_.dropped_back_pressure += absent(first, ids);
    touch(ids);
    return false;
  }
  const auto store = plan_store(ids, gpu);
  if (store->blocks.empty()) return false;
  store->slots = std::move(slots);
  store->copied = std::move(copied);
  for (std::size_t block = 0; block < store->blocks.size(); ++block) copy_block(store, block);
  return true;
}

/// What the GPU holds of a block.
KvTiers::Buffer KvTiers::take(const Storing& store, std::size_t block) const {
  Buffer bytes = buffer(whole_block());
  for (std::uint32_t part = 0; part < config_.parts && !bytes->empty(); ++part)
    contents_->take(store.gpu, store.slots(store.blocks[block].index), part,
                    std::span(*bytes).subspan(part_.value * part, part_.value));
  return bytes;
}

void KvTiers::copy_block(const std::shared_ptr<Storing>& store, std::size_t block) {
  const Storing::Block& of = store->blocks[block];
  if (of.drive_slot && config_.path == DrivePath::direct) {
    write_block(store, block, Place::gpu(store->gpu), take(*store, block));
    if (!of.host_slot) return;  // the GPU's memory is needed until it is written
  }
  const auto copy = [this, store, block] {
    transport_.copy(store->gpu, CopyDirection::from_gpu, whole_block(),
                    [this, store, block] { block_in_host(store, block); });
  };
  if (of.host_slot) return copy();
  staging_.take(whole_block(), copy);
}

void KvTiers::block_in_host(const std::shared_ptr<Storing>& store, std::size_t block) {
  const Storing::Block& of = store->blocks[block];
  const Buffer bytes = take(*store, block);
  traffic(store->gpu).copied += whole_block();
  if (of.host_slot) {
    fill_host(*of.host_slot, bytes);
    use_.host.bytes_written += whole_block();
    ++use_.host.stored;
    use_.host.store_time += transport_.now() - store->began;
  }
  if (of.drive_slot && config_.path == DrivePath::staged) write_block(store, block, Place::host(), bytes);
  block_copied(store);
}

void KvTiers::write_block(const std::shared_ptr<Storing>& store, std::size_t block, Place from, const Buffer& bytes) {
  storage_->write(*store->blocks[block].drive_slot, from, *bytes,
                  [this, store, block, bytes] { block_written(store, block); });
}

/// Once all are in host memory, they can be read there. Those that are still written to drives stay until then.
void KvTiers::block_copied(const std::shared_ptr<Storing>& store) {
  if (--store->copies > 0) return;
  if (store->host_job) {
    host_->complete_store(*store->host_job, true);
    if (config_.path == DrivePath::staged)
      for (Storing::Block& block : store->blocks)
        if (block.host_slot && block.drive_slot && !block.written)
          block.hold = host_->prepare_load(std::array{block.id}, transport_.now()).job;
  }
  store->copied();
  if (store->writes == 0) end_store(*store);
  changed_();
}

void KvTiers::block_written(const std::shared_ptr<Storing>& store, std::size_t block) {
  Storing::Block& of = store->blocks[block];
  of.written = true;
  if (config_.path == DrivePath::direct) traffic(store->gpu).direct += whole_block();
  use_.drives.bytes_written += whole_block();
  ++use_.drives.stored;
  use_.drives.store_time += transport_.now() - store->began;
  if (of.hold) host_->complete_load(*of.hold, true);
  if (!of.host_slot && config_.path == DrivePath::staged) staging_.give_back(whole_block());
  if (--store->writes == 0) drives_->complete_store(*store->drive_job, true);
  if (!of.host_slot && config_.path == DrivePath::direct) return block_copied(store);
  if (store->writes == 0 && store->copies == 0) end_store(*store);
  changed_();
}

void KvTiers::end_store(Storing& store) {
  if (back_pressure_) back_pressure_->stored(transport_.now() - store.began);
}

void KvTiers::demote(const KvBlockManager::Store& room) {
  if (!drives_ || config_.store.through) return;
  for (std::size_t i = 0; i < room.evicted.size(); ++i) demote(room.evicted[i], room.evicted_slots[i]);
}

void KvTiers::demote(KvBlockId id, KvBlockSlot slot) {
  if (drives_->state(id) != KvBlockState::absent) return;
  if (!staging_.has(whole_block())) {
    ++use_.dropped_staging;
    return;
  }
  const SimTime began = transport_.now();
  const auto store = drives_->prepare_store(std::array{id}, began);
  if (!store) ++use_.dropped_no_room;
  if (!store || store->stored.empty()) return;
  const Buffer bytes = buffer(whole_block());
  for (std::uint32_t part = 0; part < config_.parts && !bytes->empty(); ++part)
    std::ranges::copy(host_part(slot, part), bytes->begin() + static_cast<std::ptrdiff_t>(part_.value * part));
  staging_.take(whole_block(), [this, began, bytes, job = store->job, to = store->slots.front()] {
    storage_->write(to, Place::host(), *bytes, [this, began, bytes, job] {
      use_.drives.bytes_written += whole_block();
      ++use_.drives.stored;
      use_.drives.store_time += transport_.now() - began;
      drives_->complete_store(job, true);
      staging_.give_back(whole_block());
      changed_();
    });
  });
}

}  // namespace csdsim::host

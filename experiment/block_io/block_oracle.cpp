#include "experiment/block_io/block_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::experiment {

using workload::BlockRequest;
using workload::RequestKind;

template <class Each>
void BlockOracle::each_block(const BlockRequest& request, Each each) const {
  const std::uint64_t size = config_.block.value, first = request.offset.value / size;
  for (std::uint64_t i = 0; i < request.length.value / size; ++i) each(first + i, i * size);
}

BlockOracle::Block& BlockOracle::at(std::uint64_t block) {
  const auto [entry, is_new] = blocks_.try_emplace(block);
  if (is_new) {
    Version first;
    first.zeros = (block + 1) * config_.block.value > config_.filled.value;
    entry->second.versions.push_back(first);
  }
  return entry->second;
}

void BlockOracle::content(std::uint64_t block, std::uint64_t serial, std::span<std::byte> bytes) const {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = counter_random(block + 1, serial * 0x10001 + at) | 1;  // never all zeros
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
}

bool BlockOracle::holds(std::uint64_t block, const Version& version, std::span<const std::byte> bytes) const {
  if (version.zeros) return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
  std::vector<std::byte> expected(bytes.size());
  content(block, version.serial, expected);
  return std::ranges::equal(expected, bytes);
}

std::uint64_t BlockOracle::submit(BlockRequest request, std::span<std::byte> data) {
  const std::uint64_t number = ++clock_;
  if (request.kind == RequestKind::trim) {
    const std::uint64_t unit = config_.unit.value, end = (request.offset + request.length).value / unit * unit;
    request.offset = Bytes{(request.offset.value + unit - 1) / unit * unit};
    request.length = Bytes{std::max(end, request.offset.value) - request.offset.value};
  }
  under_way_[number] = {request, number, cuts_};
  if (request.kind == RequestKind::read) reads_.insert(number);
  if (request.kind != RequestKind::write && request.kind != RequestKind::trim) return number;
  const bool zeros = request.kind == RequestKind::trim;
  each_block(request, [&](std::uint64_t block, std::uint64_t offset) {
    at(block).versions.push_back({number, zeros, zeros ? config_.trims_cached : config_.cached, false, number, kNever});
    several_.insert(block);
    if (!zeros) content(block, number, data.subspan(offset, config_.block.value));
  });
  return number;
}

/// Drops the versions that others have replaced which completed before `durable_before`, and that no read may return.
void BlockOracle::replace(std::uint64_t block, std::uint64_t durable_before) {
  std::vector<Version>& versions = blocks_.at(block).versions;
  const std::uint64_t before = reads_.empty() ? durable_before : std::min(durable_before, *reads_.begin());
  std::uint64_t newest = 0;  // submission of the last of those
  for (const Version& version : versions)
    if (version.completed < before && !version.doubtful) newest = std::max(newest, version.submitted);
  std::erase_if(versions, [&](const Version& version) { return version.completed < newest; });
  if (versions.size() == 1) several_.erase(block);
}

void BlockOracle::complete(std::uint64_t number, std::span<const std::byte> data) {
  const auto found = under_way_.extract(number);
  const Request& done = found.mapped();
  const std::uint64_t now = ++clock_;
  const std::uint64_t size = config_.block.value;
  switch (done.request.kind) {
    case RequestKind::read:
      reads_.erase(reads_.find(number));
      return each_block(done.request, [&](std::uint64_t block, std::uint64_t offset) {
        check(block, data.subspan(offset, size), done.submitted);
      });
    case RequestKind::write:
    case RequestKind::trim: {
      const bool cached = done.request.kind == RequestKind::trim ? config_.trims_cached : config_.cached;
      return each_block(done.request, [&](std::uint64_t block, std::uint64_t) {
        for (Version& version : blocks_.at(block).versions)
          if (version.submitted == number) version.completed = now;
        if (!cached) replace(block, now + 1);
      });
    }
    case RequestKind::flush:
      if (done.cuts != cuts_) return;  // what completed before the cut may have been lost by it
      for (const std::uint64_t block : std::set(several_)) replace(block, done.submitted);
  }
}

void BlockOracle::note_cut() {
  ++cuts_;
  for (const std::uint64_t block : several_) {
    Block& of = blocks_.at(block);
    of.cut = ++clock_;
    for (Version& version : of.versions)
      version.doubtful = version.doubtful || (version.cached && version.completed != kNever);
  }
}

/// A read that was submitted at `submitted` has got `bytes`. After a cut it tells what the drive has found.
void BlockOracle::check(std::uint64_t block, std::span<const std::byte> bytes, std::uint64_t submitted) {
  ++checked_;
  Block& of = at(block);
  const auto replaced = [&](const Version& version) {
    return std::ranges::any_of(of.versions, [&](const Version& other) {
      return other.completed < submitted && other.submitted > version.completed && !other.doubtful;
    });
  };
  const auto found = std::ranges::find_if(
      of.versions, [&](const Version& version) { return !replaced(version) && holds(block, version, bytes); });
  if (found == of.versions.end())
    throw InternalError(
        fmt::format("block {} holds neither its last durable version nor a newer one, after {} cuts", block, cuts_));
  // A write beside the read may be newer than what the read has found.
  const bool alone = std::ranges::none_of(of.versions, [&](const Version& v) { return v.completed > submitted; });
  // What was written after the cut may be in the cache again.
  if (of.cut == 0 || submitted < of.cut || found->completed > of.cut || !alone) return;
  Version kept = *found;
  kept.doubtful = false;
  of = {{kept}, 0};
  several_.erase(block);
}

void BlockOracle::check_all(const std::function<void(std::uint64_t, std::span<std::byte>)>& read) {
  for (std::uint64_t block = 0; (block + 1) * config_.block.value <= config_.filled.value; ++block) at(block);
  std::vector<std::byte> bytes(config_.block.value);
  const std::uint64_t now = ++clock_;
  for (auto& [block, of] : blocks_) {
    read(block, bytes);
    check(block, bytes, now);
  }
}

}  // namespace csdsim::experiment

// Drives that were used before the simulation starts.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "ftl/block/block_ftl.h"
#include "ftl/block/plan_builder.h"

namespace csdsim::ftl {

void BlockFtl::precondition(Bytes working_set, std::optional<std::uint64_t> seed) {
  if (store_.carried()) throw UserError("preconditioning needs simulation.data: timing, it writes no bytes");
  if (working_set > capacity()) {
    throw UserError(fmt::format("a working set of {} bytes is larger than the block namespace, {} bytes",
                                working_set.value, capacity().value));
  }
  const std::uint64_t pages = (working_set.value + page_size_.value - 1) / page_size_.value;
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    if (!blocks_.pristine(PlaneId{plane})) throw UserError("only an untouched drive can be preconditioned");
  }
  preconditioned_ = pages;
  const bool keep_plane = config_.allocation == PageAllocation::fixed;
  if (blocks_.has_factory_bad_blocks()) {
    fill_page_by_page(pages, seed);
    return fill_translation_pages(pages);
  }
  map_.precondition(pages, seed, keep_plane);
  // Runs of the units of a word line take the planes in turn.
  const std::uint64_t run = config_.units_per_program, row = run * geometry_.planes(), rest = pages % row;
  for (std::uint32_t rank = 0; rank < geometry_.planes(); ++rank) {
    const std::uint64_t begun = std::min(run, rest - std::min(rest, rank * run));
    blocks_.fill(stripe_.plane_of_rank(rank), Stream::host, pages / row * run + begun);
  }
  cursor_ = static_cast<std::uint32_t>(rest / run);
  if (config_.refresh_age.ps > 0) note_filled_blocks();
  fill_translation_pages(pages);
}

/// The translation pages of the first `pages` pages are in flash, none of their entries in the cache.
void BlockFtl::fill_translation_pages(std::uint64_t pages) {
  if (!cache_) return;
  const BlockFtlStats before = stats_;
  PlanBuilder none(false);
  for (std::uint64_t index = 0; index * entries_per_page_ < pages; ++index) {
    if (write_translation_page(index, none) != IoStatus::ok) {
      throw InternalError("a translation page within the capacity found no room");
    }
  }
  stats_ = before;
}

/// The formula of the map knows nothing of bad blocks: here the pages are written one by one.
void BlockFtl::fill_page_by_page(std::uint64_t pages, std::optional<std::uint64_t> seed) {
  const PagePermutation order(pages, seed);
  PlanBuilder none(false);
  for (std::uint64_t i = 0; i < pages; ++i) {
    const LogicalPage page{order.backward(i)};
    const auto ppa = place(page, Stream::host, none);
    if (!ppa) throw InternalError("a page within the capacity found no room");
    map_.bind(page, *ppa);
  }
}

void BlockFtl::age(double overwrites, std::uint64_t seed) {
  if (store_.carried()) throw UserError("ageing a drive needs simulation.data: timing, it writes no bytes");
  if (preconditioned_ == 0) throw UserError("only a preconditioned drive can be aged");
  if (!(overwrites >= 0)) throw UserError(fmt::format("a drive cannot be aged by {} overwrites", overwrites));
  constexpr std::uint64_t kAhead = 64;  // map entries fetched before they are needed
  std::array<LogicalPage, kAhead> batch;
  const BlockFtlStats before = stats_;
  PlanBuilder none(false);
  Rng rng(seed, "age");
  const auto writes = static_cast<std::uint64_t>(std::llround(overwrites * static_cast<double>(preconditioned_)));
  for (std::uint64_t done = 0; done < writes;) {
    const std::uint64_t size = std::min(kAhead, writes - done);
    for (std::uint64_t i = 0; i < size; ++i) {
      batch[i] = LogicalPage{rng.below(preconditioned_)};
      map_.prefetch(batch[i]);
    }
    for (std::uint64_t i = 0; i < size; ++i) {
      if (access_map(batch[i], true, none) != IoStatus::ok ||
          write_page(batch[i], 0, page_size_.value, {}, nullptr, none) != IoStatus::ok) {
        throw UserError("the drive has run out of spare blocks while it was aged");
      }
      pad(none);
    }
    done += size;
  }
  stats_ = before;
}

}  // namespace csdsim::ftl

#include "ftl/block/block_filler.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::ftl {

void BlockFiller::precondition(Bytes working_set, std::optional<std::uint64_t> seed) {
  if (flash_.store.carried()) throw UserError("preconditioning needs simulation.data: timing, it writes no bytes");
  if (working_set > flash_.page_size * flash_.exported) {
    throw UserError(fmt::format("a working set of {} bytes is larger than the block namespace, {} bytes",
                                working_set.value, (flash_.page_size * flash_.exported).value));
  }
  const std::uint64_t pages = (working_set.value + flash_.page_size.value - 1) / flash_.page_size.value;
  for (std::uint32_t plane = 0; plane < flash_.geometry.planes(); ++plane) {
    if (!flash_.blocks.pristine(PlaneId{plane})) throw UserError("only an untouched drive can be preconditioned");
  }
  preconditioned_ = pages;
  const bool keep_plane = flash_.config.allocation == PageAllocation::fixed;
  if (flash_.blocks.has_factory_bad_blocks()) {
    fill_page_by_page(pages, seed);
    return fill_translation_pages(pages);
  }
  map_.precondition(pages, seed, keep_plane);
  // The units of a word line are on one plane; word lines take the planes in turn.
  const std::uint64_t run = flash_.config.units_per_program, row = run * flash_.geometry.planes(), rest = pages % row;
  for (std::uint32_t rank = 0; rank < flash_.geometry.planes(); ++rank) {
    const std::uint64_t begun = std::min(run, rest - std::min(rest, rank * run));
    flash_.blocks.fill(placer_.stripe().plane_of_rank(rank), Stream::host, pages / row * run + begun);
  }
  placer_.continue_at(static_cast<std::uint32_t>(rest / run));
  ages_.note_filled_blocks();
  fill_translation_pages(pages);
}

/// Writes the translation pages of the first `pages` pages. No entry is in the cache afterwards.
void BlockFiller::fill_translation_pages(std::uint64_t pages) {
  if (!entries_.are_cached()) return;
  const BlockFtlStats before = flash_.stats;
  PlanBuilder none(PlanBuilder::Records::ageing);
  for (std::uint64_t index = 0; index * flash_.entries_per_page < pages; ++index) {
    if (map_pages_.write(index, none) != IoStatus::ok) {
      throw InternalError("a translation page within the capacity found no room");
    }
  }
  flash_.stats = before;
}

/// Writes the pages one by one, because the formula of the map cannot leave out bad blocks.
void BlockFiller::fill_page_by_page(std::uint64_t pages, std::optional<std::uint64_t> seed) {
  const PagePermutation order(pages, seed);
  PlanBuilder none(PlanBuilder::Records::ageing);
  for (std::uint64_t i = 0; i < pages; ++i) {
    const LogicalPage page{order.backward(i)};
    const auto ppa = placer_.place(page, Stream::host, none);
    if (!ppa) throw InternalError("a page within the capacity found no room");
    map_.bind(page, *ppa);
  }
}

void BlockFiller::age(double overwrites, std::uint64_t seed, const AgeProgress& progress) {
  if (flash_.store.carried()) throw UserError("ageing a drive needs simulation.data: timing, it writes no bytes");
  if (preconditioned_ == 0) throw UserError("only a preconditioned drive can be aged");
  if (!(overwrites >= 0)) throw UserError(fmt::format("a drive cannot be aged by {} overwrites", overwrites));
  constexpr std::uint64_t kAhead = 64;  // map entries fetched before they are needed
  constexpr std::uint64_t kBetweenProgress = 1024 * kAhead;
  std::array<LogicalPage, kAhead> batch;
  const BlockFtlStats before = flash_.stats;
  PlanBuilder none(PlanBuilder::Records::ageing);
  Rng rng(seed, "age");
  const auto writes = static_cast<std::uint64_t>(std::llround(overwrites * static_cast<double>(preconditioned_)));
  for (std::uint64_t done = 0; done < writes;) {
    const std::uint64_t size = std::min(kAhead, writes - done);
    for (std::uint64_t i = 0; i < size; ++i) {
      batch[i] = LogicalPage{rng.below(preconditioned_)};
      map_.prefetch(batch[i]);
    }
    for (std::uint64_t i = 0; i < size; ++i) {
      if (map_pages_.access(batch[i], true, none) != IoStatus::ok ||
          writer_.write_page(batch[i], 0, flash_.page_size.value, {}, nullptr, {}, none) != IoStatus::ok) {
        throw UserError("the drive has run out of spare blocks while it was aged");
      }
      placer_.pad(none);
      map_pages_.write_stale(none);
    }
    done += size;
    if (progress && done % kBetweenProgress == 0) progress(done, writes);
  }
  flash_.stats = before;
}

}  // namespace csdsim::ftl

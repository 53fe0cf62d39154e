// A ledger of the operations that the firmware has asked of the flash and that the flash has done, for losses of power.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/address.h"
#include "contracts/page_op.h"
#include "ftl/block/block_recovery.h"
#include "ftl/core/backing_store.h"
#include "nfc/core/flash_observers.h"

namespace csdsim::csd_model {

/// Programs of word lines and erases of blocks, from their planning until the firmware knows that they are done. The
/// flash tells when its arrays begin and end (nfc::ChangeObserver): on a plane, in the order of submission for each
/// class and kind.
class FlashLedger final : public nfc::ChangeObserver {
 public:
  /// `geometry` and `line`: units of a block, and of a word line, as the FTL counts them. `store` keeps what a block
  /// held until its erase is done (BackingStore::keep_until_erased).
  FlashLedger(const FlashGeometry& geometry, std::uint32_t line, ftl::BackingStore& store)
      : geometry_(geometry), line_(line), store_(store) {}

  /// The place of programs in the firmware's reserved area, where no loss of power is modelled.
  static constexpr std::uint64_t kReserved = ~std::uint64_t{0};

  /// The firmware will run this operation, after all others so far. `place`: the word line of a program, the block of
  /// an erase. It comes in `pieces`, each of which is given and done by itself: the erases of a reclaim unit's blocks.
  /// Word lines of `ns` kv are pages, and their number is the page's.
  void planned(PageOpKind kind, std::uint64_t place, std::uint32_t pieces = 1,
               ftl::Namespace ns = ftl::Namespace::block);
  /// A piece of the first operation with this place that was not given to the flash is given to it now, as `parts` on
  /// planes.
  void given(PageOpKind kind, std::uint64_t place, std::span<const std::pair<std::uint32_t, OpClass>> parts);
  /// A piece of the first operation with this place is done.
  void done(PageOpKind kind, std::uint64_t place);

  void begins(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) override;
  void ends(std::uint32_t plane, OpClass op_class, PageOpKind kind, SimTime at) override;

  struct Found {
    ftl::PowerCut cut;                        ///< the cut as the block namespace sees it, without its `capacitors`
    ftl::PowerLoss loss;                      ///< what it has done to the flash of the block namespace
    ftl::PowerLoss kv_loss;                   ///< the same of the KV namespace, in pages
    std::uint64_t torn = 0, half_erased = 0;  ///< operations, of both
  };
  /// The power fails at `now`. `open`: word lines in DRAM that no plan programs yet. Erases that have ended are
  /// finished in the store. Nothing is pending afterwards.
  Found lose_power(SimTime now, std::span<const std::uint64_t> open);

 private:
  /// Plane, class and kind of an operation.
  using Key = std::array<std::uint32_t, 3>;
  static Key key(std::uint32_t plane, OpClass op_class, PageOpKind kind) {
    return {plane, static_cast<std::uint32_t>(op_class), static_cast<std::uint32_t>(kind)};
  }
  struct Times {
    SimTime begun = SimTime::max(), ended = SimTime::max();
    bool known = false;  ///< the firmware knows that it is done
  };
  /// Operations in the flash, by their number from `first` on. So many have begun, and have ended.
  struct InFlash {
    std::deque<Times> times;
    std::uint64_t first = 0, begun = 0, ended = 0;
  };
  struct Entry {
    PageOpKind kind = PageOpKind::program;
    std::uint64_t place = 0;
    ftl::Namespace ns = ftl::Namespace::block;
    std::uint32_t to_give = 1, to_end = 1;             ///< pieces that are not given yet, or not done
    std::vector<std::pair<Key, std::uint64_t>> parts;  ///< in the flash, each with its number; empty: not given yet
  };
  enum class State : std::uint8_t { waiting, under_way, ended };
  State state_of(const Entry& entry, SimTime now) const;
  void note(std::uint32_t plane, OpClass op_class, PageOpKind kind, std::uint64_t InFlash::*counter,
            SimTime Times::*moment, SimTime at);
  std::list<Entry>::iterator find(PageOpKind kind, std::uint64_t place, std::uint32_t Entry::*left);
  void add_units(std::uint64_t line, std::vector<PhysicalPageAddress>& units) const;
  static void lose_kv(const Entry& entry, State state, ftl::PowerLoss& loss);

  FlashGeometry geometry_;
  std::uint32_t line_;
  ftl::BackingStore& store_;
  std::list<Entry> pending_;  ///< in the order of planning
  std::map<std::pair<PageOpKind, std::uint64_t>, std::deque<std::list<Entry>::iterator>> at_place_;
  std::map<Key, InFlash> in_flash_;
};

}  // namespace csdsim::csd_model

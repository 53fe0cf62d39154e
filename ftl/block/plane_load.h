// The planned work of each plane, to find the plane that can take a page first.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "ftl/core/stripe.h"

namespace csdsim::ftl {

/// Time for which an operation keeps the array of its plane busy.
struct ArrayTimes {
  SimTime read;
  SimTime program;
  SimTime erase;

  SimTime of(const PageOp& op) const {
    if (op.kind == PageOpKind::read) return read * (1 + op.retries);
    return op.kind == PageOpKind::program ? program : erase;
  }
};

/// Array time of the operations that are planned for each plane and not done. Planes that share an array have one load.
/// The code that plans an operation adds it; the code that sees its end removes it. least_from() takes O(log planes).
class PlaneLoad {
 public:
  /// `shared_arrays`: a die has one array for all its planes.
  PlaneLoad(const FlashGeometry& geometry, const StripeOrder& order, const ArrayTimes& times, bool shared_arrays);

  const ArrayTimes& times() const { return times_; }

  void add(PlaneId plane, SimTime work) { change(plane, work.ps); }
  void remove(PlaneId plane, SimTime work) { change(plane, -work.ps); }
  SimTime of(PlaneId plane) const { return {least_[leaf(stripe_.rank_of(plane))]}; }

  /// Rank in stripe order of the plane with the least load; of several, the first from `rank` on, in a circle.
  std::uint32_t least_from(std::uint32_t rank) const;

 private:
  std::uint32_t leaf(std::uint32_t rank) const { return leaves_ + rank; }
  void change(PlaneId plane, std::int64_t by);
  void set(std::uint32_t rank, std::int64_t load);
  std::uint32_t first_from(std::uint32_t rank, std::int64_t load) const;

  Stripe stripe_;
  ArrayTimes times_;
  std::uint32_t sharing_;  ///< planes per array
  std::uint32_t planes_;
  std::uint32_t leaves_;             ///< planes_, rounded up to a power of two
  std::vector<std::int64_t> least_;  ///< a tree: node i is the least of nodes 2i and 2i + 1; leaves in stripe order
};

}  // namespace csdsim::ftl

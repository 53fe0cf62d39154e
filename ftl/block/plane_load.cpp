#include "ftl/block/plane_load.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace csdsim::ftl {

PlaneLoad::PlaneLoad(const FlashGeometry& geometry, const StripeOrder& order, const ArrayTimes& times,
                     bool shared_arrays)
    : stripe_(geometry, order),
      times_(times),
      sharing_(shared_arrays ? geometry.planes_per_die : 1),
      planes_(geometry.planes()),
      leaves_(std::bit_ceil(planes_)),
      least_(2 * leaves_, std::numeric_limits<std::int64_t>::max()) {
  for (std::uint32_t rank = 0; rank < planes_; ++rank) set(rank, 0);
}

void PlaneLoad::set(std::uint32_t rank, std::int64_t load) {
  std::uint32_t node = leaf(rank);
  least_[node] = load;
  for (node /= 2; node > 0; node /= 2) {
    const std::int64_t least = std::min(least_[2 * node], least_[2 * node + 1]);
    if (least_[node] == least) return;
    least_[node] = least;
  }
}

void PlaneLoad::change(PlaneId plane, std::int64_t by) {
  const std::uint32_t first = plane.value / sharing_ * sharing_;
  for (std::uint32_t p = first; p < first + sharing_; ++p) {
    const std::uint32_t rank = stripe_.rank_of(PlaneId{p});
    set(rank, least_[leaf(rank)] + by);
  }
}

/// The first rank from `rank` on with at most this load; planes_ or more if there is none.
std::uint32_t PlaneLoad::first_from(std::uint32_t rank, std::int64_t load) const {
  std::uint32_t node = leaf(rank);
  while (least_[node] > load) {
    // The next subtree to the right; the root's right edge ends the search.
    while (node % 2 == 1) node /= 2;
    if (node == 0) return planes_;
    ++node;
  }
  while (node < leaves_) {
    node *= 2;
    if (least_[node] > load) ++node;
  }
  return node - leaves_;
}

std::uint32_t PlaneLoad::least_from(std::uint32_t rank) const {
  const std::int64_t least = least_[1];
  if (least_[leaf(rank)] == least) return rank;
  const std::uint32_t found = first_from(rank, least);
  return found < planes_ ? found : first_from(0, least);
}

}  // namespace csdsim::ftl

#include "ftl/core/dram_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/statistics.h"

namespace csdsim::ftl {

void DramBudget::charge(DramUse use, Bytes amount) {
  if (!fits(amount)) {
    throw InternalError(fmt::format("{} bytes of {} do not fit into controller DRAM: {} of {} are in use", amount.value,
                                    kDramUseNames[index(use)], total_.value, capacity_.value));
  }
  total_ += amount;
  used_[index(use)] += amount;
  total_peak_ = std::max(total_peak_, total_);
  peak_[index(use)] = std::max(peak_[index(use)], used_[index(use)]);
}

void DramBudget::release(DramUse use, Bytes amount) {
  if (amount > used_[index(use)]) {
    throw InternalError(fmt::format("{} bytes of {} are released, {} are held", amount.value, kDramUseNames[index(use)],
                                    used_[index(use)].value));
  }
  total_ -= amount;
  used_[index(use)] -= amount;
}

void DramBudget::register_statistics(Statistics& s) const {
  s.value(
      "capacity", [this] { return static_cast<double>(capacity_.value); }, "B", "Controller DRAM.");
  s.value(
      "peak", [this] { return static_cast<double>(total_peak_.value); }, "B", "Most of it in use.");
  for (std::size_t use = 0; use < kDramUses; ++use) {
    const bool engine = static_cast<DramUse>(use) == DramUse::engine_buffer;
    s.value(
        fmt::format("peak_{}", kDramUseNames[use]), [this, use] { return static_cast<double>(peak_[use].value); }, "B",
        "Most of it in use for this purpose.",
        engine ? skip_zero() : StatOptions());  // an engine with memory of its own takes none
  }
}

}  // namespace csdsim::ftl

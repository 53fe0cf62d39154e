#include "ftl/core/dram_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

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

}  // namespace csdsim::ftl

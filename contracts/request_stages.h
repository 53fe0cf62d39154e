// Parts of the time of a request to a drive, from the host's submission to its completion.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "contracts/page_op.h"

namespace csdsim {

enum class RequestStage : std::uint8_t {
  queue,       ///< waiting in the host's queue, until the drive has fetched it
  firmware,    ///< waiting for the drive's processors, and their work
  plane_wait,  ///< waiting for the planes, including work that must come first: garbage collection, merging of partial
               ///< writes
  bus_wait,    ///< this and the next ones: stages of the page operation that finished last, see FlashStage
  command,
  array,
  transfer,
  ecc,
  dram,  ///< waiting for controller DRAM, and moving bytes through it
  link,  ///< moving its data and its completion over the link
};
inline constexpr std::size_t kRequestStages = 10;
constexpr std::array<std::string_view, kRequestStages> kRequestStageNames{
    "queue", "firmware", "plane_wait", "bus_wait", "command", "array", "transfer", "ecc", "dram", "link"};

/// A clock that charges all time since its last call to one stage, so that the stages add up to the total without
/// remainder.
class RequestStages {
 public:
  void begin(SimTime now) {
    spent_.fill({});
    begun_ = last_ = now;
  }

  /// Charges the time since the last call to `stage`.
  void mark(RequestStage stage, SimTime now) {
    spent_[static_cast<std::size_t>(stage)] += now - last_;
    last_ = now;
  }

  /// Charges the stages of a finished batch of page operations, and the time of its bytes in DRAM. Of what began before
  /// the last call, only the end counts.
  void add_flash(const FlashStages& stages, SimTime dram, SimTime now) {
    SimTime known = dram;
    for (const SimTime t : stages) known += t;
    SimTime before = std::max(known - (now - last_), SimTime{});
    const auto charge = [&](std::size_t stage, SimTime time) {
      const SimTime counted = time - std::min(time, before);
      before -= time - counted;
      spent_[stage] += counted;
      last_ += counted;
    };
    for (std::size_t i = 0; i < kFlashStages; ++i) charge(kFirstFlashStage + i, stages[i]);
    charge(static_cast<std::size_t>(RequestStage::dram), dram);
  }

  SimTime begun() const { return begun_; }
  SimTime last() const { return last_; }
  SimTime spent(RequestStage stage) const { return spent_[static_cast<std::size_t>(stage)]; }

 private:
  static constexpr std::size_t kFirstFlashStage = static_cast<std::size_t>(RequestStage::plane_wait);
  static_assert(kRequestStageNames[kFirstFlashStage + kFlashStages - 1] == kFlashStageNames[kFlashStages - 1]);

  SimTime begun_;
  SimTime last_;
  std::array<SimTime, kRequestStages> spent_{};
};

}  // namespace csdsim

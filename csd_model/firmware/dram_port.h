// The bandwidth of controller DRAM, which everything in the drive shares.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <systemc>
#include <utility>

#include "base/units.h"
#include "base/work_observer.h"
#include "csd_model/firmware/pooled_work.h"
#include "csd_model/firmware/timed_work.h"

namespace csdsim {
class Statistics;
}

namespace csdsim::csd_model {

enum class DramTraffic : std::uint8_t {
  host_data,      ///< between the link and DRAM
  flash_data,     ///< between DRAM and the flash controllers; reads of the attention engine bypass DRAM
  map,            ///< entries of the mapping tables
  kv_tail,        ///< keys and values read for attention that are in no flash page yet
  engine_buffer,  ///< scores and sums of the attention engine, where it keeps them in DRAM
  records         ///< pages of neuron records read for the engine that are in no flash page yet
};
inline constexpr std::size_t kDramTraffics = 6;
inline constexpr std::array<std::string_view, kDramTraffics> kDramTrafficNames{"host_data", "flash_data",    "map",
                                                                               "kv_tail",   "engine_buffer", "records"};

/// One bandwidth, shared first come first served. Without a bandwidth nothing waits and nothing is counted.
class DramPort : public sc_core::sc_module {
 public:
  using Work = TimedWork::Work;

  /// Bytes moved per lookup of a mapping entry: a burst of eight beats of 64 bits (JEDEC DDR3 and DDR4).
  static constexpr Bytes kEntryBurst{64};

  /// With `unit`, which a bandwidth needs, a module that it makes moves the bytes; its `amount` is their number, and
  /// the `kind` of a request is its DramTraffic + 1.
  DramPort(const sc_core::sc_module_name& name, std::optional<Bandwidth> bandwidth,
           const UnitPool::Make& unit = nullptr);

  bool limited() const { return bandwidth_.has_value(); }

  /// Moves `size` bytes and then calls back: at once where nothing is limited. Size 0 waits for earlier requests.
  template <class Then>
  void move(DramTraffic traffic, Bytes size, Then then) {
    if (!limited()) return then();
    move_limited(traffic, size, std::move(then));
  }
  /// Takes its share of the bandwidth without waiting: for data that streams through DRAM during another transfer of
  /// the same bytes that takes longer.
  void stream(DramTraffic traffic, Bytes size) {
    if (pool_ != nullptr) return give(traffic, size, nullptr);
    if (limited()) reserve(traffic, size);
  }

  /// The power fails: nothing is moved, and nobody is called back any more. Not with a unit.
  void forget();

  Bytes bytes(DramTraffic traffic) const { return bytes_[static_cast<std::size_t>(traffic)]; }
  Bytes total_bytes() const {
    Bytes sum;
    for (const Bytes bytes : bytes_) sum += bytes;
    return sum;
  }
  const SimTime& busy() const { return busy_; }
  /// The same up to `now`; busy() counts bytes when they are asked for.
  SimTime busy_until(SimTime now) const {
    return busy_ - (pool_ != nullptr ? pool_->ahead(now) : std::max(free_at_ - now, SimTime{}));
  }
  /// Time that requests waited for others.
  SimTime waited() const { return waited_; }
  /// Has one unit; it must outlive the port.
  void observe(WorkObserver* observer) { observer_ = observer; }
  /// Registers busy time and traffic by kind; the port must outlive the dump.
  void register_statistics(Statistics& statistics) const;

  void trace(sc_core::sc_trace_file* file) const override {
    if (pool_ != nullptr) pool_->trace(file);
  }

 private:
  SimTime count(DramTraffic traffic, Bytes size);
  SimTime reserve(DramTraffic traffic, Bytes size);
  void move_limited(DramTraffic traffic, Bytes size, Work then);
  void give(DramTraffic traffic, Bytes size, Work then);

  std::optional<Bandwidth> bandwidth_;
  SimTime free_at_;
  SimTime busy_;
  SimTime waited_;
  std::array<Bytes, kDramTraffics> bytes_{};
  TimedWork work_;
  WorkObserver* observer_ = nullptr;
  std::unique_ptr<PooledWork> pool_;  ///< null: `free_at_` and `work_` take its place
};

}  // namespace csdsim::csd_model

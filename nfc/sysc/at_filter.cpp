#include "nfc/sysc/at_filter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "nfc/sysc/sim_time.h"

namespace csdsim::nfc {
namespace {

/// The filter of the model.
class FilterUnit final : public UnitModule {
 public:
  FilterUnit(const sc_core::sc_module_name& name, Bandwidth bandwidth) : UnitModule(name), bandwidth_(bandwidth) {}

 protected:
  SimTime time_of(std::uint64_t bytes, std::uint32_t) const override { return transfer_time(Bytes{bytes}, bandwidth_); }

 private:
  Bandwidth bandwidth_;
};

}  // namespace

AtFilter::AtFilter(const sc_core::sc_module_name& name, const FlashTiming& timing, std::uint32_t channel,
                   const UnitPool::Make& make, FlashStatistics& statistics, Passed passed)
    : sc_module(name),
      bandwidth_(timing.filter_bandwidth.value_or(Bandwidth{})),
      channel_(channel),
      statistics_(statistics),
      passed_(std::move(passed)),
      unit_(
          "pages", 1,
          [&](std::uint32_t) {
            UnitParts parts = make ? make(channel) : UnitParts{};
            if (parts.module == nullptr)
              parts = parts_of(std::make_unique<FilterUnit>("unit", *timing.filter_bandwidth));
            return parts;
          },
          [this](const UnitPool::End& e) { end(e); }) {}

SimTime AtFilter::time_of(const AtOp& op) const { return transfer_time(Bytes{op.op.channel_bytes}, bandwidth_); }

void AtFilter::take(const AtOp& op) {
  const SimTime expected = time_of(op);
  SimTime& free = statistics_.filter_free[channel_];
  free = std::max(free, sim_time_now()) + expected;
  statistics_.filter_busy[channel_] += expected;
  pages_.push_back(op);
  unit_.request({.amount = op.op.channel_bytes, .expected = expected});
}

/// A user's unit may have taken another time than time_of().
void AtFilter::end(const UnitPool::End& end) {
  AtOp op = pages_.front();
  pages_.pop_front();
  const SimTime more = end.worked - time_of(op);
  statistics_.filter_busy[channel_] += more;
  statistics_.filter_free[channel_] += more;
  statistics_.filter_waited += end.waited;
  if (observer_ != nullptr)
    observer_->work(channel_, "filter", sim_time_now() - end.worked, sim_time_now(), op.op.channel_bytes);
  op.account(FlashStage::ecc, sim_time_now());
  passed_(op);
}

}  // namespace csdsim::nfc

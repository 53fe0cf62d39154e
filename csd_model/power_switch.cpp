#include "csd_model/power_switch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "csd_model/mapping_units.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {
namespace {

/// The reads of the metadata of all pages that were handed out in these blocks.
ftl::Phase scan_reads(const DriveConfig& config, const std::vector<ftl::BlockRecord>& blocks) {
  const FlashGeometry geometry = reclaim_flash(config).geometry;
  const Bytes least = config.block.codeword.value > 0 ? config.block.codeword : geometry.page_size;
  ftl::Phase reads;
  for (const ftl::BlockRecord& record : blocks) {
    if (record.state == ftl::BlockState::free) continue;
    const std::uint64_t first = std::uint64_t{record.block.value} * geometry.pages_per_block;
    for (std::uint32_t unit = 0; unit < record.written; unit += packing(config).units)
      reads.push_back({.ppa = {first + unit},
                       .kind = PageOpKind::read,
                       .op_class = OpClass::gc,
                       .channel_bytes = static_cast<std::uint32_t>(least.value)});
  }
  return reads;
}

}  // namespace

PowerSwitch::PowerSwitch(const DriveConfig& config, const Parts& parts)
    : config_(config), parts_(parts), ledger_(reclaim_flash(config).geometry, packing(config).line(), parts.store) {
  if (!config.may_lose_power) return;
  if (!parts_.flash.observe_changes(ledger_)) throw UserError("drive: this flash model cannot lose power");
  parts_.store.keep_until_erased();
  parts_.service.plans().keep(ledger_);
}

void PowerSwitch::off() {
  if (!config_.may_lose_power) throw UserError("drive: power_off() needs DriveConfig::may_lose_power");
  if (state_ == State::off) throw UserError("drive: the power is off already");
  parts_.flash.statistics();  // the flash decides all that is due by now
  const FlashLedger::Found found = parts_.service.lose_power();
  // A recovery under way has changed nothing yet.
  if (state_ == State::on) save(found);
  parts_.store.lose_power(found.loss);
  parts_.flash.forget();
  parts_.flash_io.forget();
  parts_.dram_port.forget();
  parts_.cores.forget();
  if (parts_.pipeline != nullptr) parts_.pipeline->forget();
  parts_.dma.forget();
  parts_.controller.power_off();
  parts_.activity.forget(sim_time_now());
  scan_due_.cancel();
  ready_ = nullptr;
  state_ = State::off;
  ++losses_.cuts;
  losses_.torn_programs += found.torn;
  losses_.half_erases += found.half_erased;
}

void PowerSwitch::save(const FlashLedger::Found& found) {
  ftl::PowerCut cut = found.cut;
  cut.capacitors = config_.power_loss.capacitors() != nullptr;
  dump_ = parts_.ftl.power_loss(cut);
  dump_end_ = sim_time_now();
  if (cut.capacitors)
    dump();
  else
    losses_.lost_units += dump_.in_dram;
}

/// What capacitors save. The images that their energy is not enough for are lost.
void PowerSwitch::dump() {
  std::ranges::sort(dump_.images, {}, &ftl::BlockDump::Image::stamp);
  const auto cost = [&] { return config_.dump ? config_.dump(dump_.saved()) : PowerLossDump{}; };
  const std::optional<Energy> energy = config_.power_loss.capacitors()->energy;
  for (; energy && !dump_.images.empty() && cost().joules > energy->joules(); ++losses_.lost_protected)
    dump_.images.pop_back();
  const PowerLossDump written = cost();
  dump_end_ = sim_time_now() + written.time;
  losses_.dumped_units += dump_.images.size();
  losses_.dumped += dump_.saved();
  losses_.dump_time += written.time;
  losses_.dump_joules += written.joules;
}

void PowerSwitch::on(std::function<void()> ready) {
  if (state_ != State::off) throw UserError("drive: the power is on already");
  state_ = State::recovering;
  ready_ = std::move(ready);
  switched_on_ = sim_time_now();
  scan_due_.set(std::max(switched_on_, dump_end_));
}

void PowerSwitch::scan() {
  ftl::Phase reads = scan_reads(config_, dump_.blocks);
  parts_.service.plans().resolve(reads);
  if (reads.empty()) return recover();
  parts_.flash_io.submit(reads, [this] { recover(); });
}

void PowerSwitch::recover() {
  const ReclaimFlash flash = reclaim_flash(config_);
  parts_.blocks = ftl::BlockManager(flash.geometry, flash.quota, config_.blocks);
  parts_.ftl.forget();
  parts_.service.connect();
  ftl::BlockRecovery found = parts_.ftl.recover(dump_);
  losses_.scanned_pages += found.oob_reads;
  losses_.stale_units += found.stale_pages;
  losses_.lost_protected += found.lost_pages.size();
  const SimTime took = sim_time_now() - switched_on_;
  ++losses_.recoveries;
  losses_.recovery_time += took;
  losses_.longest_recovery = std::max(losses_.longest_recovery, took);
  parts_.service.run_plan(std::move(found.plan), [] {});
  state_ = State::on;
  parts_.controller.power_on();
  if (const auto ready = std::exchange(ready_, nullptr)) ready();
}

}  // namespace csdsim::csd_model

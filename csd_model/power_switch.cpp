#include "csd_model/power_switch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "attention_engine/sysc/attention_engine.h"
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
    const bool empty = record.ns == ftl::Namespace::kv && record.state == ftl::BlockState::erasing;
    if (empty || record.state == ftl::BlockState::free) continue;
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
  if (parts_.engine == nullptr) throw UserError("drive: an engine that is not the model's own cannot lose power");
  parts_.store.keep_until_erased();
  parts_.service.plans().keep(ledger_);
  parts_.kv_service.flushes().keep(ledger_);
}

void PowerSwitch::off() {
  if (!config_.may_lose_power) throw UserError("drive: power_off() needs DriveConfig::may_lose_power");
  if (state_ == State::off) throw UserError("drive: the power is off already");
  parts_.flash.statistics();  // the flash decides all that is due by now
  const FlashLedger::Found found = parts_.service.lose_power();
  parts_.kv_service.lose_power();
  parts_.feed_forward.forget();
  // A recovery under way has changed nothing yet.
  if (state_ == State::on) save(found);
  parts_.store.lose_power(found.loss);
  parts_.kv_store.lose_power(found.kv_loss);
  parts_.flash.forget();
  parts_.flash_frontend.forget();
  parts_.engine->forget();
  parts_.engine_io.forget();
  parts_.lookup.forget();
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
  kv_dump_ = parts_.kv_ftl.power_loss();
  dump_end_ = sim_time_now();
  if (cut.capacitors)
    dump();
  else
    losses_.lost_units += dump_.in_dram;
}

/// What capacitors save. What their energy is not enough for is lost: the newest pages of blocks, then pages of K and V
/// whose programs have not completed, and with them their sequences, then all of the KV namespace.
void PowerSwitch::dump() {
  std::ranges::sort(dump_.images, {}, &ftl::SavedImage::stamp);
  const std::optional<Energy> energy = config_.power_loss.capacitors()->energy;
  Bytes size = dump_.saved() + kv_dump_.size().saved();
  const auto cost = [&] { return config_.dump ? config_.dump(size) : PowerLossDump{}; };
  const auto fits = [&] { return !energy || cost().joules <= energy->joules(); };
  for (; !dump_.images.empty() && !fits(); ++losses_.lost_protected) {
    size = size - dump_.images.back().saved();
    dump_.images.pop_back();
  }
  for (; !kv_dump_.images.empty() && !fits(); kv_dump_.images.pop_back()) size = size - kv_dump_.images.back().saved();
  if (!kv_dump_.sequences.empty() && !fits()) {
    losses_.lost_sequences += kv_dump_.sequences.size();
    kv_dump_.sequences.clear();
    kv_dump_.segments.clear();
    size = dump_.saved();
  }
  const PowerLossDump written = cost();
  dump_end_ = sim_time_now() + written.time;
  losses_.dumped_units += dump_.images.size();
  losses_.dumped_pages += kv_dump_.images.size();
  losses_.dumped += size;
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
  parts_.kv_ftl.forget(make_mapping(config_));
  parts_.service.connect();
  ftl::BlockRecovery found;
  ftl::RecoveryResult kv = parts_.kv_ftl.recover(kv_dump_, [&] { found = parts_.ftl.recover(dump_); });
  losses_.scanned_pages += found.oob_reads + kv.oob_reads;
  losses_.stale_units += found.stale_pages + kv.stale_pages;
  losses_.lost_sequences += kv.lost_sequences.size();
  parts_.service.run_plan(std::move(found.plan), [] {});
  parts_.kv_service.flushes().plan(kv.jobs);
  state_ = State::on;
  const ftl::Phase reads = std::move(kv.reads);
  const auto go_on = [this, kv = std::make_shared<ftl::RecoveryResult>(std::move(kv))] {
    parts_.kv_service.flushes().resume(std::move(*kv));
    answer();
  };
  if (reads.empty()) return go_on();
  parts_.flash_io.submit(reads, go_on);
}

void PowerSwitch::answer() {
  const SimTime took = sim_time_now() - switched_on_;
  ++losses_.recoveries;
  losses_.recovery_time += took;
  losses_.longest_recovery = std::max(losses_.longest_recovery, took);
  parts_.controller.power_on();
  if (const auto ready = std::exchange(ready_, nullptr)) ready();
}

}  // namespace csdsim::csd_model

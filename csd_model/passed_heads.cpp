#include "csd_model/passed_heads.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "csd_model/drive.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"
#include "csd_model/firmware/kv_service.h"
#include "nfc/sysc/flash_target.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

namespace {

DriveTotals scaled(DriveTotals totals, double by) {
  const auto scale = [by](auto& value) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, SimTime>)
      value.ps = std::llround(by * double(value.ps));
    else
      value = static_cast<std::uint64_t>(std::llround(by * double(value)));
  };
  std::apply([&](auto... field) { (scale(totals.*field), ...); }, DriveTotals::fields());
  return totals;
}

StationTimes scaled(StationTimes times, double by) {
  for (double& busy : times.busy.values) busy *= by;
  for (double& waited : times.waited.values) waited *= by;
  return times;
}

}  // namespace

bool PassedHeads::steady() const { return kv_.steady(); }

std::uint64_t PassedHeads::page_ops() { return flash_.statistics().total_ops(); }

PassedHeads::Mark PassedHeads::mark() const {
  const SimTime now = sim_time_now();
  return {drive_.simulated_totals(), drive_.simulated_station_times(), activity_.until(now), activity_.loads(),
          drive_.dram_port().bytes(DramTraffic::map).value};
}

void PassedHeads::pass_over(const engine::PassedOver& heads) {
  using enum DriveStation;
  const SimTime now = sim_time_now();
  before_.work = work(now);
  before_.stations = stations(now);
  since_ = now;
  until_ = now + heads.time;

  const DriveTotals window = end_.totals - begin_.totals;
  const double by_pages = heads.of_window_pages, by_heads = heads.of_window_jobs;
  DriveTotals of_flash;
  of_flash.read_busy = window.read_busy;
  of_flash.channel_busy = window.channel_busy;
  of_flash.page_ops = window.page_ops;
  of_flash.channel_bytes = window.channel_bytes;
  of_flash.retry_bytes = window.retry_bytes;
  if (drive_.dram_port().limited()) of_flash.dram_bytes = end_.map_bytes - begin_.map_bytes;
  last_.work = scaled(of_flash, by_pages);
  last_.work.macs = heads.macs;
  last_.work.engine_bytes = heads.engine_bytes.value;

  last_.stations = {};
  const auto take = [&](DriveStation station, double by) {
    last_.stations.busy[station] = by * (end_.stations.busy[station] - begin_.stations.busy[station]);
    last_.stations.waited[station] = by * (end_.stations.waited[station] - begin_.stations.waited[station]);
  };
  for (const DriveStation station : {lookup_cores, page_buffers, flash_arrays, flash_channels, filters})
    take(station, by_pages);
  for (const DriveStation station : {kernels, softmax, scoring, argtopk}) take(station, by_heads);
  if (window.dram_bytes > 0 && of_flash.dram_bytes > 0)
    take(dram, by_pages * double(of_flash.dram_bytes) / double(window.dram_bytes));

  heads_ += heads.jobs;
  error_.variance += heads.deviation * heads.deviation;
  error_.drift += heads.drift;
  activity_.repeat(end_.activity - begin_.activity, until_, end_.loads - begin_.loads, by_pages, now);
  cores_.stand_still_for(heads.time);
  flash_.stand_still_until(until_);
}

/// The part of the last standstill that has passed.
double PassedHeads::part(SimTime now) const {
  if (now >= until_) return 1;
  return double((now - since_).ps) / double((until_ - since_).ps);
}

DriveTotals PassedHeads::work(SimTime now) const { return before_.work + scaled(last_.work, part(now)); }

StationTimes PassedHeads::stations(SimTime now) const {
  StationTimes all = before_.stations;
  return all += scaled(last_.stations, part(now));
}

}  // namespace csdsim::csd_model

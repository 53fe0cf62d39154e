#include "csd_model/drive_activity.h"

#include <algorithm>
#include <bit>

namespace csdsim::csd_model {

void DriveActivity::begin_reads(std::span<const PageOp> ops, SimTime now) {
  settle(now);
  take(DriveStation::flash_arrays);
  take(DriveStation::flash_channels);
  if (filters()) take(DriveStation::filters);
  for (const PageOp& op : ops) {
    const std::int64_t times = 1 + op.retries;
    add_load(DriveStation::flash_arrays, flash_.sense * times, flash_.planes);
    add_load(DriveStation::flash_channels, channel_time(op.channel_bytes) * times, flash_.channels);
    if (filters())
      add_load(DriveStation::filters, transfer_time(Bytes{op.channel_bytes}, flash_.filter_bandwidth), flash_.channels);
  }
}

void DriveActivity::end_reads(const FlashStages& stages, SimTime now) {
  end(DriveStation::flash_arrays, now);
  end(DriveStation::flash_channels, now);
  if (filters()) end(DriveStation::filters, now);
  const auto stage = [&](FlashStage s) { return stages[static_cast<std::size_t>(s)]; };
  waited_[DriveStation::flash_arrays] += stage(FlashStage::plane_wait);
  waited_[DriveStation::flash_channels] += stage(FlashStage::bus_wait);
  SimTime held = in_buffer(stages);
  if (flash_.buffer_at_issue) held += stage(FlashStage::command) + stage(FlashStage::array);
  work_on_page(held);
}

void DriveActivity::repeat(const ActivitySplit& window, SimTime end, const PerStation<double>& loads, double times,
                           SimTime now) {
  settle(now);
  repeated_ = window;
  repeats_until_ = end;
  for (std::size_t i = 0; i < kDriveStations; ++i) load_.values[i] += times * loads.values[i];
}

void DriveActivity::repeat_until(SimTime end) {
  const SimTime passed = end - since_;
  const auto whole = double((repeated_.flash + repeated_.engine + repeated_.other).ps);
  // Rounded down, so that parts never exceed the whole.
  const auto share = [&](SimTime part) {
    return SimTime{static_cast<std::int64_t>(double(passed.ps) * (double(part.ps) / whole))};
  };
  const SimTime engine = share(repeated_.engine), other = share(repeated_.other);
  split_.engine += engine;
  split_.other += other;
  split_.flash += passed - engine - other;
  for (std::size_t i = 0; i < kDriveStations; ++i) split_.stations.values[i] += share(repeated_.stations.values[i]);
  since_ = end;
}

void DriveActivity::blame(SimTime passed) {
  bool reserved = false;
  for (Watched& w : watched_) {
    if (*w.busy == w.seen && w.backlog.ps == 0) {
      w.worked = {};
      continue;
    }
    w.backlog += SimTime{(*w.busy - w.seen).ps / w.units};
    w.seen = *w.busy;
    w.worked = std::min(w.backlog, passed);
    w.backlog -= w.worked;
    reserved = reserved || w.worked.ps > 0;
    if (attends()) load_[w.station] += static_cast<double>(w.worked.ps);
  }
  bool any = false;
  DriveStation most{};
  for (std::uint32_t left = working_; left != 0; left &= left - 1) {
    const auto station = static_cast<DriveStation>(std::countr_zero(left));
    if (any && load_[station] <= load_[most]) continue;
    most = station;
    any = true;
  }
  SimTime left = passed;
  while (reserved && left.ps > 0) {
    Watched* first = nullptr;
    for (Watched& w : watched_)
      if (w.worked.ps > 0 && (first == nullptr || load_[w.station] > load_[first->station])) first = &w;
    if (first == nullptr || (any && load_[first->station] <= load_[most])) break;
    const SimTime time = std::min(first->worked, left);
    charge(first->station, time);
    left -= time;
    first->worked = {};
  }
  if (any) charge(most, left);
}

void DriveActivity::charge(DriveStation station, SimTime time) {
  if (station == DriveStation::kernels && kernels_ > 0) {
    const SimTime softmax{static_cast<std::int64_t>(static_cast<double>(time.ps) * softmax_ / kernels_)};
    split_.stations[DriveStation::softmax] += softmax;
    time -= softmax;
  }
  split_.stations[station] += time;
}

}  // namespace csdsim::csd_model

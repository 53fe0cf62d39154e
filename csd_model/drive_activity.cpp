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
    const std::uint32_t times = 1U + op.retries;
    if (op.channel_bytes != page_load_.bytes || times != page_load_.times)
      page_load_ = load_of(op.channel_bytes, times);
    add_load(DriveStation::flash_arrays, page_load_.arrays);
    add_load(DriveStation::flash_channels, page_load_.channels);
    if (filters()) add_load(DriveStation::filters, page_load_.filters);
  }
}

DriveActivity::PageLoad DriveActivity::load_of(std::uint32_t bytes, std::uint32_t times) const {
  const SimTime channel = flash_.command + transfer_time(Bytes{bytes}, flash_.channel_bandwidth);
  return {.bytes = bytes,
          .times = times,
          .arrays = load(flash_.sense * times, flash_.planes),
          .channels = load(channel * times, flash_.channels),
          .filters = filters() ? load(transfer_time(Bytes{bytes}, flash_.filter_bandwidth), flash_.channels) : 0};
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
  find_most();
}

void DriveActivity::find_most() {
  if (working_ == 0) return;
  most_ = static_cast<DriveStation>(std::countr_zero(working_));
  for (std::uint32_t left = working_ & (working_ - 1); left != 0; left &= left - 1) {
    const auto station = static_cast<DriveStation>(std::countr_zero(left));
    if (load_[station] > load_[most_]) most_ = station;
  }
}

/// Divides the time up to `now`.
void DriveActivity::pass_to(SimTime now) {
  if (since_ < repeats_until_) [[unlikely]] {
    repeat_until(std::min(now, repeats_until_));
    if (now == since_) return;
  }
  const SimTime passed = now - since_;
  SimTime& hand = page_batches_ > 0 ? split_.flash : tasks_ > 0 ? split_.engine : split_.other;
  hand += passed;
  held_ += passed * active_[DriveStation::page_buffers];
  since_ = now;
  bool reserved = backlog_;
  for (const Watched& w : watched_) reserved |= *w.busy != w.seen;
  if (reserved) return blame_watched(passed);
  if (working_ != 0) charge(most_, passed);
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

/// Blames a station for the time that has passed, where some of those that reserve time in advance have work.
void DriveActivity::blame_watched(SimTime passed) {
  bool reserved = false;
  backlog_ = false;
  for (Watched& w : watched_) {
    w.backlog += SimTime{(*w.busy - w.seen).ps / w.units};
    w.seen = *w.busy;
    w.worked = std::min(w.backlog, passed);
    w.backlog -= w.worked;
    backlog_ = backlog_ || w.backlog.ps != 0;
    reserved = reserved || w.worked.ps > 0;
    if (attends()) add_load(w.station, static_cast<double>(w.worked.ps));
  }
  const bool any = working_ != 0;
  SimTime left = passed;
  while (reserved && left.ps > 0) {
    Watched* first = nullptr;
    for (Watched& w : watched_)
      if (w.worked.ps > 0 && (first == nullptr || load_[w.station] > load_[first->station])) first = &w;
    if (first == nullptr || (any && load_[first->station] <= load_[most_])) break;
    const SimTime time = std::min(first->worked, left);
    charge(first->station, time);
    left -= time;
    first->worked = {};
  }
  if (any) charge(most_, left);
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

// What pages of K and V take from channels, planes and the way to an engine behind a switch, in closed form.
#pragma once

#include "base/units.h"
#include "csd_model/drive_config.h"
#include "csd_model/kv_rates.h"

namespace csdsim::csd_model {

inline double seconds(SimTime t) { return t.seconds(); }
inline double per_second(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }
inline double page_bytes(const DriveConfig& drive) { return static_cast<double>(drive.geometry.page_size.value); }

/// Time that `data` bytes of a page take from its channel: command cycles and the transfer, parity included. If the
/// filter is slower, the time in the filter.
double channel_time(const DriveConfig& drive, Bytes data);
/// Of a whole page.
double channel_time(const DriveConfig& drive);

/// What a read of one token moves: the codewords of its group, or the whole page.
Bytes fetched(const DriveConfig& drive);

/// Bytes per second over the switch, `of_page` of each page: the link, the FPGA's DRAM, or `outstanding` requests one
/// after another. Only with peer reads.
double peer_rate(const DriveConfig& drive, const KvRequestShape& shape, Bytes of_page);

/// Bytes per second that reach the engine, where `of_page` of each page are read.
double page_rate(const DriveConfig& drive, const KvRequestShape& shape, Bytes of_page);

/// Time until the first page of a command is there, or what of it comes first, besides what the rates say.
double first_page_time(const DriveConfig& drive);

}  // namespace csdsim::csd_model

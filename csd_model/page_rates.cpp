#include "csd_model/page_rates.h"

#include <algorithm>
#include <cmath>

namespace csdsim::csd_model {

namespace {

/// A request over the switch of `size` bytes, `of_page` of each page: its first codeword (or page) and all bytes at the
/// rate of a request, or what its channels carry.
double request_time(const DriveConfig& drive, double size, Bytes of_page) {
  const double rate = per_second(drive.peer_reads->request_bandwidth);
  const double piece = static_cast<double>(drive.peer_piece().value);
  const double pages = std::ceil(size / static_cast<double>(of_page.value));
  const double rounds = std::max(1.0, pages / drive.geometry.channels);
  const double carried = rounds * channel_time(drive, std::min(of_page, Bytes{static_cast<std::uint64_t>(size)}));
  return seconds(drive.peer_reads->command_time + drive.flash.read_latency) +
         std::max(channel_time(drive, drive.peer_piece()) + size / rate, carried + piece / rate);
}

}  // namespace

double channel_time(const DriveConfig& drive, Bytes data) {
  const Bandwidth filter = drive.flash.filter_bandwidth.value_or(Bandwidth{});
  const double carrying =
      seconds(drive.flash.command_time + drive.flash.data_out_setup) +
      nfc::bus_bytes(drive.flash, static_cast<std::uint32_t>(data.value)) / per_second(drive.flash.channel_bandwidth);
  if (filter.bytes_per_second == 0) return carrying;
  return std::max(carrying, static_cast<double>(data.value) / per_second(filter));
}

double channel_time(const DriveConfig& drive) { return channel_time(drive, drive.geometry.page_size); }

Bytes fetched(const DriveConfig& drive) {
  const Bytes page = drive.geometry.page_size;
  return drive.kv.codeword.value > 0 ? std::min(page, drive.kv.codeword * drive.kv.group_codewords) : page;
}

double peer_rate(const DriveConfig& drive, const KvRequestShape& shape, Bytes of_page) {
  const PeerReadConfig& reads = *drive.peer_reads;
  const double of_head = static_cast<double>(shape.tokens) * shape.head_dim * sizeof(Half);
  const double least = static_cast<double>(drive.peer_piece().value);
  const double size = std::max(least, std::min(static_cast<double>(reads.request_size.value), of_head));
  // Each page is written to the FPGA's DRAM and read from it.
  const double link = std::min(per_second(reads.bandwidth), per_second(reads.dram_bandwidth) / 2);
  return std::min(link, reads.outstanding * size / request_time(drive, size, of_page));
}

double page_rate(const DriveConfig& drive, const KvRequestShape& shape, Bytes of_page) {
  const double bytes = static_cast<double>(of_page.value), carrying = channel_time(drive, of_page);
  const double channels = drive.geometry.channels * bytes / carrying;
  const double planes = drive.geometry.planes() * bytes / (seconds(drive.flash.read_latency) + carrying);
  const double flash = std::min(channels, planes);
  return drive.peer_reads ? std::min(flash, peer_rate(drive, shape, of_page)) : flash;
}

double first_page_time(const DriveConfig& drive) {
  if (!drive.peer_reads) return seconds(drive.flash.read_latency) + channel_time(drive);
  return seconds(drive.flash.read_latency + drive.peer_reads->command_time) + channel_time(drive, drive.peer_piece());
}

}  // namespace csdsim::csd_model

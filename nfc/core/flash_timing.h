// Timing parameters of the flash behind one drive, and the array time of a read.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/units.h"

namespace csdsim::nfc {

/// Whom a free channel bus serves among those that have asked by the time of the grant. Within a rank the earlier ask
/// wins, then the operation that was submitted first.
enum class BusArbitration : std::uint8_t {
  fifo,           ///< commands and data-outs in one order
  command_first,  ///< commands (those of program and erase included) before data-outs: keeps the arrays busy
  data_first,     ///< data-outs before commands: frees page registers
};

/// Latencies of array and bus. Defaults are those of the scenario's `flash` section.
struct FlashTiming {
  SimTime read_latency = SimTime::microseconds(50);      ///< tR, array to page register
  SimTime program_latency = SimTime::microseconds(600);  ///< tPROG, > 0
  SimTime erase_latency = SimTime::milliseconds(3);      ///< tBERS, > 0
  SimTime command_time = SimTime::nanoseconds(290);      ///< command and address cycles on the bus
  SimTime data_out_setup = SimTime::nanoseconds(30);     ///< bus time in front of the bytes of a data-out
  SimTime ecc_latency{};                                 ///< decoding after the last byte; the bus and plane are free
  Bandwidth channel_bandwidth{1'400'000'000};            ///< of one channel, > 0
  BusArbitration arbitration = BusArbitration::command_first;
  SimTime read_jitter{};   ///< extra tR of each read, uniform in [0, read_jitter]
  std::uint64_t seed = 0;  ///< of the jitter
};

/// Throws UserError naming the parameter when a latency is negative, a program or erase takes no time, or the channel
/// has no bandwidth.
void validate(const FlashTiming& timing);

/// Throws UserError naming the parameter when a count or the page size is 0, a page does not fit 32 bits, or the plane
/// or page count overflows (planes: 32 bits, pages: 2^63).
void validate(const FlashGeometry& geometry);

/// Array time of the read that was submitted as number `sequence` (from 0) to its drive: tR plus its jitter. A pure
/// function, so that every model of the same drive draws the same times.
constexpr SimTime read_time(const FlashTiming& timing, std::uint64_t sequence) {
  if (timing.read_jitter.ps == 0) return timing.read_latency;
  std::uint64_t z = timing.seed + (sequence + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64 (Steele et al., OOPSLA 2014)
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  const auto span = static_cast<std::uint64_t>(timing.read_jitter.ps) + 1;
  const auto extra = static_cast<std::uint64_t>((static_cast<unsigned __int128>(z) * span) >> 64);
  return timing.read_latency + SimTime{static_cast<std::int64_t>(extra)};
}

}  // namespace csdsim::nfc

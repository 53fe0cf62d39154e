#include "csd_model/power_loss_dump.h"

#include <algorithm>
#include <cstdint>

#include "csd_model/energy.h"

namespace csdsim::csd_model {
namespace {

Bytes word_line(const nfc::FlashConfig& flash) { return flash.geometry.page_size * flash.word_line_pages; }

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

PowerLossDump power_loss_dump(const DeviceConfig& device, Bytes size) {
  const nfc::FlashConfig& flash = device.flash;
  const std::uint64_t lines = divide_up(size.value, word_line(flash).value);
  const std::uint64_t rounds = divide_up(lines, flash.geometry.planes());
  const std::uint64_t on_channel = divide_up(lines, flash.geometry.channels);
  const Bytes bytes = word_line(flash) * lines;
  PowerLossDump dump;
  dump.time = transfer_time(word_line(flash) * on_channel, flash.channel_bandwidth) +
              SimTime{flash.program_latency.ps * static_cast<std::int64_t>(rounds)};
  const EnergyParts parts{
      .dies = flash.geometry.channels * flash.geometry.dies_per_channel,
      .dram_gib = static_cast<double>(device.dram.capacity.value) / static_cast<double>(Bytes::gib(1).value),
      .engine = false};
  const DriveWork work{.elapsed = dump.time.seconds(),
                       .program_busy = flash.program_latency.seconds() * static_cast<double>(lines),
                       .channel_bytes = static_cast<double>(bytes.value),
                       .dram_bytes = static_cast<double>(bytes.value)};
  dump.joules = total(energy(device.energy, parts, work));
  return dump;
}

Bytes bytes_dumped(const DeviceConfig& device, Energy energy, Bytes size) {
  std::uint64_t fits = 0, beyond = divide_up(size.value, word_line(device.flash).value) + 1;
  while (beyond - fits > 1) {
    const std::uint64_t lines = fits + (beyond - fits) / 2;
    (power_loss_dump(device, word_line(device.flash) * lines).joules <= energy.joules() ? fits : beyond) = lines;
  }
  return std::min(size, word_line(device.flash) * fits);
}

}  // namespace csdsim::csd_model

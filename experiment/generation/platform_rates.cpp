#include "experiment/generation/platform_rates.h"

#include <algorithm>

#include "ftl/core/backing_store.h"
#include "nfc/core/flash_config.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// Bandwidth of the host's file path: its threads, and the links of the drives.
Bandwidth file_bandwidth(const Scenario& s) {
  const host::FileConfig& file = s.platform.host.file;
  const Bandwidth links{s.platform.device.link.payload_bandwidth().bytes_per_second * s.platform.device.count};
  const host::FileIoParams params = file.params({});
  SimTime per_io = file.io_overhead + transfer_time(file.io_size, s.platform.device.link.payload_bandwidth());
  if (params.copy_bandwidth.bytes_per_second > 0) per_io += transfer_time(file.io_size, params.copy_bandwidth);
  const double rate = static_cast<double>(file.io_size.value) * file.threads / per_io.seconds();
  return {std::min(links.bytes_per_second, static_cast<std::uint64_t>(rate))};
}

/// Pages that the channels of a drive deliver while all planes read, in bytes.
Bandwidth flash_bandwidth(const nfc::FlashConfig& flash) {
  const nfc::FlashTiming timing = nfc::flash_timing(flash, 0);
  const double page = static_cast<double>(flash.geometry.page_size.value);
  const SimTime on_bus =
      timing.command_time + timing.data_out_setup + transfer_time(flash.geometry.page_size, timing.channel_bandwidth);
  const double channels = page * flash.geometry.channels / on_bus.seconds();
  const double arrays = page * static_cast<double>(flash.geometry.planes()) / (timing.read_latency + on_bus).seconds();
  return {static_cast<std::uint64_t>(std::min(channels, arrays))};
}

}  // namespace

host::PlatformRates platform_rates(const Scenario& s) {
  const platform::AttachedGpu& gpu = s.platform.gpu;
  const platform::HostConfig& host = s.platform.host;
  const csd_model::DeviceConfig& drive = s.platform.device;
  const auto share = [](auto peak, Ratio of) { return decltype(peak){of.floor_of(peak)}; };
  const Bandwidth link{std::min(gpu.link.payload_bandwidth(), host.memory_bandwidth)};
  const Bandwidth files = file_bandwidth(s);
  const std::uint64_t cores = host.core_rate.flop_per_second * host.cores;
  return {
      .host_to_gpu = link,
      .gpu_to_host = link,
      .files_to_host = files,
      .host_to_files = files,
      .gpu_gemm = {share(gpu.fp16_rate.flop_per_second, gpu.efficiency.gemm)},
      .gpu_attention = {share(gpu.fp16_rate.flop_per_second, gpu.efficiency.attention_prefill)},
      .host_attention = {share(cores, host.efficiency)},
      .gpu_memory_bandwidth = {share(gpu.memory_bandwidth.bytes_per_second, gpu.efficiency.attention_decode)},
      .host_memory_bandwidth = {share(host.memory_bandwidth.bytes_per_second, host.efficiency)},
      .gpu_memory = gpu.memory,
      .host_memory = host.memory,
      .files = drive.usable_capacity() * drive.count,
      .carried = s.simulation.data == ftl::DataMode::carried,
      .drive_flash = {flash_bandwidth(drive.flash).bytes_per_second * drive.count},
      .drive_link = {drive.link.payload_bandwidth().bytes_per_second * drive.count},
      .drive_engine = {2 * drive.engine.clock.hertz * drive.engine.macs_per_cycle * drive.engine.kernels * drive.count},
      .drive_page = drive.flash.geometry.page_size,
      .through_host = drive.nvme.transfer == nvme::DataPath::host};
}

}  // namespace csdsim::experiment

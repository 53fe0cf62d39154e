#include "experiment/platform_rates.h"

#include <algorithm>
#include <variant>

#include "csd_model/drive_peaks.h"
#include "csd_model/exported_capacity.h"
#include "ftl/core/backing_store.h"

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

/// Which token pages SparF touches. A recording differs from head to head; the modelled share stands for it.
host::TouchedPages touched_pages(const Scenario& s) {
  const auto* const given = std::get_if<scenario::ClusteredSelectionConfig>(&s.simulation.selection);
  const scenario::ClusteredSelectionConfig clustered = given ? *given : scenario::ClusteredSelectionConfig{};
  return {.share = clustered.token_page_fraction.value(),
          .selected_per_page = clustered.selected_per_page ? clustered.selected_per_page->value() : 0,
          .page = s.platform.device.flash.geometry.page_size};
}

host::DriveRates drive_rates(const Scenario& s) {
  const csd_model::DeviceConfig& drive = s.platform.device;
  const csd_model::DrivePeaks peaks = csd_model::drive_peaks(drive);
  const auto reads = [&](Bytes of_page) {
    return Bandwidth{static_cast<std::uint64_t>(csd_model::peak_reads(drive, of_page))};
  };
  return {.link = drive.link.payload_bandwidth(),
          .command = drive.nvme.pipeline_time + drive.nvme.firmware_time + drive.flash.read_latency,
          .reads = reads(drive.flash.geometry.page_size),
          .fetches = reads(peaks.fetch),
          .fetch = peaks.fetch,
          .products = peaks.multiply_accumulates,
          .dequantised = peaks.dequantised,
          .scores = peaks.scores,
          .touched_pages = touched_pages(s)};
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
  return {.host_to_gpu = link,
          .gpu_to_host = link,
          .files_to_host = files,
          .host_to_files = files,
          .gpu_gemm = gpu.gemm_by_rows.given() ? gpu.gemm_by_rows.rates.back()
                                               : ComputeRate{share(gpu.fp16_rate.flop_per_second, gpu.efficiency.gemm)},
          .host_attention = {share(cores, host.efficiency)},
          .host_memory_bandwidth = {share(host.memory_bandwidth.bytes_per_second, host.efficiency)},
          .gpu_memory = gpu.memory,
          .host_memory = host.memory,
          .files = csd_model::exported_capacity_if_any(drive).value_or(Bytes{}) * drive.count,
          .gpu = gpu,
          .link_latency = gpu.link.latency,
          .gpu_peer_link = gpu.link.peer_to_peer_bandwidth(),
          .drive = drive_rates(s),
          .drives = drive.count,
          .gpus = gpu.count,
          .carried = s.simulation.data == ftl::DataMode::carried,
          .through_host = drive.nvme.transfer == nvme::DataPath::host};
}

}  // namespace csdsim::experiment

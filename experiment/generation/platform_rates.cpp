#include "experiment/generation/platform_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <variant>

#include "csd_model/kv_rates.h"
#include "ftl/core/backing_store.h"
#include "host_runtime/core/planner/gpu_model.h"

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

/// Share of the token pages that SparF touches. A recording differs from head to head; the modelled share stands for
/// it.
double touched_pages(const Scenario& s) {
  const auto* const clustered = std::get_if<scenario::ClusteredSelectionConfig>(&s.simulation.selection);
  return (clustered ? *clustered : scenario::ClusteredSelectionConfig{}).token_page_fraction.value();
}

/// All heads of a layer.
csd_model::AttentionShape heads_of(const host::ModelShape& model, std::uint32_t sequences, double tokens,
                                   double grown) {
  return {.head_dim = model.head_dim,
          .group = model.heads / model.kv_heads,
          .heads = model.kv_heads,
          .sequences = sequences,
          .tokens = tokens,
          .grown = grown,
          .layers = model.layers};
}

csd_model::AttentionShape attention_of(const host::ModelShape& model, const host::DriveAttention& asked,
                                       double touched) {
  csd_model::AttentionShape shape = heads_of(model, asked.sequences, asked.tokens, asked.grown);
  shape.appended = asked.appended, shape.read = asked.read, shape.kv = asked.kv;
  shape.queries_after = asked.queries_after, shape.way = asked.way;
  if (asked.sparse) shape.sparse = {asked.sparse->components, asked.sparse->tokens, touched};
  return shape;
}

Bandwidth of_all(Bandwidth one, std::uint32_t drives) { return {one.bytes_per_second * drives}; }

}  // namespace

host::PlatformRates platform_rates(const Scenario& s) {
  // Made when it is asked for, and once: a search asks often.
  const auto config =
      [ drive = s.platform.device, seed = s.seed,
        made = std::make_shared<std::optional<csd_model::DriveConfig>>() ]() -> const auto& {
    if (!*made) made->emplace(csd_model::drive_config(drive, seed));
    return **made;
  };
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
      .gpu_gemm = gpu.gemm_by_rows.given() ? gpu.gemm_by_rows.rates.back()
                                           : ComputeRate{share(gpu.fp16_rate.flop_per_second, gpu.efficiency.gemm)},
      .gpu_attention = {share(gpu.fp16_rate.flop_per_second, gpu.efficiency.attention_prefill)},
      .host_attention = {share(cores, host.efficiency)},
      .gpu_memory_bandwidth = {share(gpu.memory_bandwidth.bytes_per_second, gpu.efficiency.attention_decode)},
      .host_memory_bandwidth = {share(host.memory_bandwidth.bytes_per_second, host.efficiency)},
      .gpu_memory = gpu.memory,
      .host_memory = host.memory,
      .files = drive.usable_capacity() * drive.count,
      .carried = s.simulation.data == ftl::DataMode::carried,
      .drive_scores =
          [config, count = drive.count](const host::ModelShape& model, ScorePrecision precision, std::uint32_t tokens) {
            const csd_model::KvRequestShape asked{model.head_dim, model.heads / model.kv_heads, tokens};
            return of_all(csd_model::scoring_rate(config(), asked, precision), count);
          },
      .drive_fetches =
          [config, count = drive.count](const host::ModelShape& model, double chosen, std::uint32_t tokens) {
            const csd_model::KvRequestShape asked{model.head_dim, model.heads / model.kv_heads, tokens};
            const double rows = csd_model::rows_fetched(config(), model.head_dim);
            // A page, or a group of codewords, without a chosen row is not read.
            const double wanted = chosen * rows / (1 - std::pow(1 - chosen, std::max(1.0, rows)));
            return of_all(csd_model::fetch_rate(config(), asked, wanted), count);
          },
      .through_host = drive.nvme.transfer == nvme::DataPath::host,
      .block_size = drive.nvme.block_size,
      .drive_page = drive.flash.geometry.page_size,
      .drives = drive.count,
      .gpus = gpu.count,
      .gpu_time = [gpu = host::GpuModel(gpu)](const host::ComputeWork& work) { return gpu.time(work).seconds(); },
      .drive_attention =
          [config, touched = touched_pages(s), times = std::make_shared<std::optional<csd_model::AttentionTimes>>()](
              const host::ModelShape& model, const host::DriveAttention& asked) {
            if (!*times) times->emplace(config());
            return (**times)(attention_of(model, asked, touched));
          },
      .drive_scoring =
          [config](const host::ModelShape& model, const host::DriveAttention& asked, ScorePrecision precision,
                   std::uint32_t chunk) {
            return csd_model::scoring_time(config(), heads_of(model, asked.sequences, asked.tokens, asked.grown),
                                           precision, chunk);
          },
      .drive_fetching =
          [config](const host::ModelShape& model, const host::DriveFetch& asked) {
            std::array<csd_model::RandomPicks, std::tuple_size_v<decltype(asked.parts)>> picks;
            for (std::size_t i = 0; i < picks.size(); ++i) picks[i] = {asked.parts[i].tokens, asked.parts[i].chosen};
            return csd_model::fetching_time(config(), heads_of(model, asked.sequences, 0, asked.grown), picks);
          },
      .drive_storing =
          [config](const host::ModelShape& model, const host::DriveAttention& asked) {
            const csd_model::Storing storing =
                csd_model::storing_of(config(), heads_of(model, asked.sequences, asked.tokens, asked.grown));
            return host::DriveStoring{storing.share, storing.seconds};
          },
      .drive_link = drive.link.payload_bandwidth(),
      .link_latency = gpu.link.latency,
      .gpu_peer_link = gpu.link.peer_to_peer_bandwidth(),
      .gemm_by_rows = gpu.gemm_by_rows};
}

}  // namespace csdsim::experiment

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/text.h"
#include "csd_model/fpga_design.h"
#include "csd_model/power_loss_dump.h"
#include "scenario/check.h"
#include "scenario/presets.h"

namespace csdsim::scenario {

using config::Layer;
using config::Origin;

Checker::Checker(Scenario& scenario, const config::Reader& reader, std::filesystem::path directory,
                 config::Diagnostics& diagnostics)
    : scenario_(scenario), reader_(reader), directory_(std::move(directory)), diagnostics_(diagnostics) {}

bool Checker::readable(std::initializer_list<std::string_view> paths) const {
  return std::none_of(paths.begin(), paths.end(), [&](std::string_view p) { return reader_.failed().contains(p); });
}

Origin Checker::origin(std::string_view path) const {
  const auto& origins = reader_.origins();
  const auto it = origins.find(path);
  if (it != origins.end() && it->second.layer > Layer::preset) return it->second;
  // A value of a preset is located at the key that names the preset, in the nearest map around it.
  if (it != origins.end() && it->second.layer == Layer::preset) {
    for (auto dot = path.rfind('.'); dot != std::string_view::npos; dot = path.substr(0, dot).rfind('.')) {
      const auto preset = origins.find(std::string(path.substr(0, dot)) + ".preset");
      if (preset != origins.end() && preset->second.layer > Layer::preset) {
        Origin named = preset->second;
        named.layer = Layer::preset;
        return named;
      }
    }
    return it->second;
  }
  // A section or a default is located at the nearest map around it that is in the scenario file.
  for (std::string_view around = path;;) {
    const config::Node* node = config::find_path(reader_.root(), around);
    if (node && node->origin.layer >= Layer::file) {
      Origin place = node->origin;
      if (it != origins.end()) place.layer = Layer::builtin;
      return place;
    }
    if (around.empty()) return reader_.root().origin;
    const auto dot = around.rfind('.');
    around = dot == std::string_view::npos ? std::string_view{} : around.substr(0, dot);
  }
}

void Checker::require(bool ok, std::initializer_list<std::string_view> paths, const std::string& message) {
  if (ok || !readable(paths)) return;
  Origin place = origin(*paths.begin());
  for (const std::string_view path : paths) {
    const Origin other = origin(path);
    if (other.layer > place.layer) place = other;
  }
  diagnostics_.error(place, message);
}

Layer Checker::layer(std::string_view path) const {
  const auto it = reader_.origins().find(path);
  if (it != reader_.origins().end()) return it->second.layer;
  const config::Node* node = config::find_path(reader_.root(), path);
  return node ? node->origin.layer : Layer::builtin;
}

void Checker::error_at(std::string_view path, const std::string& message) { diagnostics_.error(origin(path), message); }
void Checker::note_at(std::string_view path, const std::string& message) { diagnostics_.note(origin(path), message); }

void Checker::refuse_unused(std::string_view path, std::string_view because, const std::string& why) {
  if (!given(path)) return;
  const std::string message = fmt::format("{} is not used: {}", path, why);
  if (layer(path) >= layer(because)) {
    error_at(path, message);
  } else {
    note_at(path, message);
  }
}

bool Checker::first_wins(std::string_view first, std::string_view second) {
  const Layer a = layer(first), b = layer(second);
  if (a == b && a > Layer::builtin) {
    error_at(first, fmt::format("{} and {} exclude each other: give one of them", first, second));
  }
  return a >= b;
}

bool Checker::resolve(InputPath& input, std::string_view path, std::string_view what, const std::string& hint) {
  std::error_code code;
  const std::filesystem::path given = input.given;
  const std::filesystem::path beside = directory_ / given;
  // The platform may come from another file than the scenario.
  const Origin said = origin(path);
  const std::filesystem::path beside_origin =
      said.layer == Layer::file ? std::filesystem::path(said.source).parent_path() / given : beside;
  for (const auto& candidate : {beside_origin, beside, given}) {
    if (std::filesystem::exists(candidate, code)) {
      input.path = candidate;
      scenario_.inputs.push_back(candidate);
      return true;
    }
  }
  const std::string where = given.is_absolute()
                                ? fmt::format("{} does not exist", printable(given.string(), 200))
                                : fmt::format("'{}' is neither beside the scenario ({}) nor in the current directory",
                                              printable(input.given, 200), printable(beside.string(), 200));
  error_at(path, fmt::format("{}: no such {}: {}{}", path, what, where, hint.empty() ? "" : "; " + hint));
  return false;
}

namespace {

void require_power_of_two(Checker& c, const std::string& path, Bytes value) {
  c.require(std::has_single_bit(value.value), {path},
            fmt::format("{}: {} is not a power of two", path, format_quantity(value)));
}

void check_link(Checker& c, nvme::LinkConfig& link, const std::string& path, bool reads_in_requests) {
  const std::string bandwidth = path + ".bandwidth", generation = path + ".generation", lanes = path + ".lanes";
  if (link.bandwidth && (link.generation || link.lanes)) {
    const std::string& rival =
        link.lanes && (!link.generation || c.layer(lanes) > c.layer(generation)) ? lanes : generation;
    if (c.first_wins(bandwidth, rival)) {
      link.generation.reset();
      link.lanes.reset();
    } else {
      link.bandwidth.reset();
    }
  }
  if (!link.bandwidth) {
    c.require(link.generation && link.lanes, {path, generation, lanes},
              fmt::format("{} needs generation and lanes, or bandwidth", path));
    // The error is told; what is checked further works with rates, and so with some link.
    if (!link.generation) link.generation = 1;
    if (!link.lanes) link.lanes = 1;
  }
  if (link.lanes) {
    c.require(std::has_single_bit(*link.lanes), {lanes},
              fmt::format("{}: {} is not a power of two", lanes, *link.lanes));
  }
  require_power_of_two(c, path + ".max_payload", link.max_payload);
  if (reads_in_requests) require_power_of_two(c, path + ".max_read_request", link.max_read_request);
  if (!link.bandwidth) return;
  const std::string why = fmt::format("{} is the rate of the payload", bandwidth);
  for (const char* const of_packets : {".max_payload", ".tlp_overhead", ".dllp_overhead"})
    c.refuse_unused(path + of_packets, bandwidth, why);
  if (!reads_in_requests) return;
  for (const char* const of_requests : {".max_read_request", ".outstanding_reads"})
    c.refuse_unused(path + of_requests, bandwidth, why);
}

/// An engine behind a switch reads pages, or codewords of them, in requests.
void check_placement(Checker& c, const csd_model::DeviceConfig& device) {
  if (!device.engine.behind_switch()) return;
  const std::string placement = "platform.device.engine.placement";
  c.require(device.flash.filter_location != nfc::FilterLocation::die,
            {"platform.device.flash.filter_location", placement},
            "platform.device.flash.filter_location: an engine behind the switch reads whole pages: give nfc");
  c.require(device.engine.intake != engine::Intake::page && device.engine.intake != engine::Intake::arrival,
            {"platform.device.engine.intake", placement},
            "platform.device.engine.intake: pages come to an engine behind the switch in requests: give phase");
  const auto& reads = std::get<csd_model::SwitchPlacement>(device.engine.placement);
  const auto& codewords = device.flash.codewords;
  const Bytes piece = codewords ? codewords->size : device.flash.geometry.page_size;
  c.require(reads.request_size.value % piece.value == 0,
            {placement + ".request_size",
             codewords ? "platform.device.flash.codewords.size" : "platform.device.flash.page_size"},
            fmt::format("{}.request_size: {} is not a multiple of a {} of {}", placement,
                        format_quantity(reads.request_size), codewords ? "codeword" : "page", format_quantity(piece)));
  c.require(reads.request_bandwidth <= reads.bandwidth, {placement + ".request_bandwidth", placement + ".bandwidth"},
            fmt::format("{}.request_bandwidth: {} exceeds the bandwidth of the link, {}", placement,
                        format_quantity(reads.request_bandwidth), format_quantity(reads.bandwidth)));
}

/// A product that keeps data as an ordinary drive and is given an engine all the same.
void note_invented_drive(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.ftl.mapping.kind";
  if (!device.has_engine() || device.preset.empty()) return;
  const config::Node* const sold = Presets::builtin().find("device", device.preset);
  const config::Node* const mapping = sold != nullptr ? config::find_path(*sold, "ftl.mapping.kind") : nullptr;
  if (mapping == nullptr || mapping->scalar != ftl::PageMapping::kKind) return;
  c.note_at(path, fmt::format("{}: {} attends in this run, and no such drive is sold: {} has no attention engine", path,
                              device.preset, device.preset));
}

/// An engine that does not fit the FPGA that is named.
void check_fpga(Checker& c, const csd_model::DeviceConfig& device) {
  const std::string section = "platform.device.engine.";
  const engine::EngineConfig& e = device.engine;
  if (e.fpga == engine::FpgaPart::automatic || !device.has_engine() || !c.scenario().workload->attends()) {
    c.refuse_unused(section + "fpga_check", section + "fpga", "no FPGA is named that an engine would have to fit");
    return;
  }
  if (e.fpga_check == engine::FpgaCheck::off ||
      !c.readable({"platform.device.engine.fpga", "platform.device.engine.kernels",
                   "platform.device.engine.macs_per_cycle", "platform.device.engine.softmax_per_cycle",
                   "platform.device.engine.argtopk_units", "platform.device.engine.argtopk_per_cycle",
                   "platform.device.engine.jobs_in_flight", "platform.device.engine.buffer",
                   "platform.device.flash.channels", "platform.device.flash.page_buffers",
                   "platform.device.flash.page_size"}))
    return;
  const engine::Fpga& fpga = csd_model::fpga_of(device);
  const std::string lacks = engine::fpga_lacks(csd_model::fpga_design(device), fpga);
  if (lacks.empty()) return;
  const std::string message = fmt::format("{}fpga: the drive does not fit a {}: {}", section, fpga.name, lacks);
  if (e.fpga_check == engine::FpgaCheck::warn) return c.note_at(section + "fpga", message);
  c.error_at(section + "fpga", message + " (fpga_check: warn makes it a note)");
}

void check_loss(Checker& c, const csd_model::DeviceConfig& device) {
  const std::uint32_t lost = device.nvme.loss ? device.nvme.loss->drive : 0;
  c.require(lost < device.count, {"platform.device.nvme.loss.drive", "platform.device.count"},
            fmt::format("platform.device.nvme.loss.drive: {}, but drives are 0 to {}", lost, device.count - 1));
}

/// Cuts of the power: in their order, and only of drives that can be found again.
void check_power_cuts(Checker& c, const csd_model::DeviceConfig& device) {
  if (!device.nvme.power) return;
  const nvme::PowerConfig& power = *device.nvme.power;
  constexpr std::string_view section = "platform.device.nvme.power";
  constexpr std::string_view path = "platform.device.nvme.power.cuts";
  c.require(power.cuts.front().ps > 0, {path}, fmt::format("{}: the first one is at 0, before any command", path));
  for (std::size_t i = 1; i < power.cuts.size(); ++i)
    c.require(power.cuts[i] > power.cuts[i - 1] + power.off_time, {path, "platform.device.nvme.power.off_time"},
              fmt::format("{}: {} is not after the power is back from the cut at {}", path,
                          format_quantity(power.cuts[i]), format_quantity(power.cuts[i - 1])));
  if (c.scenario().workload->attends()) {
    c.require(c.scenario().simulation.data == ftl::DataMode::carried, {"simulation.data", section},
              "simulation.data: what a cut of the power leaves is known only where data is carried: use carried");
    c.require(device.power_loss.capacitors() != nullptr, {section, "platform.device.power_loss.protection"},
              fmt::format("{}: K and V that fill no page are in controller DRAM, and only capacitors save them: give "
                          "power_loss: {{protection: {{kind: capacitors}}}}",
                          section));
    c.require(device.count == 1, {section, "platform.device.count"},
              fmt::format("{}: the power of one drive can fail, and there are {}", section, device.count));
    c.require(!device.engine.behind_switch(), {section, "platform.device.engine.placement"},
              fmt::format("{}: an engine behind a switch cannot lose power", section));
  }
  c.require(device.fidelity == csd_model::Fidelity::fast, {section, "platform.device.fidelity"},
            fmt::format("{}: the modules of fidelity: at cannot lose power", section));
  c.require(!device.nvme.loss, {section, "platform.device.nvme.loss"},
            fmt::format("{}: a drive that disappears needs no power", section));
}

/// An engine buffer in controller DRAM must fit beside the map cache and leave some room for temporary data.
void check_engine_buffer(Checker& c, const csd_model::DeviceConfig& device) {
  if (device.engine.buffer_memory == engine::EngineMemory::sram || !device.has_engine() ||
      !c.scenario().workload->attends())
    return;
  const auto* map = std::get_if<ftl::CachedMap>(&device.ftl.map);
  const Bytes others = map != nullptr ? map->capacity : Bytes{};
  c.require(device.engine.buffer + others < device.dram.capacity,
            {"platform.device.engine.buffer", "platform.device.engine.buffer_memory", "platform.device.dram.capacity"},
            fmt::format("platform.device.engine.buffer: {} does not fit in the controller DRAM of {}{}",
                        format_quantity(device.engine.buffer), format_quantity(device.dram.capacity),
                        map != nullptr ? " beside the map cache" : ""));
}

/// Where the platform has a switch, something is behind it.
void check_shared_links(Checker& c, const platform::PlatformConfig& platform) {
  if (!c.scenario().workload->attends()) {
    for (const std::string_view path :
         {"platform.root_complex.bandwidth", "platform.switch", "platform.gpu.link.peer_to_peer", "platform.gpu.count"})
      c.refuse_unused(path, "workload.kind",
                      fmt::format("in a workload of kind {} drives and GPUs have their own links to the host",
                                  c.scenario().workload.kind()));
  }
  if (!platform.upstream) return;
  const platform::SwitchConfig& upstream = *platform.upstream;
  c.require(upstream.drives.value_or(1) <= platform.device.count, {"platform.switch.drives", "platform.device.count"},
            fmt::format("platform.switch.drives: {} of the {} drives (platform.device.count)",
                        upstream.drives.value_or(1), platform.device.count));
  c.require(
      upstream.gpus <= platform.gpu.count, {"platform.switch.gpus", "platform.gpu.count"},
      fmt::format("platform.switch.gpus: {} of the {} GPUs (platform.gpu.count)", upstream.gpus, platform.gpu.count));
}

/// Stages that a run does not have cannot be told not to overlap.
void check_overlap(Checker& c, platform::PlatformConfig& platform) {
  const std::optional<std::uint32_t> io_cores = platform.host.io_cores;
  c.require(!io_cores || *io_cores <= platform.host.cores, {"platform.host.io_cores", "platform.host.cores"},
            fmt::format("platform.host.io_cores: {} of the {} cores of the host (platform.host.cores)",
                        io_cores.value_or(0), platform.host.cores));
  platform::OverlapConfig& overlap = platform.overlap;
  const auto refuse = [&c](bool& value, std::string_view name, std::string_view because, const char* why) {
    if (!std::exchange(value, true)) c.refuse_unused(fmt::format("platform.overlap.{}", name), because, why);
  };
  if (!c.scenario().workload->attends()) {
    for (const auto& [value, name] : {std::pair{&overlap.mini_batches, "mini_batches"},
                                      {&overlap.engine_flash, "engine_flash"},
                                      {&overlap.host_drive, "host_drive"}})
      refuse(*value, name, "workload.kind", "the workload computes no attention");
  } else if (!platform.device.has_engine()) {
    // The kind of mapping may come with another drive.
    refuse(overlap.engine_flash, "engine_flash",
           c.stronger("platform.device.preset", "platform.device.ftl.mapping.kind"),
           "a drive that keeps no KV cache has no engine");
  }
}

void check_gpu_timing(Checker& c, host::GpuConfig& gpu) {
  const std::string section = "platform.gpu.";
  const std::string rows = section + "gemm_by_rows.rows", rates = section + "gemm_by_rows.rates";
  if (const std::string problem = gpu.gemm_by_rows.problem(); !problem.empty())
    c.require(false, {rows, rates}, fmt::format("{}gemm_by_rows: {}", section, problem));
  if (gpu.gemm_by_rows.given())
    c.refuse_unused(section + "efficiency.gemm", rows, "gemm_by_rows has the rates of matrix products");
  if (gpu.timing == host::GpuTiming::modelled) {
    c.refuse_unused(section + "times", section + "timing", "times are modelled; use timing: measured to read a file");
    return;
  }
  for (const char* const of_model : {"fp16_rate", "memory_bandwidth", "kernel_launch", "efficiency.gemm",
                                     "efficiency.gemv", "efficiency.attention_prefill", "efficiency.attention_decode",
                                     "efficiency.elementwise", "gemm_by_rows.rows", "gemm_by_rows.rates"})
    c.refuse_unused(section + of_model, section + "timing", "operators take their measured times");
  if (gpu.times) c.resolve(*gpu.times, section + "times", "file");
}

void check_queue_priorities(Checker& c, const nvme::NvmeConfig& nvme) {
  const std::string classes = "platform.device.nvme.queue_priorities",
                    weights = "platform.device.nvme.priority_weights";
  c.require(nvme.queue_priorities.empty() || nvme.queue_priorities.size() == nvme.queues,
            {classes, "platform.device.nvme.queues"},
            fmt::format("{}: {} classes for {} queues", classes, nvme.queue_priorities.size(), nvme.queues));
  c.require(std::ranges::all_of(nvme.priority_weights, [](std::uint32_t w) { return w >= 1 && w <= 256; }), {weights},
            fmt::format("{}: a weight is out of range (1 to 256)", weights));
  if (nvme.queue_priorities.empty() && nvme.priority_weights != nvme::NvmeConfig{}.priority_weights)
    c.refuse_unused(weights, classes, "without classes the queues take turns");
}

/// Mapping units smaller than a page: what they need of the drive.
void check_mapping_unit(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.ftl.mapping_unit";
  if (!device.ftl.mapping_unit) return;
  const Bytes unit = *device.ftl.mapping_unit, page = device.flash.geometry.page_size;
  c.require(unit.value % 512 == 0 && page.value % unit.value == 0, {path, "platform.device.flash.page_size"},
            fmt::format("{}: {} does not divide a page of {} into whole sectors of 512 B", path, format_quantity(unit),
                        format_quantity(page)));
  const Bytes block = device.nvme.block_size;
  c.require(unit.value % block.value == 0, {path, "platform.device.nvme.block_size"},
            fmt::format("{}: {} is no multiple of the logical block of {}, the least that commands address", path,
                        format_quantity(unit), format_quantity(block)));
  if (const auto& words = device.flash.codewords)
    c.require(unit.value % words->size.value == 0, {path, "platform.device.flash.codewords.size"},
              fmt::format("{}: {} is no multiple of a codeword of {}", path, format_quantity(unit),
                          format_quantity(words->size)));
  if (unit == page) return;
  c.require(
      !device.flash.reliability, {path, "platform.device.flash.reliability"},
      fmt::format("{}: pages that fail are modelled only where the unit is a page: leave one of the two out", path));
}

/// What the capacitors can write of the buffer.
void check_power_loss(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.power_loss.protection.energy";
  const csd_model::CapacitorProtection* const capacitors = device.power_loss.capacitors();
  if (capacitors == nullptr || !capacitors->energy) return;
  const Energy energy = *capacitors->energy;
  const Bytes page = device.flash.geometry.page_size, buffer = device.write_buffer.capacity;
  const double least = csd_model::power_loss_dump(device, page).joules;
  c.require(least <= energy.joules(), {path},
            fmt::format("{}: {} do not write a page of {} to flash, which takes {:.2g} mJ", path,
                        format_quantity(energy), format_quantity(page), least * 1e3));
  if (const Bytes written = csd_model::bytes_dumped(device, energy, buffer); written < buffer)
    c.note_at(path, fmt::format("{}: {} write {} of a write buffer of {} to flash, which takes {:.2g} J in all: a loss "
                                "of power may lose the rest",
                                path, format_quantity(energy), format_quantity(written), format_quantity(buffer),
                                csd_model::power_loss_dump(device, buffer).joules));
}

/// Blocks that span the planes of a die: what they need of the drive.
void check_superblocks(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.ftl.superblocks";
  if (!device.ftl.superblocks) return;
  c.require(device.flash.geometry.planes_per_die > 1, {path, "platform.device.flash.planes_per_die"},
            fmt::format("{}: a die with a single plane has none", path));
  c.require(!device.has_engine(), {path, "platform.device.ftl.mapping.kind"},
            fmt::format("{}: the KV cache is programmed page by page: give mapping: {{kind: page}}", path));
  c.require(device.write_buffer.capacity.value > 0, {path, "platform.device.write_buffer.capacity"},
            fmt::format("{}: word lines over all planes are filled in a write buffer, and the drive has none", path));
  c.require(!device.flash.reliability, {path, "platform.device.flash.reliability"},
            fmt::format("{}: programs that fail are modelled only page by page: leave one of the two out", path));
}

/// Reclaim units of several blocks: what they need of the drive.
void check_reclaim_units(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.ftl.reclaim_unit_blocks";
  if (device.ftl.reclaim_unit_blocks == 1) return;
  c.require(!device.has_engine(), {path, "platform.device.ftl.mapping.kind"},
            fmt::format("{}: the KV cache is erased block by block: give mapping: {{kind: page}}, or 1", path));
  c.require(!device.flash.reliability, {path, "platform.device.flash.reliability"},
            fmt::format("{}: blocks that fail are modelled only one by one: leave one of the two out", path));
  c.require(
      device.ftl.spare_blocks == 0 && device.ftl.factory_bad_blocks.numerator == 0,
      {path, "platform.device.ftl.spare_blocks", "platform.device.ftl.factory_bad_blocks"},
      fmt::format("{}: units have no spare and no bad blocks: leave spare_blocks and factory_bad_blocks out", path));
}

/// Flexible Data Placement: its list of handles, and identifiers of 16 bits.
void check_fdp(Checker& c, const csd_model::DeviceConfig& device) {
  if (!device.nvme.fdp) return;
  constexpr std::string_view section = "platform.device.nvme.fdp";
  constexpr std::string_view list = "platform.device.nvme.fdp.placement_handles";
  constexpr std::string_view handles = "platform.device.ftl.placement.handles";
  constexpr std::string_view unit = "platform.device.ftl.reclaim_unit_blocks";
  std::vector<std::uint32_t> sorted = device.nvme.fdp->placement_handles;
  std::ranges::sort(sorted);
  c.require(sorted.empty() || sorted.back() < device.ftl.placement.handles, {list, handles},
            fmt::format("{}: reclaim unit handle {} needs {} handles, the drive has {} (ftl.placement.handles)", list,
                        sorted.empty() ? 0 : sorted.back(), sorted.empty() ? 0 : sorted.back() + 1,
                        device.ftl.placement.handles));
  c.require(std::ranges::adjacent_find(sorted) == sorted.end(), {list},
            fmt::format("{}: names a reclaim unit handle twice", list));
  const std::uint32_t groups = device.reclaim_groups();
  const int bits = std::bit_width(groups - 1);
  c.require(bits <= 15 && bits + std::bit_width(device.ftl.placement.handles - 1) <= 16, {unit, handles},
            fmt::format("{}: {} reclaim groups and {} handles are more than identifiers of 16 bits can name", unit,
                        groups, device.ftl.placement.handles));
  c.require(groups == 1 || device.ftl.allocation == ftl::PageAllocation::dynamic,
            {section, "platform.device.ftl.allocation", unit},
            fmt::format("{}: with {} reclaim groups writes choose their planes: give allocation: dynamic, or reclaim "
                        "units over all planes",
                        section, groups));
}

}  // namespace

void check_platform(Checker& c) {
  platform::PlatformConfig& platform = c.scenario().platform;
  csd_model::DeviceConfig& device = platform.device;
  resolve_capacity(c);
  check_flash(c);
  check_power_loss(c, device);
  check_placement(c, device);
  check_loss(c, device);
  check_power_cuts(c, device);
  check_link(c, device.link, "platform.device.link", true);
  check_link(c, platform.gpu.link, "platform.gpu.link", false);
  check_gpu_timing(c, platform.gpu);
  check_shared_links(c, platform);
  require_power_of_two(c, "platform.device.nvme.mdts", device.nvme.mdts);
  require_power_of_two(c, "platform.device.nvme.block_size", device.nvme.block_size);
  c.require(device.nvme.block_size <= device.nvme.mdts,
            {"platform.device.nvme.block_size", "platform.device.nvme.mdts"},
            fmt::format("platform.device.nvme.block_size: {} is larger than a command may move (mdts), {}",
                        format_quantity(device.nvme.block_size), format_quantity(device.nvme.mdts)));
  if (const auto* coalesced = std::get_if<nvme::CoalescedInterrupts>(&device.nvme.interrupts))
    c.require(coalesced->time.ps % SimTime::microseconds(100).ps == 0, {"platform.device.nvme.interrupts.time"},
              fmt::format("platform.device.nvme.interrupts.time: {} is not a multiple of 100 us",
                          format_quantity(coalesced->time)));
  check_queue_priorities(c, device.nvme);
  c.require(device.engine.buffer >= device.flash.geometry.page_size,
            {"platform.device.engine.buffer", "platform.device.flash.page_size"},
            fmt::format("platform.device.engine.buffer: {} does not hold a page of {}",
                        format_quantity(device.engine.buffer), format_quantity(device.flash.geometry.page_size)));
  c.require(device.write_buffer.capacity < device.dram.capacity || device.write_buffer.capacity.value == 0,
            {"platform.device.write_buffer.capacity", "platform.device.dram.capacity"},
            fmt::format("platform.device.write_buffer.capacity: {} does not fit in the controller DRAM of {}",
                        format_quantity(device.write_buffer.capacity), format_quantity(device.dram.capacity)));
  if (!std::holds_alternative<csd_model::ImmediateFlush>(device.write_buffer.flush)) {
    c.require(device.write_buffer.capacity.value > 0,
              {"platform.device.write_buffer.flush.kind", "platform.device.write_buffer.capacity"},
              "platform.device.write_buffer.flush: there is no write buffer: give it a capacity");
    c.require(c.scenario().workload->writes_blocks(c.scenario()),
              {"platform.device.write_buffer.flush.kind", "workload.kind"},
              "platform.device.write_buffer.flush: the workload writes no blocks, and groups of the KV cache go to "
              "flash as soon as they are full");
  }
  c.require(device.engine.buffer_memory == engine::EngineMemory::sram || device.dram.bandwidth,
            {"platform.device.engine.buffer_memory", "platform.device.dram.bandwidth"},
            "platform.device.engine.buffer_memory: in a DRAM of unlimited bandwidth it makes no difference: give "
            "dram.bandwidth");
  if (!device.has_engine()) {
    for (const std::string_view path : {"platform.device.energy.mac", "platform.device.energy.engine_idle"})
      c.refuse_unused(path, "platform.device.ftl.mapping.kind", "a drive that keeps no KV cache has no engine");
  }
  if (const auto& background = device.ftl.gc.background)
    c.require(
        background->free_blocks > device.ftl.gc_free_blocks,
        {"platform.device.ftl.gc.background.free_blocks", "platform.device.ftl.gc_free_blocks"},
        fmt::format("platform.device.ftl.gc.background.free_blocks: with {} the background never comes before the "
                    "writes, which collect at {} free blocks (gc_free_blocks)",
                    background->free_blocks, device.ftl.gc_free_blocks));
  if (const auto* map = std::get_if<ftl::CachedMap>(&device.ftl.map))
    c.require(map->capacity < device.dram.capacity,
              {"platform.device.ftl.map.capacity", "platform.device.dram.capacity"},
              fmt::format("platform.device.ftl.map.capacity: {} does not fit in the controller DRAM of {}",
                          format_quantity(map->capacity), format_quantity(device.dram.capacity)));
  check_mapping_unit(c, device);
  check_superblocks(c, device);
  check_reclaim_units(c, device);
  check_fdp(c, device);
  check_engine_buffer(c, device);
  check_fpga(c, device);
  note_invented_drive(c, device);
  check_overlap(c, platform);
  check_mapping(c);
  auto order = device.ftl.stripe_order;
  std::sort(order.begin(), order.end());
  c.require(std::adjacent_find(order.begin(), order.end()) == order.end(), {"platform.device.ftl.stripe_order"},
            "platform.device.ftl.stripe_order: names a level twice; give channel, die and plane in some order");
}

/// Runs without time, and what only they can have.
void check_wear(Checker& c) {
  const bool wear = c.scenario().simulation.data == ftl::DataMode::wear;
  c.require(!wear || c.scenario().workload->runs_without_time(), {"simulation.data", "workload.kind"},
            "simulation.data: wear only counts what is written and erased, which a workload of kind objects does; use "
            "timing");
  const ftl::FtlConfig& ftl = c.scenario().platform.device.ftl;
  constexpr std::string_view isolation = "platform.device.ftl.placement.isolation";
  c.require(
      ftl.placement.isolation == ftl::Isolation::initially || ftl.wear_levelling.spread == 0,
      {isolation, "platform.device.ftl.wear_levelling.spread"},
      fmt::format("{}: static wear levelling moves pages of all handles into the same blocks: leave one of the two "
                  "out",
                  isolation));
}

void check_scenario(Checker& c) {
  check_wear(c);
  if (!c.scenario().attention_on_host) check_platform(c);
  if (c.readable({"workload.kind", "workload"})) c.scenario().workload->check(c);
}

}  // namespace csdsim::scenario

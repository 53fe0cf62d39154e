#include "experiment/block_io/drive_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiment/block_io/block_workload.h"
#include "ftl/block/block_reserve.h"

namespace csdsim::experiment {
namespace {

using scenario::Checker;

/// Pages above 4 KiB of which requests want a part.
void note_whole_pages(Checker& c, const csd_model::DeviceConfig& device, const BlockTraffic& traffic) {
  constexpr std::string_view path = "platform.device.flash.page_size";
  const Bytes page = device.flash.geometry.page_size;
  if (page <= Bytes::kib(4) || (traffic.grain && traffic.grain->value % page.value == 0)) return;
  const bool reads = traffic.reads && !device.flash.codewords && !c.given("platform.device.flash.codewords");
  const bool writes = traffic.writes && !device.ftl.mapping_unit && !c.given("platform.device.ftl.mapping_unit");
  if (!reads && !writes) return;
  std::string requests = traffic.smallest ? "requests of " + format_quantity(*traffic.smallest) : "smaller requests";
  if (traffic.smallest && *traffic.smallest >= page)
    requests += fmt::format(" that begin or end at multiples of {}", format_quantity(*traffic.grain));
  std::string message = fmt::format("{}: {}", path, requests);
  if (reads)
    message += fmt::format(" read whole pages of {} (flash.codewords: {{}} reads the parts that they want)",
                           format_quantity(page));
  if (writes)
    message += fmt::format("{} write whole pages of {} (ftl.mapping_unit: 4 KiB writes parts of them)",
                           reads ? " and" : "", format_quantity(page));
  c.note_at(path, message);
}

/// A data sheet's tProg of TLC is that of a word line.
void note_word_lines(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.flash.program_latency";
  constexpr SimTime kTlc = SimTime::microseconds(400);  // SLC and MLC program a page in less
  const nfc::FlashConfig& flash = device.flash;
  if (!c.given(path) || c.given("platform.device.flash.word_line_pages") || flash.word_line_pages > 1) return;
  if (flash.program_latency < kTlc || device.has_engine() || flash.reliability) return;
  if (flash.page_types && (!flash.page_types->program_latency.empty() || flash.page_types->cell < nfc::CellType::tlc))
    return;
  c.note_at(path, fmt::format("{}: every page is programmed for {}; TLC in one pass programs three pages in it (give "
                              "flash.word_line_pages: 3, or 1)",
                              path, format_quantity(flash.program_latency)));
}

/// Times as much as in a drive of countless blocks with the same share of spare flash, random writes are amplified.
double excess(const ftl::BlockFtlConfig& config, std::uint32_t blocks) {
  return ftl::greedy_amplification(ftl::effective_spare(config, blocks)) /
         ftl::greedy_amplification(config.over_provisioning);
}

/// Blocks that hold no data whatever their number is, where they are much of what is spare.
void note_small_planes(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.flash.blocks_per_plane";
  constexpr double kMuch = 1.1;
  if (c.layer(path) == config::Layer::preset || c.given("platform.device.ftl.scaled_from_blocks")) return;
  // Where a reclaim unit is several blocks of each plane, its blocks count as one.
  const std::uint32_t planes =
      device.flash.geometry.planes() / (device.ftl.superblocks ? device.flash.geometry.planes_per_die : 1);
  const std::uint32_t blocks =
      device.flash.geometry.blocks_per_plane / std::max(1U, device.ftl.reclaim_unit_blocks / planes);
  const std::uint32_t data = blocks - std::min(blocks, device.ftl.spare_blocks);
  const ftl::BlockFtlConfig config = ftl::block_ftl_config(device.ftl);
  const double taken = ftl::empty_blocks(config), share = config.over_provisioning;
  if (share == 0)
    return c.note_at(path,
                     fmt::format("{}: over_provisioning 0 leaves the {:.1f} blocks in each plane that are open or "
                                 "free for collection, and no other spare flash: random writes are amplified "
                                 "far more than on a drive that is sold",
                                 path, taken));
  if (data <= taken || excess(config, data) <= kMuch) return;
  std::uint64_t low = data, enough = std::uint64_t{1} << 31;
  while (enough - low > 1) {
    const std::uint64_t middle = (low + enough) / 2;
    (excess(config, static_cast<std::uint32_t>(middle)) <= kMuch ? enough : low) = middle;
  }
  const double times = excess(config, data);
  const std::string amplified = std::isfinite(times) ? fmt::format("{:.2f} times as much as", times) : "far more than";
  c.note_at(path,
            fmt::format("{}: of {:.1f} spare blocks in each plane (over_provisioning {:.4g} of {}) {:.1f} are open "
                        "or free for collection: random writes are amplified {} in a large drive with this share; "
                        "from {} blocks on it is less than {} times (of a smaller copy of a drive, "
                        "ftl.scaled_from_blocks states the number of blocks of that one)",
                        path, data * share, share, data, taken, amplified, enough + blocks - data, kMuch));
}

void note_write_buffer(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.write_buffer.capacity";
  constexpr std::string_view usual = "drives with power loss protection complete writes in DRAM (64 MiB)";
  const Bytes capacity = device.write_buffer.capacity, page = device.flash.geometry.page_size;
  // Writes enter the buffer page by page.
  if (capacity.value > 0 && capacity < page)
    return c.note_at(path, fmt::format("{0}: {1} do not hold a page of {2}: what a write has of a page waits until it "
                                       "is in flash where it is larger than {1}, as without a write buffer; {3}",
                                       path, format_quantity(capacity), format_quantity(page), usual));
  if (capacity.value > 0 || c.layer(path) > config::Layer::builtin) return;
  c.note_at(path, fmt::format("{}: there is no write buffer: every write waits until it is in flash; {}", path, usual));
}

/// Data sheets state no time of the controller; fio's latencies contain it.
void note_controller(Checker& c, const csd_model::DeviceConfig& device) {
  constexpr std::string_view path = "platform.device.nvme.pipeline_time", other = "platform.device.nvme.firmware_time";
  if (device.nvme.pipeline_time.ps > 0 || device.nvme.firmware_time.ps > 0) return;
  if (c.layer(path) > config::Layer::builtin || c.layer(other) > config::Layer::builtin) return;
  c.note_at(path, fmt::format("{}: the controller takes no time per command: latencies are those of flash, channel and "
                              "link alone, and no controller limits IOPS (nvme.pipeline_time adds to a latency, "
                              "nvme.firmware_time limits the rate; csdsim calibrate finds both)",
                              path));
}

}  // namespace

BlockTraffic traffic_of(const BlockIoWorkload& work) {
  BlockTraffic traffic{.reads = false, .writes = false, .smallest = std::nullopt, .grain = std::nullopt};
  const auto add = [&](const BlockIoWorkload& part) {
    traffic.reads = traffic.reads || part.reads().numerator > 0;
    traffic.writes = traffic.writes || part.reads() < Ratio{1, 1};
    for (const Bytes size : part.sizes()) {
      traffic.smallest = std::min(traffic.smallest.value_or(size), size);
      const std::uint64_t step = std::gcd(size.value, part.alignment.value_or(size).value);
      traffic.grain = Bytes{std::gcd(traffic.grain.value_or(Bytes{}).value, step)};
    }
  };
  if (!work.flows) {
    add(work);
  } else {
    for (const BlockIoWorkload& flow : workloads_of_flows(work)) add(flow);
  }
  return traffic;
}

void note_drive_traps(Checker& c, const BlockTraffic& traffic) {
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  note_controller(c, device);
  note_whole_pages(c, device, traffic);
  if (!traffic.writes) return;
  note_word_lines(c, device);
  note_small_planes(c, device);
  note_write_buffer(c, device);
}

}  // namespace csdsim::experiment

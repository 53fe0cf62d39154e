// Properties of every drive, on 50 random ones, whose seeds are printed where a check fails.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "csd_model/drive_peaks.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "nvme_if/core/pcie_link.h"

namespace test_random_drives {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

constexpr std::uint64_t kDrives = 50;

/// A drive with 4 to 128 planes, pages of 4, 8 or 16 KiB and times in the range of those that are sold.
std::string random_drive(std::uint64_t seed) {
  Rng rng(seed);
  const auto power = [&](std::uint32_t from, std::uint32_t to) { return 1u << (from + rng.below(to - from + 1)); };
  const auto within = [&](std::uint64_t from, std::uint64_t to) { return from + rng.below(to - from + 1); };
  const std::uint32_t channels = power(1, 3), dies = power(0, 2), planes = power(1, 2), page = power(2, 4);
  std::string flash = fmt::format(
      "channels: {}, dies_per_channel: {}, planes_per_die: {}, blocks_per_plane: 48, pages_per_block: 32, page_size: "
      "{} "
      "KiB, read_latency: {} ns, program_latency: {} us, erase_latency: {} us, channel_bandwidth: {} MB/s, "
      "command_time: {} ns, data_out_setup: {} ns, ecc_latency: {} ns",
      channels, dies, planes, page, within(15'000, 80'000), within(100, 800), within(1000, 5000), within(400, 3200),
      within(50, 400), within(0, 300), within(0, 2000));
  if (rng.below(2) == 0) flash += fmt::format(", codewords: {{size: 4 KiB, parity: {} B}}", within(0, 4) * 128);
  return fmt::format(
      "csdsim: 1\nseed: {}\nplatform:\n  device:\n    flash: {{{}}}\n    link: {{generation: {}, lanes: {}, latency: "
      "{} "
      "ns}}\n    nvme: {{firmware_time: {} ns}}\n    write_buffer: {{capacity: {} MiB}}\n"
      "    ftl: {{mapping: {{kind: page}}, over_provisioning: 0.25}}\n"
      "workload: {{kind: block_io, precondition: {{fill: sequential}}}}\n",
      seed, flash, within(3, 5), power(1, 2), within(0, 400), within(0, 2) * 150, within(0, 1) * 8);
}

scenario::Scenario load(const std::string& drive, const Sets& sets) {
  return experiment::load_scenario_text(drive, "drive", ".", sets).base.scenario;
}

ordered_json run(const scenario::Scenario& scenario) {
  const scenario::RunResult result = experiment::run_scenario(scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  return result.document;
}

double metric(const ordered_json& document, const std::string& name) { return document["metrics"][name]; }

/// The time of a read of `pages` pages on planes of their own, or of less than a page, alone in the drive.
SimTime time_of_read(const csd_model::DeviceConfig& device, Bytes size) {
  const nfc::FlashConfig& flash = device.flash;
  const Bytes page = flash.geometry.page_size, of_page = std::min(size, page);
  nvme::PcieLink link(device.link);
  const SimTime fetched = link.reserve_read(Bytes{64}, {}).arrival + device.nvme.firmware_time;
  Bytes on_bus = page;
  if (flash.codewords) on_bus = of_page + flash.codewords->parity * (of_page.value / flash.codewords->size.value);
  const SimTime transfer = flash.data_out_setup + transfer_time(on_bus, flash.channel_bandwidth);
  std::vector<SimTime> arrivals;
  for (std::uint64_t p = 0; p * page.value < size.value; ++p) {
    // Pages go round the channels: each is sensed after as many commands as its channel has had, and goes out last.
    const auto turn = static_cast<std::int64_t>(p / flash.geometry.channels);
    const SimTime sensed = fetched + flash.command_time * (turn + 1) + flash.read_latency;
    const SimTime free = turn == 0 ? SimTime{} : arrivals[p - flash.geometry.channels];
    arrivals.push_back(std::max(sensed, free) + transfer);
  }
  std::ranges::sort(arrivals);
  SimTime completed;
  for (const SimTime arrival : arrivals) {
    const SimTime in_drive = arrival + flash.ecc_latency;
    link.reserve(nvme::LinkDirection::to_host, of_page, in_drive);
    completed = in_drive;
  }
  return link.reserve(nvme::LinkDirection::to_host, Bytes{16}, completed).arrival;
}

}  // namespace

TEST_CASE("reads that are alone take their closed form, from a codeword to a page of each plane") {
  for (std::uint64_t seed = 1; seed <= kDrives; ++seed) {
    const std::string drive = random_drive(seed);
    const FlashGeometry geometry = load(drive, {}).platform.device.flash.geometry;
    const Bytes page = geometry.page_size;
    for (const Bytes size : {Bytes::kib(4), page, page * geometry.channels, page * std::min(geometry.planes(), 64u)}) {
      const scenario::Scenario scenario =
          load(drive, {"workload.queue_depth=1", "workload.requests=20", "workload.pattern=random_read",
                       fmt::format("workload.request_size={} B", size.value)});
      CAPTURE(seed, drive, size.value);
      const ordered_json document = run(scenario);
      CHECK(metric(document, "latency_max_ns") == Approx(metric(document, "latency_mean_ns")).epsilon(1e-6));
      CHECK(metric(document, "latency_mean_ns") ==
            Approx(static_cast<double>(time_of_read(scenario.platform.device, size).ps) * 1e-3).epsilon(1e-6));
    }
  }
}

namespace {

struct Load {
  std::string pattern;
  double reads;
  bool whole_pages;
};

/// The share of reads of a mix as it was drawn: the mean latencies of reads and of writes make up that of all.
double drawn_reads(const ordered_json& document) {
  const double reads = metric(document, "read_latency_mean_ns"), writes = metric(document, "write_latency_mean_ns");
  return (metric(document, "latency_mean_ns") - writes) / (reads - writes);
}

/// Runs `load` at rising depths.
void check_depths(std::uint64_t seed, const std::string& drive, const Load& load_of) {
  constexpr std::uint32_t kRequests = 6000;
  const csd_model::DeviceConfig device = load(drive, {}).platform.device;
  const Bytes size = load_of.whole_pages ? device.flash.geometry.page_size : Bytes::kib(4);
  double before = 0;
  for (const std::uint32_t depth : {1u, 8u, 64u, 512u}) {
    const ordered_json document =
        run(load(drive, {"workload.pattern=" + load_of.pattern, fmt::format("workload.queue_depth={}", depth),
                         fmt::format("workload.request_size={} B", size.value),
                         fmt::format("workload.requests={}", kRequests)}));
    const ordered_json& interval = document["breakdown"]["measured"];
    CAPTURE(seed, drive, load_of.pattern, size.value, depth, before, document["metrics"], interval);
    const double iops = metric(document, "iops");
    const bool mixed = load_of.reads > 0 && load_of.reads < 1;
    csd_model::BlockLoad demand{.reads = mixed ? drawn_reads(document) : load_of.reads,
                                .size = size,
                                .buffered = device.write_buffer.capacity.value > 0};
    if (load_of.reads < 1) demand.write_amplification = metric(document, "write_amplification");
    CHECK(iops <= block_peak(device, demand).requests_per_s * (1 + 1e-6));
    for (const auto& [part, share] : interval["utilization"].items()) CHECK(share.get<double>() <= 1 + 1e-9);
    // The last requests of a run keep fewer and fewer planes busy: `depth` of them, each of which counts in full.
    CHECK(iops >= before * (1 - 0.01 - 1.0 * depth / kRequests));
    before = iops;
    if (depth < 512) continue;
    const std::string most = interval["bound_by"];
    CHECK((interval["utilization"][most].get<double>() >= 0.9 || interval.contains("waits_for")));
  }
}

}  // namespace

TEST_CASE("no drive exceeds its peaks or gets slower with depth, and each says what binds it or is waited for") {
  for (std::uint64_t seed = 1; seed <= kDrives; ++seed) {
    const std::string drive = random_drive(seed);
    check_depths(seed, drive, {"random_read", 1, seed % 2 == 0});
    check_depths(seed, drive, {"random_write", 0, seed % 3 != 0});
    check_depths(seed, drive, {"random_mixed", 0.5, seed % 3 == 0});
  }
}

}  // namespace test_random_drives

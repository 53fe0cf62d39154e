#include "experiment/datasheet/datasheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "contracts/drive_station.h"
#include "csd_model/drive_peaks.h"
#include "csd_model/exported_capacity.h"
#include "experiment/block_io/block_io.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/measure/endurance.h"
#include "experiment/runner.h"
#include "scenario/presets.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

constexpr Bytes kSmall = Bytes::kib(4), kLarge = Bytes::kib(128);
constexpr std::uint32_t kDeep = 256;              ///< depth of saturated small requests
constexpr std::uint64_t kRowRequests = 50'000;    ///< p99.99 is the fifth largest latency
constexpr std::uint64_t kLargeRequests = 10'000;  ///< number of requests of sequential patterns
constexpr double kMixedReads = 0.7;

/// A pattern of block commands on the drive.
struct Load {
  std::string name;  ///< "random read, 4 KiB"
  Pattern pattern{};
  csd_model::BlockLoad load = {};
  bool steady = false;  ///< on the aged drive
};

std::string_view station_name(DriveStation station) { return kDriveStationNames[static_cast<std::size_t>(station)]; }

/// Makes a drive of the same rates that ages in a second: few blocks with few pages, of which erases take the same
/// share of time, and a write buffer that fills soon.
void make_small(csd_model::DeviceConfig& device) {
  constexpr std::uint32_t kBlocks = 128, kPages = 12;
  nfc::FlashConfig& flash = device.flash;
  FlashGeometry& geometry = flash.geometry;
  const std::size_t types =
      flash.page_types ? std::max(flash.page_types->read_latency.size(), flash.page_types->program_latency.size()) : 1;
  const std::uint32_t alike = std::lcm(flash.word_line_pages, static_cast<std::uint32_t>(types));
  const std::uint32_t pages = std::min(geometry.pages_per_block, alike * std::max(1U, kPages / alike));
  flash.erase_latency =
      std::max(SimTime::microseconds(1), SimTime{flash.erase_latency.ps / geometry.pages_per_block * pages});
  if (geometry.blocks_per_plane > kBlocks) {
    device.ftl.scaled_from_blocks = std::exchange(geometry.blocks_per_plane, kBlocks);
    device.ftl.mapping = ftl::PageMapping{};  // block commands only
    device.capacity.reset();                  // it is in over_provisioning
  }
  device.ftl.reclaim_unit_blocks = 1;  // the planes have too few blocks for larger ones
  device.nvme.fdp.reset();
  geometry.pages_per_block = pages;
  const Bytes two_word_lines = geometry.page_size * (2ULL * flash.word_line_pages * geometry.planes());
  device.write_buffer.capacity = std::min(device.write_buffer.capacity, std::max(two_word_lines, Bytes::mib(1)));
}

/// Number of writes of `size` before the measurement begins: they fill the write buffer, and on an aged drive they use
/// up the free blocks that background collection keeps. Both twice, so that the drive is in its steady state.
std::uint64_t writes_to_settle(const csd_model::DeviceConfig& device, Bytes size, bool aged) {
  const FlashGeometry& geometry = device.flash.geometry;
  const std::uint64_t units = device.ftl.mapping_unit ? geometry.page_size.value / device.ftl.mapping_unit->value : 1;
  const std::uint64_t kept = aged && device.ftl.gc.background ? device.ftl.gc.background->free_blocks : 0;
  return 2 * kept * geometry.planes() * geometry.pages_per_block * units +
         2 * device.write_buffer.capacity.value / size.value;
}

class Sheet {
 public:
  Sheet(const scenario::Scenario& scenario, const DatasheetOptions& options)
      : drive_(scenario), options_(options), request_{std::max(kSmall, scenario.platform.device.nvme.block_size)} {
    drive_.platform.device.count = 1;
    drive_.simulation = scenario::Scenario(builtin_registries()).simulation;
    drive_.attention_on_host = false;
    total_ = 8 + 6 + (options.model ? 4 : 0);
  }

  ordered_json make() {
    const csd_model::DeviceConfig& device = drive_.platform.device;
    ordered_json sheet{{"name", drive_.name},
                       {"preset", device.preset},
                       {"description", description()},
                       {"capacity_bytes", csd_model::exported_capacity(device).value},
                       {"flash_bytes", device.flash.geometry.pages() * device.flash.geometry.page_size.value}};
    const std::string small = format_quantity(request_), large = format_quantity(kLarge);
    const Load random_read{fmt::format("random read, {}", small), Pattern::random_read, {.size = request_}};
    const Load random_write{
        fmt::format("random write, {}, steady", small), Pattern::random_write, {.reads = 0, .size = request_}, true};
    const Load mixed{fmt::format("70 % reads, 30 % writes, {}, steady", small),
                     Pattern::random_mixed,
                     {.reads = kMixedReads, .size = request_},
                     true};
    const Load new_write{
        fmt::format("random write, {}, on a new drive", small), Pattern::random_write, {.reads = 0, .size = request_}};
    ordered_json& rates = sheet["rates"] = ordered_json::array();
    for (const std::uint32_t depth : {1U, 32U, kDeep}) rates.push_back(rate(random_read, depth));
    const double read_rate = value_of(rates.back());
    rates.push_back(rate(new_write, 1));
    rates.push_back(rate(
        {fmt::format("sequential read, {}", large), Pattern::sequential_read, {.size = kLarge, .sequential = true}},
        32));
    rates.push_back(rate({fmt::format("sequential write, {}", large),
                          Pattern::sequential_write,
                          {.reads = 0, .size = kLarge, .sequential = true}},
                         32));
    const ordered_json sequential = rates.back();
    rates.push_back(rate(random_write, kDeep));
    const ordered_json random = rates.back();
    rates.push_back(rate(mixed, kDeep));
    const double mixed_rate = value_of(rates.back());

    ordered_json& latencies = sheet["latencies"] = ordered_json::array();
    for (const auto& [load, most] : {std::pair(&random_read, read_rate), std::pair(&random_write, value_of(random)),
                                     std::pair(&mixed, mixed_rate)})
      for (const int percent : {50, 80})
        for (ordered_json& row : latency(*load, most, percent)) latencies.push_back(std::move(row));

    sheet["endurance"] = endurance(sequential, random);
    if (options_.model) sheet["attention"] = attention();
    sheet["origin"] =
        "modelled; steady states on a drive with fewer and shorter blocks and the same share of spare flash";
    return sheet;
  }

 private:
  void announce(std::string_view what) {
    if (options_.progress) options_.progress(what, done_, total_);
    ++done_;
  }

  /// What the preset says of itself.
  std::string description() const {
    const scenario::Preset* preset = scenario::Presets::builtin().preset("device", drive_.platform.device.preset);
    return preset == nullptr ? "" : preset->doc;
  }

  static double value_of(const ordered_json& row) { return row["value"].is_null() ? 0 : row["value"].get<double>(); }

  /// The drive as `load` finds it.
  csd_model::DeviceConfig device_for(const Load& load) const {
    csd_model::DeviceConfig device = drive_.platform.device;
    // Pages wait in them for decoders and for attention only.
    if (!device.flash.ecc_bandwidth && device.flash.ecc_latency.ps == 0) device.flash.page_buffers.reset();
    if (load.steady) make_small(device);
    return device;
  }

  /// Requests before the measured ones.
  std::uint64_t warmup(const Load& load) const {
    const double requests = load.load.sequential ? 2'000 : 20'000;
    if (load.load.reads == 1) return static_cast<std::uint64_t>(requests);
    const auto writes = static_cast<double>(writes_to_settle(device_for(load), load.load.size, load.steady));
    return static_cast<std::uint64_t>(requests + writes / (1 - load.load.reads));
  }

  /// Runs `load` with more keys of its workload. UserError for what the drive cannot do.
  BlockIoOutcome measure(const Load& load, const ordered_json& more) const {
    scenario::Scenario at = drive_;
    at.platform.device = device_for(load);
    at.workload.select(BlockIoWorkload::kKind);
    ordered_json config = scenario::effective_config(at);
    ordered_json& work = config["workload"] = {{"kind", BlockIoWorkload::kKind},
                                               {"pattern", name_of(load.pattern)},
                                               {"request_size", format_quantity(load.load.size)},
                                               {"working_set", 1}};
    if (load.pattern == Pattern::random_mixed) work["read_fraction"] = load.load.reads;
    if (load.steady) work["precondition"] = {{"overwrites", 2}};
    work.update(more);
    const scenario::Scenario s = load_scenario_text(config.dump(1), drive_.name, ".").base.scenario;
    return run_block_io(dynamic_cast<const BlockIoWorkload&>(*s.workload).setup(s));
  }

  /// A row that this drive cannot run has the reason.
  template <class Measure>
  static ordered_json row_or_reason(ordered_json row, Measure measure) {
    try {
      measure(row);
    } catch (const UserError& error) {
      row["skipped"] = error.what();
    }
    return row;
  }

  ordered_json rate(const Load& load, std::uint32_t depth) {
    const std::string name = fmt::format("{}, depth {}", load.name, depth);
    announce(name);
    const bool large = load.load.sequential;
    ordered_json blank{{"figure", name},    {"value", nullptr},           {"unit", large ? "B/s" : "IOPS"},
                       {"peak", nullptr},   {"peak_bound_by", nullptr},   {"bound_by", nullptr},
                       {"busy", nullptr},   {"latency_mean_ns", nullptr}, {"write_amplification", nullptr},
                       {"skipped", nullptr}};
    return row_or_reason(std::move(blank), [&](ordered_json& row) {
      const std::uint64_t requests = large ? kLargeRequests : depth == 1 ? 2'000 : kRowRequests;
      const BlockIoOutcome out = measure(
          load, {{"queue_depth", depth}, {"requests", requests}, {"warmup_requests", depth == 1 ? 0 : warmup(load)}});
      const double scale = large ? static_cast<double>(load.load.size.value) : 1;
      csd_model::BlockLoad at = load.load;
      at.write_amplification = out.writes.amplification();
      const csd_model::DeviceConfig device = device_for(load);
      // One write at a time ends in the buffer.
      at.buffered = depth == 1 && device.write_buffer.capacity.value > 0;
      const csd_model::BlockPeak peak = csd_model::block_peak(device, at);
      row["value"] = static_cast<double>(out.latency_ps.count()) / out.duration.seconds() * scale;
      row["peak"] = peak.requests_per_s * scale;
      row["peak_bound_by"] = station_name(peak.binds);
      row["latency_mean_ns"] = out.latency_ps.mean() * 1e-3;
      if (load.load.reads < 1) row["write_amplification"] = out.writes.amplification();
      const auto most = busiest(out);
      // In a closed loop in which nothing is always busy, depth and latency make the rate.
      constexpr double kFull = 0.85;
      row["bound_by"] = most && most->share >= kFull ? station_name(most->station) : "depth";
      if (most) row["busy"] = {{"station", station_name(most->station)}, {"share", most->share}};
    });
  }

  /// A row per kind of request, with requests at `percent` of the rate `most`.
  std::vector<ordered_json> latency(const Load& load, double most, int percent) {
    const std::string name = fmt::format("{}, at {} % of the rate", load.name, percent);
    announce(name);
    const ordered_json blank{{"figure", name},
                             {"of", nullptr},
                             {"iops", nullptr},
                             {"latency_p50_ns", nullptr},
                             {"latency_p99_ns", nullptr},
                             {"latency_p9999_ns", nullptr},
                             {"skipped", nullptr}};
    std::vector<ordered_json> rows;
    ordered_json whole = row_or_reason(blank, [&](ordered_json&) {
      if (most <= 0) throw UserError("its rate was not measured");
      const double offered = most * percent / 100;
      const BlockIoOutcome out =
          measure(load, {{"arrival", {{"kind", "open"}, {"interarrival", fmt::format("{:.3f} ns", 1e9 / offered)}}},
                         {"requests", kRowRequests},
                         {"warmup_requests", warmup(load)}});
      for (std::size_t k = 0; k < workload::kRequestKinds; ++k) {
        const Histogram& times = out.kinds[k].latency_ps;
        if (times.count() == 0) continue;
        ordered_json& row = rows.emplace_back(blank);
        row["of"] = workload::kRequestKindNames[k];
        row["iops"] =
            offered * (workload::RequestKind(k) == workload::RequestKind::read ? load.load.reads : 1 - load.load.reads);
        row["latency_p50_ns"] = static_cast<double>(times.quantile(50)) * 1e-3;
        row["latency_p99_ns"] = static_cast<double>(times.quantile(99)) * 1e-3;
        row["latency_p9999_ns"] = static_cast<double>(times.quantile(9'999, 10'000)) * 1e-3;
      }
    });
    if (rows.empty()) rows.push_back(std::move(whole));
    return rows;
  }

  /// What can be written until all blocks have their rated cycles.
  ordered_json endurance(const ordered_json& sequential, const ordered_json& random) const {
    const csd_model::DeviceConfig& device = drive_.platform.device;
    const std::uint32_t cycles = device.flash.endurance_cycles();
    const double flash = double(device.flash.geometry.pages()) * double(device.flash.geometry.page_size.value) * cycles;
    ordered_json rows = ordered_json::array();
    const auto add = [&](const char* what, const ordered_json& row, double programmed_per_byte) {
      if (row["write_amplification"].is_null()) return;
      const double written = flash / (row["write_amplification"].get<double>() * programmed_per_byte);
      const double drive_writes = written / double(csd_model::exported_capacity(device).value);
      rows.push_back({{"figure", what},
                      {"bytes_written", written},
                      {"drive_writes_per_day_5_years", drive_writes / (kWarrantyYears * kDaysPerYear)},
                      {"years_at_a_drive_write_per_day", drive_writes / kDaysPerYear}});
    };
    add("sequential writes", sequential, 1);
    add("random writes", random,
        double(csd_model::programmed_by_write(device, request_).value) / double(request_.value));
    return {{"rated_cycles", cycles}, {"rated", rated_cycles_text(drive_)}, {"writes", rows}};
  }

  /// Decoded tokens per second if attention in the drive were all that takes time.
  ordered_json attention() {
    ordered_json rows = ordered_json::array();
    for (const char* const system : {"instinfer-dense", "instinfer-sparf"})
      for (const std::uint32_t batch : {1U, 16U}) rows.push_back(attention_row(system, batch));
    return {{"model", *options_.model}, {"rows", rows}};
  }

  /// 4,096 tokens, or as many as the model has positions.
  std::uint64_t context_of_model() const {
    constexpr std::uint64_t kContext = 4096;
    const config::Node* model = scenario::Presets::builtin().find("model", *options_.model);
    if (model == nullptr) throw UserError(fmt::format("there is no model '{}'", *options_.model));
    return std::min<std::uint64_t>(kContext, std::stoull(model->find("max_positions")->value.scalar));
  }

  ordered_json attention_row(const std::string& system, std::uint32_t batch) {
    constexpr std::uint32_t kOutput = 16;
    const std::uint64_t context = context_of_model();
    const std::string name = fmt::format("{}, {} of {} tokens", system,
                                         batch == 1 ? "one sequence" : fmt::format("{} sequences", batch), context);
    announce(name);
    ordered_json blank{{"figure", name},  {"value", nullptr},    {"unit", "tokens/s"},
                       {"peak", nullptr}, {"bound_by", nullptr}, {"skipped", nullptr}};
    return row_or_reason(std::move(blank), [&](ordered_json& row) {
      if (!drive_.platform.device.has_engine())
        throw UserError("the drive has no attention engine (platform.device.ftl.mapping.kind: page)");
      scenario::Scenario at = drive_;
      // The GPU holds the weights of any model: its time does not count.
      at.platform.gpu.memory = Bytes::gib(1024);
      at.workload.select(GenerationWorkload::kKind);
      at.system.select(system);
      ordered_json config = scenario::effective_config(at);
      config["model"] = {{"preset", *options_.model}};
      config["system"] = {{"kind", system}};
      config["workload"] = {{"kind", GenerationWorkload::kKind},
                            {"batch", batch},
                            {"input_tokens", context - kOutput},
                            {"output_tokens", kOutput}};
      const scenario::Scenario s = load_scenario_text(config.dump(1), drive_.name, ".").base.scenario;
      const ordered_json document = run_scenario(s).document;
      const ordered_json& decode = document["breakdown"]["decode"];
      const double seconds = decode["seconds"].get<double>();
      const double elsewhere =
          decode["critical_path_s"]["gpu"].get<double>() + decode["critical_path_s"]["host"].get<double>();
      if (system == "instinfer-dense")  // reads all keys and values of a sequence for each of its tokens
        row["peak"] = csd_model::peak_reads(s.platform.device, s.platform.device.flash.geometry.page_size) /
                      (static_cast<double>(s.model.kv_bytes_per_token().value) * static_cast<double>(context));
      row["value"] = document["metrics"]["decode_tokens_per_s"].get<double>() * seconds / (seconds - elsewhere);
      double most = 0;
      for (const auto& [resource, use] : decode["resources"].items())
        if (const double share = use["path_share"].get<double>(); share > most && !resource.starts_with("gpu")) {
          most = share;
          row["bound_by"] = resource;
        }
    });
  }

  scenario::Scenario drive_;
  const DatasheetOptions& options_;
  Bytes request_;  ///< small requests: 4 KiB, or the logical block if that is larger
  std::size_t done_ = 0, total_ = 0;
};

}  // namespace

ordered_json datasheet(const scenario::Scenario& scenario, const DatasheetOptions& options) {
  return Sheet(scenario, options).make();
}

}  // namespace csdsim::experiment

#include "experiment/endurance/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "experiment/objects/object_result.h"
#include "experiment/objects/object_workload.h"
#include "experiment/objects/wear_run.h"
#include "report/table.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

constexpr double kYear = 365, kWarrantyYears = 5;

const ObjectWorkload& objects_of(const scenario::Scenario& s) {
  const auto* const work = dynamic_cast<const ObjectWorkload*>(&*s.workload);
  if (work == nullptr || s.simulation.data != ftl::DataMode::wear)
    throw UserError(
        "certify needs a workload of kind objects with simulation.data: wear "
        "(scenarios/endurance/nine_writers.yaml is one), or --object without a scenario");
  return *work;
}

ObjectWorkload& objects_of(scenario::Scenario& s) {
  return const_cast<ObjectWorkload&>(objects_of(static_cast<const scenario::Scenario&>(s)));
}

/// What a run says about life.
struct Life {
  WearOutcome wear;
  ftl::WriteWork late;  ///< in the last quarter
  double store_amplification = 1;
  double flash_bytes = 0;  ///< of the block namespace
  double cycles = 0;       ///< rated

  /// Bytes of new objects until the mean block has its rated cycles.
  double lifetime_bytes() const { return flash_bytes * cycles / (late.amplification() * store_amplification); }
  /// Erases of the worst block over the mean.
  double unevenness() const { return wear.erases.mean > 0 ? wear.erases.most / wear.erases.mean : 1; }
};

Life life_of(const scenario::Scenario& s) {
  const ObjectWorkload& work = objects_of(s);
  const WearSetup setup = wear_setup(s, work);
  Life life{.wear = run_wear(setup), .late = {}};
  for (std::size_t i = life.wear.samples.size() * 3 / 4; i < life.wear.samples.size(); ++i)
    life.late += life.wear.samples[i].work;
  double fresh = 0, copied = 0;
  for (const WriterWear& writer : life.wear.writers) {
    fresh += double(writer.counts.new_bytes);
    copied += double(writer.counts.copied_bytes);
  }
  life.store_amplification = (fresh + copied) / fresh;
  const csd_model::WearFlash flash = csd_model::wear_flash(setup.drive);
  life.flash_bytes = double(flash.quota.block_namespace) * flash.geometry.planes() *
                     double((flash.geometry.page_size * flash.geometry.pages_per_block).value);
  life.cycles = s.platform.device.flash.reliability.value_or(nfc::ReliabilityConfig{}).rated_cycles;
  return life;
}

struct Change {
  std::string name;
  scenario::Scenario scenario;
};

scenario::Scenario with_placement(scenario::Scenario s, ObjectPlacement placement) {
  ObjectWorkload& work = objects_of(s);
  work.placement_of_writes = placement;
  std::uint32_t handles = 1;
  for (std::size_t i = 0; i < work.writers.count(); ++i) handles = std::max(handles, work.class_of_writer(i) + 1);
  if (placement == ObjectPlacement::by_class)
    s.platform.device.ftl.placement.handles = std::max(s.platform.device.ftl.placement.handles, handles);
  return s;
}

/// The writers keep a share of their data.
scenario::Scenario with_footprint(scenario::Scenario s, double share) {
  ObjectWorkload& work = objects_of(s);
  const std::uint64_t capacity = csd_model::wear_capacity(wear_setup(s, work).drive).value;
  const std::vector<WriterConfig> writers = work.writer_configs(Bytes{capacity}, Bytes{1});
  work.writers.parts.clear();
  work.writers.footprints.clear();
  const std::uint64_t block = s.platform.device.nvme.block_size.value;
  for (const WriterConfig& writer : writers)
    work.writers.footprints.push_back(
        Bytes{static_cast<std::uint64_t>(double(writer.region.value) * share) / block * block});
  return s;
}

/// More flash of the same kind for the same capacity; whole reclaim units.
scenario::Scenario with_more_flash(scenario::Scenario s, double share) {
  FlashGeometry& g = s.platform.device.flash.geometry;
  ftl::FtlConfig& ftl = s.platform.device.ftl;
  const std::uint32_t deep = std::max(1u, ftl.reclaim_unit_blocks / std::min(ftl.reclaim_unit_blocks, g.planes()));
  const auto more = static_cast<std::uint32_t>(std::lround(share * g.blocks_per_plane / deep)) * deep;
  const double before = g.blocks_per_plane;
  g.blocks_per_plane += std::max(deep, more);
  const double data = (1 - ftl.over_provisioning.value()) * before / g.blocks_per_plane;
  ftl.over_provisioning = Ratio::of(static_cast<std::int64_t>((1 - data) * 1'000'000), 1'000'000);
  return s;
}

std::vector<Change> changes_of(const scenario::Scenario& s) {
  const ObjectWorkload& work = objects_of(s);
  std::vector<Change> changes;
  const bool placed = work.placement_of_writes == ObjectPlacement::by_class;
  if (work.writers.count() > 1)
    changes.push_back({placed ? "without placement" : "a placement handle per class",
                       with_placement(s, placed ? ObjectPlacement::none : ObjectPlacement::by_class)});
  changes.push_back({"a quarter less data", with_footprint(s, 0.75)});
  changes.push_back({"10 % more flash, the same capacity", with_more_flash(s, 0.1)});
  const auto deletes = [](ObjectStore store) { return store != ObjectStore::slots; };
  if (std::ranges::any_of(work.writers.stores, deletes)) {
    changes.push_back({work.trims ? "without trims" : "with trims", s});
    objects_of(changes.back().scenario).trims = !work.trims;
  }
  return changes;
}

ordered_json amplification_of(const Life& life) {
  ordered_json json{{"whole_run", life.wear.work.amplification()}, {"late", life.late.amplification()}};
  ordered_json parts = ordered_json::object();
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
    if (const double share = life.late.share_of(part); share > 0) parts[std::string(part.name)] = share;
  json["late_parts"] = std::move(parts);
  json["store"] = life.store_amplification;
  return json;
}

ordered_json samples_of(const Life& life) {
  ordered_json rows = ordered_json::array();
  for (const WearSample& sample : life.wear.samples)
    rows.push_back({{"capacities_written", double(sample.written_bytes) / double(life.wear.capacity.value)},
                    {"write_amplification", sample.work.amplification()}});
  return rows;
}

}  // namespace

std::string plain_certificate_scenario(Bytes object) {
  return fmt::format(
      "csdsim: 1\n"
      "name: certificate\n"
      "platform:\n"
      "  device:\n"
      "    flash: {{channels: 8, dies_per_channel: 2, planes_per_die: 4, blocks_per_plane: 513, pages_per_block: 2048,"
      " page_size: 16 KiB}}\n"
      "    dram: {{capacity: 2 GiB}}\n"
      "    write_buffer: {{capacity: 64 MiB}}\n"
      "    ftl: {{mapping: {{kind: page}}, over_provisioning: 1/16, reclaim_unit_blocks: 512}}\n"
      "workload: {{kind: objects, writers: {{object_sizes: [{} B], parts: [89 %]}}}}\n"
      "simulation: {{data: wear}}\n",
      object.value);
}

ordered_json certificate(const scenario::Scenario& scenario, const CertificateOptions& options) {
  objects_of(scenario);
  const std::vector<Change> changes = options.changes ? changes_of(scenario) : std::vector<Change>{};
  const std::size_t total = options.seeds + changes.size();
  const auto progress = [&](std::string_view what, std::size_t done) {
    if (options.progress) options.progress(what, done, total);
  };
  std::vector<Life> lives;
  for (std::uint32_t i = 0; i < options.seeds; ++i) {
    progress(fmt::format("seed {}", scenario.seed + i), i);
    scenario::Scenario seeded = scenario;
    seeded.seed += i;
    lives.push_back(life_of(seeded));
  }
  const Life& life = lives.front();
  const double capacity = double(life.wear.capacity.value);
  const double fresh = options.writes_per_day ? double(options.writes_per_day->value) : capacity;
  const double host = fresh * life.store_amplification;
  const auto years = [&](const Life& of) { return of.lifetime_bytes() / fresh / kYear; };
  std::vector<double> all;
  for (const Life& one : lives) all.push_back(years(one));
  const auto [least, most] = std::ranges::minmax(all);
  double mean = 0;
  for (const double one : all) mean += one / double(all.size());

  ordered_json out{{"name", scenario.name},
                   {"capacity_bytes", life.wear.capacity.value},
                   {"flash_bytes", life.flash_bytes},
                   {"rated_cycles", life.cycles}};
  out["bytes_per_day"] = {{"new", fresh}, {"host", host}, {"flash", host * life.late.amplification()}};
  out["write_amplification"] = amplification_of(life);
  out["samples"] = samples_of(life);
  out["erases"] = {{"mean", life.wear.erases.mean},
                   {"deviation", life.wear.erases.deviation},
                   {"min", life.wear.erases.least},
                   {"max", life.wear.erases.most}};
  const double allowed = life.lifetime_bytes() * life.store_amplification / (kWarrantyYears * kYear) / capacity;
  out["drive_writes_per_day"] = {{"asked", host / capacity}, {"rated", options.rating}, {"for_5_years", allowed}};
  out["drive_lifetime_years"] = {{"mean", mean},
                                 {"min", least},
                                 {"max", most},
                                 {"seeds", options.seeds},
                                 {"worst_block", mean / life.unevenness()}};
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    progress(changes[i].name, options.seeds + i);
    const Life changed = life_of(changes[i].scenario);
    rows.push_back({{"change", changes[i].name},
                    {"write_amplification_late", changed.late.amplification()},
                    {"drive_lifetime_years", years(changed)},
                    {"times", years(changed) / years(life)}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ordered_json& a, const ordered_json& b) {
    return a["times"].get<double>() > b["times"].get<double>();
  });
  out["changes"] = std::move(rows);
  out["origin"] =
      "counted on the simulated drive; life is rated cycles over the write amplification of the last quarter, with "
      "erases spread evenly (worst_block: as unevenly as in the run)";
  return out;
}

std::string certificate_text(const ordered_json& c) {
  const auto number = [](const ordered_json& value, std::string_view unit) {
    return fmt::format("{:.4g}{}", value.get<double>(), unit);
  };
  const auto bytes = [](const ordered_json& value) { return fmt::format("{:.4g} TB", value.get<double>() * 1e-12); };
  report::Table table({"figure", "value"});
  table.add_row({"capacity", bytes(c["capacity_bytes"])});
  table.add_row({"new objects per day", bytes(c["bytes_per_day"]["new"])});
  table.add_row({"written by the host per day", bytes(c["bytes_per_day"]["host"])});
  table.add_row({"programmed per day", bytes(c["bytes_per_day"]["flash"])});
  table.add_row({"write amplification, whole run", number(c["write_amplification"]["whole_run"], "")});
  table.add_row({"write amplification, last quarter", number(c["write_amplification"]["late"], "")});
  for (const auto& [part, share] : c["write_amplification"]["late_parts"].items())
    table.add_row({"  " + part, number(share, "")});
  table.add_row({"erases of a block: mean", number(c["erases"]["mean"], "")});
  table.add_row({"  standard deviation", number(c["erases"]["deviation"], "")});
  table.add_row({"  worst block", number(c["erases"]["max"], "")});
  table.add_row({"drive writes per day", number(c["drive_writes_per_day"]["asked"], "")});
  table.add_row({"  rated", number(c["drive_writes_per_day"]["rated"], "")});
  table.add_row({"  for 5 years", number(c["drive_writes_per_day"]["for_5_years"], "")});
  const ordered_json& life = c["drive_lifetime_years"];
  table.add_row({"drive_lifetime_years", number(life["mean"], "")});
  table.add_row({fmt::format("  over {} seeds", life["seeds"].get<std::uint32_t>()),
                 number(life["min"], "") + " to " + number(life["max"], "")});
  table.add_row({"  to the worst block", number(life["worst_block"], "")});
  std::string text = fmt::format("{}\n\n{}", c["name"].get_ref<const std::string&>(), table.to_text());
  if (c["changes"].empty()) return text;
  report::Table changes({"one change", "write amplification", "years", "times"});
  for (const ordered_json& row : c["changes"])
    changes.add_row({row["change"].get<std::string>(), number(row["write_amplification_late"], ""),
                     number(row["drive_lifetime_years"], ""), number(row["times"], "")});
  return text + "\n" + changes.to_text();
}

}  // namespace csdsim::experiment

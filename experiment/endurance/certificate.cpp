#include "experiment/endurance/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "experiment/endurance/wear_changes.h"
#include "experiment/measure/endurance.h"
#include "experiment/objects/object_result.h"
#include "experiment/objects/wear_run.h"
#include "experiment/result.h"
#include "experiment/runner.h"
#include "report/table.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

/// What a run without time says about life.
struct Life {
  WearOutcome wear;
  ftl::WriteWork late;     ///< in the last quarter
  double capacity = 0;     ///< bytes, of the whole drive
  double flash_bytes = 0;  ///< flash of the block namespace of the whole drive
  double cycles = 0;       ///< rated
  ordered_json document;   ///< result of the run

  /// Bytes that the host writes, and that are programmed, per byte of new objects, in the last quarter.
  double written_per_new() const { return double(wear.late_bytes.written) / double(wear.late_bytes.fresh); }
  double programmed_per_new() const { return double(wear.late_bytes.programmed) / double(wear.late_bytes.fresh); }
  /// Bytes of new objects until the mean block has its rated cycles.
  double lifetime_bytes() const { return flash_bytes * cycles / programmed_per_new(); }
  double years(double new_per_day) const { return lifetime_bytes() / new_per_day / kDaysPerYear; }
  /// Erases of the worst block over the mean.
  double unevenness() const { return wear.erases.mean > 0 ? wear.erases.max / wear.erases.mean : 1; }
};

Life life_of(const WornDrive& worn) {
  const scenario::Scenario& s = worn.scenario;
  const ObjectWorkload& work = objects_of(s);
  const WallClock clock;
  const WearSetup setup = wear_setup(s, work);
  Life life{.wear = run_wear(setup), .late = {}, .document = {}};
  if (life.wear.late_bytes.fresh == 0 || life.wear.late_bytes.programmed == 0)
    throw UserError(
        "certify: no new objects were written in the last quarter of the measured writes: more workload.writes, or "
        "fewer workload.samples");
  life.late = late_work(life.wear.samples);
  life.capacity = double(life.wear.capacity.value) * worn.scale;
  const csd_model::WearFlash flash = csd_model::wear_flash(setup.drive);
  life.flash_bytes = double(flash.quota.block_namespace) * flash.geometry.planes() *
                     double((flash.geometry.page_size * flash.geometry.pages_per_block).value) * worn.scale;
  life.cycles = s.platform.device.flash.endurance_cycles();
  life.document = object_result(s, work, life.wear, clock).document;
  return life;
}

ordered_json amplification_of(const Life& life) {
  ordered_json json{{"whole_run", life.wear.work.amplification()}, {"late", life.late.amplification()}};
  ordered_json parts = ordered_json::object();
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
    if (const double share = life.late.share_of(part); share > 0) parts[std::string(part.name)] = share;
  json["late_parts"] = std::move(parts);
  json["programmed_per_byte"] = life.wear.late_bytes.programmed_per_written();
  json["store"] = life.written_per_new();
  if (life.wear.sampled) json["error"] = life.wear.sampled->error;
  return json;
}

/// What a serving run writes to each of its drives.
struct Served {
  ordered_json document;
  double per_day = 0;  ///< bytes to one drive
};

Served served_by(const scenario::Scenario& s, ordered_json document) {
  const ordered_json& metrics = document["metrics"];
  const std::string name = kDriveWritesPerDay.name;
  if (!metrics.contains(name) || metrics[name].get<double>() <= 0)
    throw UserError(fmt::format(
        "certify: the drives of '{}' were not written: it needs workload.tiers.drives with model: simulated, "
        "and requests that are stored there; a part of them is enough (workload.first_requests), with --writes for "
        "what all of them write a day",
        s.name));
  const double per_day = metrics[name].get<double>() * exported_bytes(s) / s.platform.device.count;
  return {.document = std::move(document), .per_day = per_day};
}

Served served_by(const scenario::Scenario& s) {
  const scenario::RunResult result = run_scenario(s);
  if (!result.failure.empty()) throw UserError(fmt::format("{}: {}", s.name, result.failure));
  return served_by(s, result.document);
}

ordered_json served_json(const Served& served, const Life& life, const WearSubject& subject) {
  const ordered_json& metrics = served.document["metrics"];
  return {{"drives", subject.served->platform.device.count},
          {"bytes_written", metrics["tier_drives_bytes_written"]},
          {"bytes_per_drive_and_day", served.per_day},
          {"capacities_written",
           metrics["tier_drives_bytes_written"].get<double>() / subject.served->platform.device.count / life.capacity},
          {"write_amplification", metrics["write_amplification"]},
          {"scaled_down_by", subject.worn.scale},
          {"samples", served.document["breakdown"].value("write_samples", ordered_json::array())}};
}

/// Makes the certificate, run by run.
class Certifier {
 public:
  Certifier(const scenario::Scenario& scenario, const CertificateOptions& options)
      : scenario_(scenario), options_(options), subject_(subject_of(scenario)) {
    if (options.changes) changes_ = changes_of(scenario);
    total_ = options.seeds + changes_.size() + (runs_serving() ? 1 : 0);
  }

  Certificate make() {
    serve();
    for (std::uint32_t i = 0; i < options_.seeds; ++i) {
      WornDrive seeded = subject_.worn;
      seeded.scenario.seed += i;
      step(fmt::format("seed {}", seeded.scenario.seed));
      lives_.push_back(life_of(seeded));
    }
    fresh_ = options_.writes_per_day ? double(options_.writes_per_day->value)
             : served_               ? served_->per_day
                                     : lives_.front().capacity;
    for (std::size_t i = 0; i < lives_.size(); ++i)
      add_point(i == 0 ? subject_.name : fmt::format("seed {}", scenario_.seed + i), lives_[i], fresh_);
    ordered_json out = as_it_is();
    out["changes"] = changes();
    out["origin"] =
        "counted on the simulated drive; life is rated cycles over what was programmed per byte of new objects in the "
        "last quarter, with erases spread evenly (worst_block: as unevenly as in the run)";
    if (served_)
      out["served_origin"] =
          "bytes per day are those of the serving run; write amplification is that of years of such blocks, each in "
          "place of any other block of the tier, as likely as the next";
    return {.json = std::move(out), .points = std::move(points_)};
  }

 private:
  bool runs_serving() const { return subject_.served && options_.finished.is_null(); }
  void step(std::string_view what) {
    if (options_.progress) options_.progress(what, done_, total_);
    ++done_;
  }

  void serve() {
    if (!subject_.served) return;
    if (!runs_serving()) {
      served_ = served_by(scenario_, options_.finished);
      return;
    }
    step("serving");
    served_ = served_by(scenario_);
  }

  void add_point(const std::string& name, const Life& life, double new_per_day) {
    ordered_json result = life.document, metrics{{kDriveLifetime.name, life.years(new_per_day)}};
    metrics.update(result["metrics"]);
    metrics["bytes_programmed_per_day"] = new_per_day * life.programmed_per_new();
    result["metrics"] = std::move(metrics);
    points_.push_back({.axes = {{"run", name}}, .result = std::move(result), .error = {}});
  }

  ordered_json as_it_is() const {
    const Life& life = lives_.front();
    const double host = fresh_ * life.written_per_new();
    std::vector<double> years;
    for (const Life& one : lives_) years.push_back(one.years(fresh_));
    const auto [least, most] = std::ranges::minmax(years);
    double mean = 0;
    for (const double one : years) mean += one / double(years.size());
    ordered_json out{{"name", scenario_.name},
                     {"capacity_bytes", life.capacity},
                     {"flash_bytes", life.flash_bytes},
                     {"rated_cycles", life.cycles},
                     {"rated", rated_cycles_text(scenario_)}};
    out["bytes_per_day"] = {{"new", fresh_}, {"host", host}, {"flash", fresh_ * life.programmed_per_new()}};
    out["write_amplification"] = amplification_of(life);
    out["samples"] = sample_rows(life.wear.samples, "capacities_written");
    out["erases"] = {{"mean", life.wear.erases.mean},
                     {"deviation", life.wear.erases.deviation},
                     {"min", life.wear.erases.min},
                     {"max", life.wear.erases.max}};
    const double allowed =
        life.lifetime_bytes() * life.written_per_new() / (kWarrantyYears * kDaysPerYear) / life.capacity;
    out["drive_writes_per_day"] = {
        {"asked", host / life.capacity}, {"rated", options_.rating}, {"for_5_years", allowed}};
    out["drive_lifetime_years"] = {{"mean", mean},
                                   {"min", least},
                                   {"max", most},
                                   {"seeds", options_.seeds},
                                   {"worst_block", mean / life.unevenness()}};
    if (served_) out["served"] = served_json(*served_, life, subject_);
    return out;
  }

  /// With given writes per day, a change of what is stored changes them by the same factor as in the serving runs.
  ordered_json changes() {
    ordered_json rows = ordered_json::array();
    for (const WearSubject& change : changes_) {
      step(change.name);
      double fresh = fresh_;
      if (change.served) fresh *= served_by(*change.served).per_day / served_->per_day;
      const Life changed = life_of(change.worn);
      add_point(change.name, changed, fresh);
      const double years = changed.years(fresh);
      rows.push_back({{"change", change.name},
                      {"new_bytes_per_day", fresh},
                      {"write_amplification_late", changed.late.amplification()},
                      {"drive_lifetime_years", years},
                      {"times", years / lives_.front().years(fresh_)}});
    }
    std::stable_sort(rows.begin(), rows.end(), [](const ordered_json& a, const ordered_json& b) {
      return a["times"].get<double>() > b["times"].get<double>();
    });
    return rows;
  }

  const scenario::Scenario& scenario_;
  const CertificateOptions& options_;
  WearSubject subject_;
  std::vector<WearSubject> changes_;
  std::optional<Served> served_;
  std::vector<Life> lives_;  ///< by seed
  double fresh_ = 0;         ///< bytes of new objects per day
  std::vector<report::PagePoint> points_;
  std::size_t done_ = 0, total_ = 0;
};

/// Write amplification and its parts, at most eight rows.
std::string over_time(const ordered_json& samples) {
  std::vector<std::string> header{"capacities written", "write amplification"}, parts;
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts()) {
    const std::string name(part.name);
    if (std::ranges::any_of(samples, [&](const ordered_json& row) { return row.value(name, 0.0) > 0; }))
      parts.push_back(name);
  }
  header.insert(header.end(), parts.begin(), parts.end());
  report::Table table(header);
  const std::size_t every = (samples.size() + 7) / 8;
  for (std::size_t i = every - 1; i < samples.size(); i += every) {
    std::vector<std::string> row{fmt::format("{:.3g}", samples[i]["capacities_written"].get<double>()),
                                 fmt::format("{:.4g}", samples[i]["write_amplification"].get<double>())};
    for (const std::string& part : parts) row.push_back(fmt::format("{:.4g}", samples[i].value(part, 0.0)));
    table.add_row(row);
  }
  return table.to_text();
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

Certificate certificate(const scenario::Scenario& scenario, const CertificateOptions& options) {
  return Certifier(scenario, options).make();
}

report::Page certificate_page(const Certificate& certificate) {
  const ordered_json& c = certificate.json;
  return {.name = fmt::format("certificate of {}", c["name"].get_ref<const std::string&>()),
          .question = fmt::format(
              "How long does the drive live? {:.3g} years at {:.3g} TB of new objects per day, to the rated cycles of "
              "its blocks; {:.3g} to the worst block. Rated: {}.",
              c["drive_lifetime_years"]["mean"].get<double>(), c["bytes_per_day"]["new"].get<double>() * 1e-12,
              c["drive_lifetime_years"]["worst_block"].get<double>(), c["rated"].get_ref<const std::string&>()),
          .points = certificate.points,
          .origins = ordered_json::object()};
}

std::string certificate_text(const ordered_json& c) {
  const auto number = [](const ordered_json& value, std::string_view unit) {
    return fmt::format("{:.4g}{}", value.get<double>(), unit);
  };
  const auto bytes = [](const ordered_json& value) { return fmt::format("{:.4g} TB", value.get<double>() * 1e-12); };
  report::Table table({"figure", "value"});
  if (c.contains("served")) {
    const ordered_json& served = c["served"];
    table.add_row({"drives of the serving run", fmt::format("{}", served["drives"].get<std::uint32_t>())});
    table.add_row({"  capacities written in it", number(served["capacities_written"], "")});
    table.add_row({"  write amplification in it", number(served["write_amplification"], "")});
    if (const auto scale = served["scaled_down_by"].get<std::uint32_t>(); scale > 1)
      table.add_row({"smaller copy of the drive", fmt::format("1/{}", scale)});
  }
  table.add_row({"capacity", bytes(c["capacity_bytes"])});
  table.add_row({"new objects per day", bytes(c["bytes_per_day"]["new"])});
  table.add_row({"written by the host per day", bytes(c["bytes_per_day"]["host"])});
  table.add_row({"programmed per day", bytes(c["bytes_per_day"]["flash"])});
  table.add_row({"write amplification, whole run", number(c["write_amplification"]["whole_run"], "")});
  table.add_row({"write amplification, last quarter", number(c["write_amplification"]["late"], "")});
  for (const auto& [part, share] : c["write_amplification"]["late_parts"].items())
    table.add_row({"  " + part, number(share, "")});
  table.add_row({"programmed per byte, last quarter", number(c["write_amplification"]["programmed_per_byte"], "")});
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
  std::string text = fmt::format("{}\n\n{}flash.rated_cycles: {}.\n\n{}", c["name"].get_ref<const std::string&>(),
                                 table.to_text(), c["rated"].get_ref<const std::string&>(), over_time(c["samples"]));
  if (c["changes"].empty()) return text;
  report::Table changes({"one change", "new per day", "write amplification", "years", "times"});
  for (const ordered_json& row : c["changes"])
    changes.add_row({row["change"].get<std::string>(), bytes(row["new_bytes_per_day"]),
                     number(row["write_amplification_late"], ""), number(row["drive_lifetime_years"], ""),
                     number(row["times"], "")});
  return text + "\n" + changes.to_text();
}

}  // namespace csdsim::experiment

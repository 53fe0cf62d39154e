#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "csd_model/drive_peaks.h"
#include "csd_model/exported_capacity.h"
#include "experiment/datasheet/datasheet.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

/// "14.16 GB/s", "446.5 k IOPS".
std::string with_unit(const ordered_json& value, const std::string& unit) {
  if (value.is_null()) return "-";
  const std::string number = report::short_number(value.get<double>());
  return number.find(' ') != std::string::npos && unit.starts_with("B") ? number + unit : number + " " + unit;
}

/// "58.3 us", "1.09 ms".
std::string time_text(const ordered_json& nanoseconds) {
  if (nanoseconds.is_null()) return "-";
  const double us = nanoseconds.get<double>() * 1e-3;
  return us < 1000 ? fmt::format("{:.1f} us", us) : fmt::format("{:.2f} ms", us * 1e-3);
}

std::string share_text(double share) { return fmt::format("{:.0f} %", share * 100); }

/// "flash_arrays 96 %"; what is busiest where the depth limits the rate.
std::string binding_text(const ordered_json& row) {
  if (row["bound_by"].is_null()) return "-";
  const std::string bound = row["bound_by"].get<std::string>();
  if (row["busy"].is_null()) return bound;
  const std::string busiest = row["busy"]["station"].get<std::string>();
  const std::string share = share_text(row["busy"]["share"].get<double>());
  return bound == busiest ? fmt::format("{} {}", bound, share) : fmt::format("{} ({} {})", bound, busiest, share);
}

/// "3.865 GB exported, of 4.295 GB of flash (10.0 % of it spare)"
std::string capacity_text(std::uint64_t exported, std::uint64_t flash) {
  return fmt::format("{} exported, of {} of flash ({:.1f} % of it spare)", with_unit(double(exported), "B"),
                     with_unit(double(flash), "B"), 100 * (1 - double(exported) / double(flash)));
}

/// The table, and the reasons of rows that were left out.
std::string with_reasons(const report::Table& table, const ordered_json& rows) {
  std::string text = table.to_text();
  for (const ordered_json& row : rows)
    if (!row["skipped"].is_null())
      text += fmt::format("{}: {}\n", row["figure"].get<std::string>(), row["skipped"].get<std::string>());
  return text;
}

std::string rate_table(const ordered_json& rows) {
  report::Table table(
      {"figure", "rate", "peak", "of peak", "peak bound by", "bound by", "mean latency", "write ampl."});
  for (const ordered_json& row : rows) {
    const std::string unit = row["unit"].get<std::string>();
    const bool measured = !row["value"].is_null();
    const ordered_json& amplification = row["write_amplification"];
    table.add_row({row["figure"].get<std::string>(), with_unit(row["value"], unit), with_unit(row["peak"], unit),
                   measured ? share_text(row["value"].get<double>() / row["peak"].get<double>()) : "-",
                   measured ? row["peak_bound_by"].get<std::string>() : "-", binding_text(row),
                   time_text(row["latency_mean_ns"]),
                   amplification.is_null() ? "" : fmt::format("{:.2f}", amplification.get<double>())});
  }
  return with_reasons(table, rows);
}

std::string latency_table(const ordered_json& rows) {
  report::Table table({"latency", "of", "IOPS", "p50", "p99", "p99.99"});
  for (const ordered_json& row : rows)
    table.add_row({row["figure"].get<std::string>(), row["of"].is_null() ? "-" : row["of"].get<std::string>() + "s",
                   row["iops"].is_null() ? "-" : report::short_number(row["iops"].get<double>()),
                   time_text(row["latency_p50_ns"]), time_text(row["latency_p99_ns"]),
                   time_text(row["latency_p9999_ns"])});
  return with_reasons(table, rows);
}

std::string endurance_table(const ordered_json& endurance) {
  if (endurance["writes"].empty()) return "";
  report::Table table({"endurance", "written", "drive writes per day, 5 years", "years at one drive write per day"});
  for (const ordered_json& row : endurance["writes"])
    table.add_row({row["figure"].get<std::string>(), with_unit(row["bytes_written"], "B"),
                   fmt::format("{:.2f}", row["drive_writes_per_day_5_years"].get<double>()),
                   fmt::format("{:.1f}", row["years_at_a_drive_write_per_day"].get<double>())});
  return fmt::format("\n{}flash.rated_cycles: {}.\n", table.to_text(), endurance["rated"].get<std::string>());
}

std::string attention_table(const ordered_json& attention) {
  report::Table table(
      {fmt::format("attention of {}", attention["model"].get<std::string>()), "rate", "peak", "bound by"});
  for (const ordered_json& row : attention["rows"])
    table.add_row({row["figure"].get<std::string>(), with_unit(row["value"], "tokens/s"),
                   with_unit(row["peak"], "tokens/s"),
                   row["bound_by"].is_null() ? "-" : row["bound_by"].get<std::string>()});
  return "\n" + with_reasons(table, attention["rows"]) +
         "Decoded tokens per second if attention were all that takes time.\n";
}

}  // namespace

std::string peaks_text(const csd_model::DeviceConfig& device) {
  const Bytes large = Bytes::kib(128);
  const auto peak = [&](const csd_model::BlockLoad& load) { return block_peak(device, load).requests_per_s; };
  const auto bandwidth = [&](double reads) {
    return with_unit(peak({.reads = reads, .size = large, .sequential = true}) * double(large.value), "B/s");
  };
  return fmt::format("drive: {}; peaks: {} of 4 KiB reads, {} read, {} written",
                     capacity_text(csd_model::exported_capacity(device).value, device.flash.geometry.capacity().value),
                     with_unit(peak({}), "IOPS"), bandwidth(1), bandwidth(0));
}

std::string datasheet_text(const ordered_json& sheet) {
  std::string text = fmt::format(
      "{}: {}\n", sheet["name"].get<std::string>(),
      capacity_text(sheet["capacity_bytes"].get<std::uint64_t>(), sheet["flash_bytes"].get<std::uint64_t>()));
  if (const std::string preset = sheet["description"].get<std::string>(); !preset.empty()) text += preset + "\n\n";
  text += rate_table(sheet["rates"]) + "\n" + latency_table(sheet["latencies"]) + endurance_table(sheet["endurance"]);
  if (sheet.contains("attention")) text += attention_table(sheet["attention"]);
  return text +
         "\nPeak: what the part named reaches if it never waits (no waits, lookups or erases). Bound by depth: with so "
         "many "
         "requests\nin flight nothing is always busy. Steady: after two overwrites of a smaller drive with the same "
         "share "
         "of spare flash.\n";
}

ordered_json datasheet_rows(const ordered_json& sheet) {
  ordered_json rows = ordered_json::array();
  const auto add = [&](const std::string& figure, const ordered_json& value, const std::string& unit,
                       const ordered_json& peak = nullptr, const ordered_json& bound_by = nullptr,
                       const ordered_json& skipped = nullptr) {
    rows.push_back({{"figure", figure},
                    {"value", value},
                    {"unit", unit},
                    {"peak", peak},
                    {"bound_by", bound_by},
                    {"skipped", skipped}});
  };
  add("capacity", sheet["capacity_bytes"], "B");
  add("flash", sheet["flash_bytes"], "B");
  for (const ordered_json& row : sheet["rates"]) {
    const std::string figure = row["figure"].get<std::string>();
    add(figure, row["value"], row["unit"].get<std::string>(), row["peak"], row["bound_by"], row["skipped"]);
    add(figure + ", mean latency", row["latency_mean_ns"], "ns");
    if (!row["write_amplification"].is_null()) add(figure + ", write amplification", row["write_amplification"], "1");
  }
  for (const ordered_json& row : sheet["latencies"]) {
    std::string figure = row["figure"].get<std::string>();
    if (!row["of"].is_null()) figure += fmt::format(", {}s", row["of"].get<std::string>());
    for (const auto& [key, percentile] : {std::pair("latency_p50_ns", "p50"), std::pair("latency_p99_ns", "p99"),
                                          std::pair("latency_p9999_ns", "p99.99")})
      add(fmt::format("{}, {}", figure, percentile), row[key], "ns", nullptr, nullptr, row["skipped"]);
  }
  for (const ordered_json& row : sheet["endurance"]["writes"]) {
    const std::string figure = row["figure"].get<std::string>();
    add("endurance, " + figure, row["bytes_written"], "B");
    add("drive writes per day for 5 years, " + figure, row["drive_writes_per_day_5_years"], "1/day");
  }
  if (sheet.contains("attention"))
    for (const ordered_json& row : sheet["attention"]["rows"])
      add(row["figure"].get<std::string>(), row["value"], "tokens/s", row["peak"], row["bound_by"], row["skipped"]);
  return rows;
}

}  // namespace csdsim::experiment

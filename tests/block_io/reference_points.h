// The points of tests/reference/mqsim_points.csv and mqsim_subpage_points.csv: the same work on this model.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace csdsim::reference {

/// A row of the table, by the names of its columns.
class Point {
 public:
  Point(const std::vector<std::string>& names, const std::string& line) {
    std::istringstream stream(line);
    for (const std::string& name : names) std::getline(stream, cells_[name], ',');
  }
  const std::string& text(const std::string& column) const { return cells_.at(column); }
  double number(const std::string& column) const { return std::stod(cells_.at(column)); }
  std::uint64_t count(const std::string& column) const { return std::stoull(cells_.at(column)); }

  /// The value of another column, where this table has none for it.
  void set_if_absent(const std::string& column, const std::string& value) { cells_.emplace(column, value); }

  std::string name() const { return text("config"); }
  bool collects_garbage() const { return !text("steady_write_amplification").empty(); }
  bool writes() const { return count("read_pct") < 100; }
  bool smaller_than_page() const { return count("req_bytes") < count("page_bytes"); }

 private:
  std::map<std::string, std::string> cells_;
};

inline std::vector<Point> read_points(const std::string& table = "mqsim_points.csv") {
  const std::string file = std::string(CSDSIM_SOURCE_DIR) + "/tests/reference/" + table;
  std::ifstream stream(file);
  if (!stream) throw UserError(file + ": cannot be read");
  std::string line;
  while (std::getline(stream, line) && line.starts_with('#')) {
  }
  std::vector<std::string> names;
  std::istringstream heading(line);
  for (std::string name; std::getline(heading, name, ',');) names.push_back(name);
  std::vector<Point> points;
  while (std::getline(stream, line)) points.emplace_back(names, line);
  return points;
}

/// Requests smaller than the page. The settings that this table leaves out are those of the other one.
inline std::vector<Point> read_subpage_points() {
  std::vector<Point> points = read_points("mqsim_subpage_points.csv");
  for (Point& p : points) {
    for (const auto& [column, as] :
         {std::pair{"requests_generated", "requests"}, {"iops", "iops_mean"}, {"avg_response_us", "latency_mean_us"}})
      p.set_if_absent(column, p.text(as));
    for (const auto& [column, value] : {std::pair{"dies_per_chip", "1"},
                                        {"planes_per_die", "1"},
                                        {"tBERS_us", "3000"},
                                        {"op_ratio", "0.07"},
                                        {"working_set_pct", "80"},
                                        {"pattern", "RANDOM_UNIFORM"},
                                        {"steady_write_amplification", ""}})
      p.set_if_absent(column, value);
  }
  return points;
}

/// What MQSim adds to tR: its chips pull ready/busy 20 ns after a page is read (Flash_Chip.h; programs have no such
/// delay).
inline constexpr double kReadyBusyUs = 0.02;

/// The scenario of a row: its drive, its work, data-outs before commands, a link of generation 3 with 8 lanes; pages on
/// planes that follow from their number, whether written or only read, as MQSim places them. Requests start at a page,
/// which the table does not say: at multiples of their size, rr64k has 0.3 % more IOPS. Requests smaller than the page
/// start at multiples of their size, and move the sectors of 512 B that they want, without parity.
///
/// Times as MQSim spends them, which its table does not say: the setup of a data-out (30 ns) is computed by
/// ONFI_Channel_NVDDR2 and used nowhere; packets on its link have 128 B of payload and 20 B of header, 2 B of framing
/// and 6 B of link-layer packets (PCIe_Link.h).
inline std::string scenario_of(const Point& p) {
  const std::uint64_t reads = p.count("read_pct");
  const bool streaming = p.text("pattern") == "STREAMING";
  const std::string what = reads == 100 ? "read" : reads == 0 ? "write" : "mixed";
  return fmt::format(
      "csdsim: 1\n"
      "platform:\n"
      "  device:\n"
      "    flash: {{channels: {}, dies_per_channel: {}, planes_per_die: {}, blocks_per_plane: {}, pages_per_block: "
      "{},\n"
      "            page_size: {} B, read_latency: {:g} us, program_latency: {:g} us, erase_latency: {:g} us,\n"
      "            channel_bandwidth: {:g} MB/s, command_time: 290 ns, data_out_setup: 0 ns,\n"
      "            bus_arbitration: data_first{}}}\n"
      "    link: {{generation: 3, lanes: 8, max_payload: 128 B, tlp_overhead: 22 B, dllp_overhead: 6 B}}\n"
      "    ftl: {{mapping: {{kind: page}}, over_provisioning: {}, allocation: static}}\n"
      "workload: {{kind: block_io, pattern: {}_{}, request_size: {} B, alignment: {} B, queue_depth: {}, requests: {}, "
      "working_set: {}{}}}\n",
      p.count("channels"), p.count("chips_per_channel") * p.count("dies_per_chip"), p.count("planes_per_die"),
      p.count("blocks_per_plane"), p.count("pages_per_block"), p.count("page_bytes"), p.number("tR_us") + kReadyBusyUs,
      p.number("tPROG_us"), p.number("tBERS_us"), p.number("effective_channel_MBps"),
      p.smaller_than_page() ? ", codewords: {size: 512 B, parity: 0 B}" : "", p.text("op_ratio"),
      streaming ? "sequential" : "random", what, p.count("req_bytes"),
      std::min(p.count("req_bytes"), p.count("page_bytes")), p.count("queue_depth"), p.count("requests_generated"),
      p.number("working_set_pct") / 100,
      what == "mixed" ? fmt::format(", read_fraction: {}", static_cast<double>(reads) / 100) : "");
}

struct Figures {
  double iops = 0;
  double latency_us = 0;
  double write_amplification = 1;
};

/// Writes go to the next plane that has room, which is the default here.
inline const std::string kDynamicAllocation = "platform.device.ftl.allocation=dynamic";

/// Planes take waiting reads before waiting writes, as MQSim does.
inline const std::string kReadsFirst = "platform.device.flash.plane_order=reads_first";

/// Nothing is written before the run, so that a write to a part of a page has nothing to keep.
inline const std::string kEmpty = "workload.precondition.fill=none";

/// The map addresses the requests, each of which takes a page of its own: there is no write buffer to pack them in.
inline std::string units_of(const Point& p) {
  return fmt::format("platform.device.ftl.mapping_unit={} B", p.count("req_bytes"));
}

/// Runs a row, with `sets` over its scenario.
inline Figures run_point(const Point& point, const std::vector<std::string>& sets = {}) {
  const scenario::RunResult result = experiment::run_scenario(
      experiment::load_scenario_text(scenario_of(point), point.name(), ".", sets).base.scenario);
  if (!result.failure.empty()) throw InternalError(point.name() + ": " + result.failure);
  const auto& metrics = result.document.at("metrics");
  return {metrics.at("iops"), metrics.at("latency_mean_ns").get<double>() * 1e-3, metrics.at("write_amplification")};
}

}  // namespace csdsim::reference

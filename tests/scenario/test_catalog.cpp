#include <algorithm>
#include <catch2/catch.hpp>

#include "base/config/dump.h"
#include "base/error.h"
#include "base/formula.h"
#include "experiment/experiments.h"
#include "scenario/scenario.h"
#include "tests/scenario/scenario_support.h"

namespace test_catalog {

using namespace csdsim;
using namespace csdsim::scenario;
using namespace csdsim::test;
using Catch::Matchers::Contains;

TEST_CASE("every parameter is described: sentence, source with a place, default in its range") {
  const auto table = table_of_scenario();
  CHECK(table.rows.size() > 80);
  for (const auto& row : table.rows) {
    INFO(row.path);
    CHECK(row.doc.size() > 8);
    CHECK(row.doc.back() == '.');
    CHECK_FALSE(row.cite.where.empty());
    CHECK_FALSE(row.type.empty());
    const bool quantity = row.type.starts_with("count") || row.type.starts_with("time") ||
                          row.type.starts_with("size") || row.type.starts_with("ratio") ||
                          row.type.starts_with("bandwidth");
    if (quantity) CHECK_FALSE(row.range.empty());
  }
  for (const auto& section : table.sections) {
    INFO(section.path);
    CHECK(section.doc.back() == '.');
    for (const auto& doc : section.kind_docs) CHECK(doc.back() == '.');
  }
}

TEST_CASE("describe shows every parameter of the part that is asked for") {
  const std::string everything = describe_text("scenario");
  const std::string markdown = describe_markdown();
  for (const auto& row : table_of_scenario().rows) {
    INFO(row.path);
    CHECK(everything.find("  " + row.name) != std::string::npos);
    CHECK(everything.find(row.doc) != std::string::npos);
    CHECK(markdown.find("| `" + row.name + "`") != std::string::npos);
  }
  for (const auto& kind : describe_kinds()) CHECK_FALSE(describe_text(kind).empty());
  const std::string flash = describe_text("flash");
  CHECK(flash.find("channel_bandwidth") != std::string::npos);
  CHECK(flash.find("1.4 GB/s") != std::string::npos);
  CHECK(flash.find("engine") == std::string::npos);
  CHECK(describe_text("device").find("read_latency") != std::string::npos);
  const std::string sparf = describe_text("system", "instinfer-sparf");
  CHECK(sparf.find("ratio_mode") != std::string::npos);
  CHECK(describe_text("system", "instinfer-dense").find("ratio_mode") == std::string::npos);
  CHECK(describe_text("platform.gpu.link").find("platform.device.link") == std::string::npos);
  CHECK(describe_text("device", "instcsd-zynq7045").find("InstInfer V-B") != std::string::npos);
}

TEST_CASE("describe finds a parameter by its key, its path or its map, and the plurals of list") {
  const std::string by_path = describe_text("platform.device.flash.channels");
  CHECK(by_path.find("platform.device.flash.channels") != std::string::npos);
  CHECK(by_path.find("Flash channels of the drive.") != std::string::npos);
  CHECK(by_path.find("dies_per_channel") == std::string::npos);
  CHECK(describe_text("flash", "channels") == by_path);
  CHECK(describe_text("channels") == by_path);
  CHECK(describe_text("queue_depth").find("workload.queue_depth") != std::string::npos);
  CHECK(describe_text("mappings") == describe_text("mapping"));
  CHECK(describe_text("block_io") == describe_text("workload", "block_io"));
  CHECK(describe_text("smartssd") == describe_text("device", "smartssd"));
  CHECK(describe_text("sparf") == describe_text("methods", "sparf"));
  CHECK(describe_text("interfaces").find("onfi-sdr-10") != std::string::npos);
  CHECK_THROWS_WITH(describe_text("flash", "chanels"), Catch::Contains("did you mean channels?"));
  CHECK_THROWS_WITH(describe_text("metrcs"), Catch::Contains("did you mean metrics?"));
}

TEST_CASE("lists name what exists") {
  CHECK(catalog("systems").size() == 17);
  CHECK(catalog("mappings")[0].name == "instinfer");
  CHECK(catalog("gpus").size() == 14);
  CHECK(list_text().find("workloads:\n  generation") != std::string::npos);
  CHECK(list_text("presets").find("xeon-5320") != std::string::npos);
  CHECK_THROWS_WITH(catalog("system"), Catch::Contains("(did you mean systems?)"));
  CHECK_THROWS_WITH(describe_text("flsh"), Catch::Contains("(did you mean flash?)"));
  CHECK_THROWS_WITH(describe_text("system", "instinfer-sparq"), Catch::Contains("(did you mean instinfer-sparf?)"));
  CHECK_THROWS_WITH(describe_text("device", "smartsd"), Catch::Contains("(did you mean smartssd?)"));
}

TEST_CASE("every metric has one definition, and its formula is one") {
  const scenario::DescribedMetrics metrics = experiment::all_metrics(*experiment::builtin_registries());
  std::vector<std::string_view> names;
  for (const auto& [info, runs] : metrics) {
    CAPTURE(info.name);
    CHECK(std::ranges::find(names, info.name) == names.end());
    names.push_back(info.name);
    CHECK_FALSE(info.unit.empty());
    if (!info.meaning.empty()) CHECK(info.meaning.ends_with("."));
    if (!info.formula.empty()) CHECK_NOTHROW(Formula(info.formula));
  }
  CHECK(scenario::metric_names(metrics, "of a plugin").empty());
  CHECK_THROWS_WITH(scenario::metrics_text("ttft", metrics), Contains("did you mean ttft_s?"));
  CHECK_THAT(scenario::metrics_text("flow3_latency_p50_ns", metrics),
             Contains("of the first flow") && Contains("runs: block_io trace"));
}

}  // namespace test_catalog

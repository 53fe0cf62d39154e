// Drives as a data sheet describes them: figures that a reader can check with a pencil.
#include <catch2/catch.hpp>

#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_data_sheet {

using namespace csdsim;
using nlohmann::ordered_json;
using Sets = std::vector<std::string>;

namespace {

ordered_json run(const std::string& file, const Sets& sets = {}) {
  const std::string path = std::string(CSDSIM_SOURCE_DIR) + "/tests/data/data_sheet/" + file;
  const scenario::RunResult result = experiment::run_scenario(experiment::load_scenario(path, sets).base.scenario);
  INFO(result.failure);
  REQUIRE(result.failure.empty());
  ordered_json document = result.document;
  document["meaning"] = result.meaning;
  return document;
}

double metric(const ordered_json& document, const std::string& name) { return document["metrics"][name]; }

}  // namespace

TEST_CASE("random writes go to planes that are free: a drive that collects reaches what its arrays allow") {
  // 64 planes: each write of 4 KiB takes a merging read of 60 us and a program of 700 us, and moves
  // (write amplification - 1) pages in 784 us each: 60 us, 700 us and their share of the bus and the erase.
  const auto pencil = [](const ordered_json& document, double merge_us) {
    const double moved = metric(document, "write_amplification") - 1;
    return 64e6 / (merge_us + 700 + moved * 760 + (moved + 1) / 66 * 3000);
  };
  for (const char* depth : {"128", "1024"}) {
    const ordered_json document = run("random_write.yaml", {std::string("workload.queue_depth=") + depth});
    CAPTURE(depth, document["metrics"]);
    CHECK(metric(document, "iops") > 0.95 * pencil(document, 60));
    CHECK(metric(document, "iops") < 1.01 * pencil(document, 60));
    CHECK(metric(document, "iops") > 8'300);
    CHECK(document["breakdown"]["measured"]["bound_by"] == "flash_arrays");
    CHECK(document["breakdown"]["measured"]["utilization"]["flash_arrays"].get<double>() > 0.9);
    CHECK_FALSE(document["breakdown"]["measured"].contains("waits_for"));
  }
  // Whole pages; deeper queues are not slower.
  double before = 0;
  for (const char* depth : {"64", "256", "1024"}) {
    const ordered_json document =
        run("random_write.yaml", {"workload.request_size=16 KiB", std::string("workload.queue_depth=") + depth});
    CAPTURE(depth, document["metrics"]);
    CHECK(metric(document, "iops") > 0.95 * pencil(document, 0));
    CHECK(metric(document, "iops") > 0.99 * before);
    before = metric(document, "iops");
  }
}

TEST_CASE("a smaller copy amplifies writes as the whole drive of 1,328 blocks per plane does") {
  const ordered_json copy = run("random_write.yaml", {"platform.device.ftl.scaled_from_blocks=1328"});
  const ordered_json same_share = run("random_write.yaml");
  CAPTURE(copy["metrics"], same_share["metrics"]);
  CHECK(metric(copy, "write_amplification") == Approx(6.8).epsilon(0.03));
  CHECK(metric(same_share, "write_amplification") > 8.5);
  const ordered_json &spare = copy["breakdown"]["spare"], &less = same_share["breakdown"]["spare"];
  CHECK(spare["effective_share"].get<double>() == Approx(0.07 - 0.93 * 3 / 1324).epsilon(0.001));
  CHECK(less["share"] == 0.07);
  CHECK(less["effective_share"].get<double>() == Approx(1 - 0.93 * 127 / 124).epsilon(0.001));
  // Its parts make up the write amplification; here the host and collection are all.
  const ordered_json& m = copy["metrics"];
  CHECK(m["write_amplification_host"] == 1);
  CHECK(1 + m["write_amplification_collection"].get<double>() == Approx(metric(copy, "write_amplification")));
  CHECK(m["write_amplification_padding"] == 0);
  // Each write of 4 KiB programs a page of 16 KiB.
  CHECK(metric(copy, "programmed_per_byte_written") == Approx(4 * metric(copy, "write_amplification")));
}

TEST_CASE("where nothing is busy for half of the time, the result says what requests wait for") {
  const ordered_json one = run("random_write.yaml", {"workload.queue_depth=1", "workload.requests=2000"});
  const ordered_json& interval = one["breakdown"]["measured"];
  CAPTURE(interval);
  CHECK(interval["utilization"][interval["bound_by"].get<std::string>()].get<double>() < 0.5);
  // One write at a time takes a read and a program.
  CHECK(interval["waits_for"] == "array");
  const ordered_json& stages = one["breakdown"]["latency_stages"]["write"];
  CHECK(interval["waits_for_share"].get<double>() ==
        Approx(stages["array"].get<double>() / metric(one, "latency_mean_ns")).epsilon(1e-6));
  const std::string meaning = one["meaning"];
  CHECK(meaning.find("no part of the drive was busy for half of it") != std::string::npos);
  CHECK(meaning.find("in array") != std::string::npos);
}

}  // namespace test_data_sheet

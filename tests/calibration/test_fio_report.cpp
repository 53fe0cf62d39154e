// JSON output of fio. The form of the jobs is that of fio 3.33.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "experiment/calibration/fio_report.h"
#include "report/files.h"

namespace test_fio_report {

using namespace csdsim;
using namespace csdsim::experiment;
using nlohmann::ordered_json;

namespace {

ordered_json figures(double iops, double latency_ns) {
  return {{"total_ios", iops > 0 ? 1000 : 0},
          {"iops", iops},
          {"slat_ns", {{"mean", 900.0}}},
          {"clat_ns", {{"mean", latency_ns - 900}}},
          {"lat_ns", {{"mean", latency_ns}}}};
}

ordered_json job(const char* name, int group, ordered_json options, double reads, double writes, double latency_ns) {
  return {{"jobname", name},
          {"groupid", group},
          {"error", 0},
          {"job options", std::move(options)},
          {"read", figures(reads, latency_ns)},
          {"write", figures(writes, 2 * latency_ns)}};
}

struct File {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "csdsim_test_fio.json";
  explicit File(const std::string& text) { report::write_file(path, text); }
  explicit File(const ordered_json& jobs)
      : File(ordered_json{
            {"fio version", "fio-3.33"}, {"global options", {{"ioengine", "libaio"}, {"direct", "1"}}}, {"jobs", jobs}}
                 .dump()) {}
  ~File() { std::filesystem::remove(path); }
};

ordered_json random_read(int group, const char* depth) {
  return job("r", group, {{"rw", "randread"}, {"bs", "4k"}, {"iodepth", depth}}, 1000, 0, 60e3);
}

}  // namespace

TEST_CASE("jobs of fio become points") {
  const File file(ordered_json{
      random_read(0, "32"), job("w", 1, {{"rw", "write"}, {"bs", "128K"}, {"iodepth", "8"}}, 0, 500, 40e3),
      job("m", 2, {{"readwrite", "randrw"}, {"blocksize", "16384"}, {"iodepth", "4"}, {"rwmixread", "70"}}, 70, 30,
          80e3),
      job("s", 3, {{"rw", "read"}, {"ioengine", "psync"}, {"iodepth", "16"}, {"numjobs", "3"}}, 90, 0, 30e3)});
  const FioReport report = read_fio(file.path);
  REQUIRE(report.points.size() == 4);
  CHECK(report.notes.empty());
  const FioPoint &r = report.points[0], &w = report.points[1], &m = report.points[2], &s = report.points[3];
  CHECK(r.pattern == Pattern::random_read);
  CHECK(r.request_size == Bytes::kib(4));
  CHECK(r.queue_depth == 32);
  CHECK(r.read->iops == 1000);
  CHECK(r.read->latency_ns == 60e3);
  CHECK_FALSE(r.write);
  CHECK(w.pattern == Pattern::sequential_write);
  CHECK(w.request_size == Bytes::kib(128));
  CHECK(w.write->latency_ns == 80e3);
  CHECK(m.pattern == Pattern::random_mixed);
  CHECK(m.request_size == Bytes::kib(16));
  CHECK(m.read_fraction == 0.7);
  CHECK(m.read->iops == 70);
  CHECK(m.write->iops == 30);
  CHECK(s.queue_depth == 3);  // engines that wait have one request per clone
  CHECK(s.clones == 3);
}

TEST_CASE("rwmixread and rwmixwrite state one share of reads") {
  const auto share = [](ordered_json options) {
    options["rw"] = "randrw";
    return read_fio(File(ordered_json{job("m", 0, std::move(options), 70, 30, 80e3)}).path).points[0].read_fraction;
  };
  CHECK(share(ordered_json::object()) == 0.5);
  CHECK(share({{"rwmixwrite", "15"}}) == 0.85);
  CHECK(share({{"rwmixwrite", "15"}, {"rwmixread", "85"}}) == 0.85);
  CHECK_THROWS_WITH(share({{"rwmixwrite", "15"}, {"rwmixread", "80"}}), Catch::Contains("contradicts rwmixwrite=15"));
  CHECK_THROWS_WITH(share({{"rwmixwrite", "100"}}), Catch::Contains("from 1 to 99"));
}

TEST_CASE("a job's own share of reads comes before that of all jobs") {
  const auto share = [](ordered_json globals, ordered_json own) {
    own["rw"] = "randrw";
    const ordered_json jobs{job("m", 0, std::move(own), 70, 30, 80e3)};
    return read_fio(File(ordered_json{{"global options", std::move(globals)}, {"jobs", jobs}}.dump()).path)
        .points[0]
        .read_fraction;
  };
  CHECK(share({{"rwmixread", "70"}}, {{"rwmixwrite", "15"}}) == 0.85);
  CHECK(share({{"rwmixwrite", "15"}}, ordered_json::object()) == 0.85);
}

TEST_CASE("a report is the same with a byte-order mark, CRLF and no last newline") {
  const std::string text = ordered_json{{"jobs", {random_read(0, "8")}}}.dump(1);
  for (const std::string mark : {"", "\xEF\xBB\xBF"})
    for (const std::string warning : {"", "fio: a warning {1}\n"})
      for (const std::string end : {"\n", "\r\n"})
        for (const bool last : {false, true}) {
          std::string form = mark + warning + text + (last ? "\n" : "");
          for (std::size_t at = 0; end == "\r\n" && (at = form.find('\n', at)) != std::string::npos; at += 2)
            form.replace(at, 1, end);
          const FioReport report = read_fio(File(form).path);
          REQUIRE(report.points.size() == 1);
          CHECK(report.points[0].queue_depth == 1);
          CHECK(report.points[0].read->iops == 1000);
        }
}

TEST_CASE("clones that fio lists one by one are one point") {
  ordered_json clone = job("c", 0, {{"rw", "randread"}, {"iodepth", "4"}, {"numjobs", "2"}}, 300, 0, 50e3);
  ordered_json other = clone;
  other["read"] = figures(100, 90e3);
  const FioReport report = read_fio(File(ordered_json{clone, other, random_read(1, "1")}).path);
  REQUIRE(report.points.size() == 2);
  CHECK(report.points[0].queue_depth == 8);
  CHECK(report.points[0].read->iops == 400);
  CHECK(report.points[0].read->latency_ns == 60e3);
}

TEST_CASE("warnings before the JSON and a page cache are no obstacle") {
  const std::string text = ordered_json{{"jobs", {random_read(0, "1")}}}.dump();
  const FioReport report = read_fio(File("fio: a warning {1}\n" + text).path);
  CHECK(report.points.size() == 1);
  CHECK(report.points[0].queue_depth == 1);  // psync, fio's default engine
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0].find("page cache") != std::string::npos);
}

TEST_CASE("what is no output of fio or cannot be simulated is refused by name") {
  const auto error = [](const File& file) -> std::string {
    try {
      read_fio(file.path);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto error_of = [&](const char* key, const char* value) {
    ordered_json one = random_read(0, "4");
    one["job options"][key] = value;
    return error(File(ordered_json{one}));
  };
  using Catch::Contains;
  CHECK_THAT(error(File(std::string("hello"))), Contains("--output-format=json"));
  CHECK_THAT(error(File(std::string("{}"))), Contains("has no jobs"));
  CHECK_THAT(error(File(std::string("[1]"))), Contains("has no jobs"));
  CHECK_THAT(error(File(std::string(R"({"jobs": [7]})"))), Contains("is not as fio writes it"));
  CHECK_THAT(error(File(ordered_json{random_read(0, "4"), job("x", 0, {{"rw", "read"}}, 5, 0, 1e3)})),
             Contains("job 'x': ran together with job 'r'"));
  CHECK_THAT(error_of("rw", "trim"), Contains("job 'r': rw is 'trim'"));
  CHECK_THAT(error_of("rw", "randwrite"), Contains("has not measured"));
  CHECK_THAT(error_of("bs", "4k,8k"), Contains("bs is '4k,8k'"));
  CHECK_THAT(error_of("bs", "0"), Contains("bs is '0'"));
  CHECK_THAT(error_of("bs", "4kib"), Contains("bs is '4kib'"));
  CHECK_THAT(error_of("iodepth", "-1"), Contains("iodepth is '-1'"));
  CHECK_THAT(error_of("rate_iops", "500"), Contains("rate_iops is not simulated"));
  CHECK_THAT(error_of("fsync", "4"), Contains("fsync is not simulated"));
  CHECK_THAT(error_of("iodepth_batch", "8"), Contains("iodepth_batch is not simulated"));
  CHECK_THAT(error_of("nrfiles", "8"), Contains("nrfiles is not simulated"));
  CHECK_THAT(error_of("an_option_of_later", "1"), Contains("an_option_of_later is not simulated, or not known"));
  CHECK_THAT(error_of("ioengine", "null"), Contains("ioengine 'null' is not known to send the requests of a job"));
  CHECK_THAT(error_of("write_hint", "short"), Contains("write_hint is not simulated"));
  CHECK_THAT(error_of("ioscheduler", "bfq"), Contains("ioscheduler is not simulated"));
  CHECK(error_of("fsync", "0") == "accepted");
  CHECK(error_of("rate_process", "poisson") == "accepted");  // without a rate
  CHECK(error_of("log_unix_epoch", "1") == "accepted");
  CHECK(error_of("filename", "/dev/nvme0n1") == "accepted");
  CHECK(error_of("filename", "/dev/bus-0000\\:01\\:00.0") == "accepted");  // colons of a name
  CHECK_THAT(error_of("filename", "/dev/nvme0n1:/dev/nvme1n1"),
             Contains("filename '/dev/nvme0n1:/dev/nvme1n1' names 2 files or drives"));
  CHECK(error_of("offset", "1g") == "accepted");
  CHECK(error_of("size", "50%") == "accepted");
  CHECK_THAT(error_of("offset_increment", "1g"), Contains("offset_increment is not simulated"));
  CHECK_THAT(error_of("bssplit", "4k/50"), Contains("bssplit is not simulated"));
  ordered_json broken = random_read(0, "4");
  broken["error"] = 5;
  CHECK_THAT(error(File(ordered_json{broken})), Contains("ended with error 5"));
  CHECK_THROWS_WITH(read_fio("/dev/zero"), Contains("larger than the limit"));
  CHECK_THROWS_WITH(read_fio("/nowhere"), Contains("no such file"));
}

}  // namespace test_fio_report

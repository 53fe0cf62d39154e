// Readers of serving traces: what they make of good lines, and where they say bad ones are.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "host_runtime/traces/read_trace.h"

namespace test_serving_traces {

using namespace csdsim;
using namespace csdsim::host;

namespace {

/// A file that goes away with the test.
struct TemporaryFile {
  std::filesystem::path path;

  explicit TemporaryFile(const std::string& text) {
    char name[] = "/tmp/csdsim-trace-XXXXXX";
    const int descriptor = mkstemp(name);
    REQUIRE(descriptor >= 0);
    close(descriptor);
    path = name;
    std::ofstream(path, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

ServingTrace read(const std::string& text, const ServingTraceOptions& options = {}) {
  const TemporaryFile file(text);
  return read_serving_trace(file.path, options);
}

/// The message without the name of the file: ":LINE:COLUMN: error: ...".
std::string error_of(const std::string& text, const ServingTraceOptions& options = {}) {
  const TemporaryFile file(text);
  try {
    read_serving_trace(file.path, options);
  } catch (const UserError& error) {
    const std::string message = error.what();
    return message.starts_with(file.path.string()) ? message.substr(file.path.string().size()) : message;
  }
  return "no error";
}

std::vector<std::uint64_t> blocks(const ServingTrace& trace, std::size_t request) {
  std::vector<std::uint64_t> ids;
  for (const KvBlockId id : trace.blocks_of(trace.requests.at(request))) ids.push_back(id.value);
  return ids;
}

std::vector<TraceDependency> dependencies(const ServingTrace& trace, std::size_t request) {
  const auto all = trace.dependencies_of(trace.requests.at(request));
  return {all.begin(), all.end()};
}

using Ids = std::vector<std::uint64_t>;

const std::string kMooncake =
    R"({"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 27, "input_length": 1024, "output_length": 1, "hash_ids": [0, 2]}

{"timestamp": 27.5, "input_length": 1, "output_length": 16777216, "hash_ids": [18446744073709551615]}
)";

}  // namespace

TEST_CASE("Mooncake lines are read field by field") {
  const ServingTrace trace = read(kMooncake);
  CHECK(trace.block_tokens == 512U);
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].arrival == SimTime{});
  CHECK(trace.requests[0].input_tokens == 513);
  CHECK(trace.requests[0].output_tokens == 5);
  CHECK(blocks(trace, 0) == Ids{0, 1});
  CHECK(trace.requests[1].arrival == SimTime::milliseconds(27));
  CHECK(blocks(trace, 1) == Ids{0, 2});
  CHECK(trace.requests[2].arrival == SimTime::microseconds(27'500));
  CHECK(trace.requests[2].line == 4);
  CHECK(blocks(trace, 2) == Ids{~std::uint64_t{0}});
  CHECK(trace.dependencies.empty());
  CHECK(read(kMooncake, {.first_requests = 2}).requests.size() == 2);
}

TEST_CASE("Mooncake lines of sessions wait for the request before") {
  const ServingTrace trace = read(
      R"({"session_id": "a", "created_time": 5, "input_tokens": 9, "output_tokens": 1, "priority": 1, "request_id": 7}
{"session_id": 3, "timestamp": 6, "input_length": 9, "output_length": 1}
{"session_id": "a", "delay_ms": 2, "input_length": 9, "output_length": 1}
{"session_id": "a", "input_length": 9, "output_length": 1}
{"session_id": "3", "timestamp": 7, "input_length": 9, "output_length": 1}
)");
  CHECK(trace.block_tokens == std::nullopt);
  CHECK(trace.requests[0].session == 0U);
  CHECK(trace.requests[1].session == 1U);
  CHECK(trace.requests[4].session == 1U);
  CHECK(dependencies(trace, 2) ==
        std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime::milliseconds(2)}});
  CHECK(dependencies(trace, 3) == std::vector<TraceDependency>{{2, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(!trace.requests[2].arrival);
  CHECK(trace.requests[4].arrival == SimTime::milliseconds(7));
  CHECK(dependencies(trace, 4) == std::vector<TraceDependency>{{1, TraceDependency::Trigger::completion, SimTime{}}});
}

TEST_CASE("Mooncake lines that cannot be right are refused with their place") {
  const auto line = [](const std::string& more) {
    return R"({"input_length": 600, "output_length": 2, )" + more + "}";
  };
  CHECK(error_of("") == ": error: holds no request");
  CHECK(error_of("\n{\"input_length\": 1}\n") == ":2:1: error: no output_length");
  CHECK(error_of(line(R"("timestamp": 0, "hashes": [1])"))
            .starts_with(":1:59: error: unknown key 'hashes'; known are timestamp"));
  CHECK(error_of(line(R"("timestamp": 0, "hash_ids": [1])")) ==
        ":1:71: error: hash_ids: 1 ids for 600 tokens, which fill 2 blocks of 512");
  CHECK(error_of(line(R"("timestamp": 0, "hash_ids": [1, 2])"), {.block_tokens = 200}) ==
        ":1:71: error: hash_ids: 2 ids for 600 tokens, which fill 3 blocks of 200");
  CHECK(error_of(line(R"("timestamp": 0, "hash_ids": [1, -2])")).starts_with(":1:75: error: hash_ids: '-2' is not"));
  CHECK(error_of(line(R"("timestamp": -1)")).starts_with(":1:56: error: timestamp: '-1' is not a number from 0"));
  CHECK(error_of(line(R"("timestamp": 9)") + "\n" + line(R"("timestamp": 8.9)")) ==
        ":2:56: error: arrives before the request in the line above; sort the file by arrival");
  CHECK(error_of(line(R"("timestamp": 0)"), {.most_positions = 601}) ==
        ":1:18: error: 602 tokens (600 in, 2 out) exceed the 601 positions of the model");
  CHECK(error_of(line(R"("timestamp": 0)"), {.most_positions = 602}) == "no error");
  CHECK(error_of(R"({"input_length": 0, "output_length": 2})").starts_with(":1:18: error: input_length: '0' is not"));
  CHECK(error_of(R"({"input_length": 1, "output_length": 0})").starts_with(":1:38: error: output_length: '0' is not"));
  CHECK(error_of(line(R"("timestamp": 0, "delay": 1)")) ==
        ":1:68: error: delay: there is no earlier request of the same session to count from");
  CHECK(error_of(line(R"("timestamp": 0, "hash_ids": [1, 2])") + "\n" + line(R"("timestamp": 0)")) ==
        ":2:1: error: no hash_ids, which the requests above have");
  CHECK(error_of(line(R"("timestamp": 0)") + "\n" + line(R"("timestamp": 0, "hash_ids": [1, 2])")) ==
        ":2:71: error: hash_ids: the requests above have none");
  CHECK(error_of("{\"input_length\": 1, \"output_length\"}").starts_with(":1:36: error: syntax error"));
  CHECK(error_of(kMooncake, {.block_tokens = 0}) == ": error: KV blocks of 0 tokens");
  CHECK(error_of(kMooncake, {.format = "moncake"})
            .starts_with("there is no trace format 'moncake' (did you mean mooncake?); known are"));
}

TEST_CASE("hash ids that stand behind different prefixes are refused") {
  const auto pair = [](const std::string& first, const std::string& second) {
    const auto line = [](const std::string& ids) {
      return R"({"timestamp": 0, "input_length": 1500, "output_length": 1, "hash_ids": [)" + ids + "]}\n";
    };
    return error_of(line(first) + line(second));
  };
  CHECK(pair("1, 2, 3", "1, 2, 4") == "no error");
  CHECK(pair("1, 2, 3", "1, 4, 3") ==
        ":2:79: error: block 3 stands behind 4 here, but behind 2 in line 1; equal ids mean equal prefixes");
  CHECK(pair("1, 2, 3", "2, 5, 6") ==
        ":2:73: error: block 2 stands at the start of a prompt here, but behind 1 in line 1; equal ids mean equal "
        "prefixes");
  CHECK(pair("1, 2, 3", "4, 1, 2")
            .starts_with(":2:76: error: block 1 stands behind 4 here, but at the start of a prompt in line 1;"));
  CHECK(pair("1, 1, 2", "3, 4, 5").starts_with(":1:76: error: block 1 stands behind 1 here, but at the start"));
}

TEST_CASE("a trace is the same with a byte-order mark, carriage returns and without its last line end") {
  const ServingTrace plain = read(kMooncake);
  std::string crlf;
  for (const char c : kMooncake) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text : {"\xEF\xBB\xBF" + kMooncake, crlf, kMooncake.substr(0, kMooncake.size() - 1),
                                  "\xEF\xBB\xBF" + crlf.substr(0, crlf.size() - 2)}) {
    ServingTrace other = read(text);
    other.name = plain.name;
    CHECK(other == plain);
  }
}

}  // namespace test_serving_traces

// Readers of serving traces: what they make of good lines, and where they say bad ones are.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/serving/generate_trace.h"
#include "host_runtime/traces/read_trace.h"
#include "tests/support/temporary_file.h"

namespace test_serving_traces {

using namespace csdsim;
using test::TemporaryFile;
using namespace csdsim::host;

namespace {

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
    std::string message = error.what();
    // Where the format is not given, a second line says which one was recognised.
    const std::string::size_type note = message.find("\n" + file.path.string() + ": note: its content looks like");
    message = message.substr(0, note);
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

TEST_CASE("an error says which format a file was taken for, unless the format is given") {
  const TemporaryFile file("{\"input_length\": 1}\n");
  CHECK_THROWS_WITH(read_serving_trace(file.path, {}),
                    Catch::EndsWith("its content looks like the format mooncake; it was read as that"));
  CHECK_THROWS_WITH(read_serving_trace(file.path, {.format = "mooncake"}), Catch::EndsWith("no output_length"));
}

TEST_CASE("Mooncake lines are read field by field") {
  const ServingTrace trace = read(kMooncake);
  CHECK(trace.block_tokens == 512U);
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].timed);
  CHECK(trace.requests[0].arrival == SimTime{});
  CHECK(trace.requests[0].prompt == 513);
  CHECK(trace.requests[0].output == 5);
  CHECK(blocks(trace, 0) == Ids{0, 1});
  CHECK(trace.requests[1].arrival == SimTime::milliseconds(27));
  CHECK(blocks(trace, 1) == Ids{0, 2});
  CHECK(trace.requests[2].arrival == SimTime::microseconds(27'500));
  CHECK(trace.requests[2].line == 4);
  CHECK(blocks(trace, 2) == Ids{~std::uint64_t{0}});
  CHECK(trace.dependencies.empty());
  CHECK(read(kMooncake, {.first_requests = 2}).requests.size() == 2);
}

TEST_CASE("records may be the elements of one array") {
  const auto array_of = [](std::string lines) {
    std::string text = "[";
    for (const char c : lines) text += c == '\n' ? std::string(",\n") : std::string(1, c);
    text.erase(text.rfind(','));
    return text + "]\n";
  };
  for (const ServingTraceFormat& format : serving_trace_formats()) {
    if (format.name != "mooncake" && format.name != "bailian") continue;
    TraceGeneration settings = trace_kinds()[2].defaults;  // chats
    settings.requests = 10;
    settings.block_tokens = 16;
    const std::string text = write_serving_trace(trace_kinds()[2].generate(settings), std::string(format.name));
    const ServingTrace lines = read(text, {.block_tokens = 16});
    ServingTrace array = read(array_of(text), {.block_tokens = 16});
    array.name = lines.name;
    INFO(format.name);
    CHECK(array == lines);
  }
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
  CHECK(trace.requests[0].priority == 1);
  CHECK(trace.requests[1].priority == 0);
  CHECK(error_of(R"({"input_length": 9, "output_length": 1, "priority": "abc"})") ==
        R"(:1:53: error: priority: '"abc"' is not a whole number from 0 to 1000000)");
  CHECK(error_of("{\"request_id\": 7, \"input_length\": 9, \"output_length\": 1}\n"
                 "{\"request_id\": \"7\", \"input_length\": 9, \"output_length\": 1}\n") ==
        ":2:16: error: request_id: 7 is in the file twice");
  CHECK(trace.requests[0].session == 0U);
  CHECK(trace.requests[1].session == 1U);
  CHECK(trace.requests[4].session == 1U);
  CHECK(dependencies(trace, 2) ==
        std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime::milliseconds(2)}});
  CHECK(dependencies(trace, 3) == std::vector<TraceDependency>{{2, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(!trace.requests[2].timed);
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

TEST_CASE("a trace is a file that can be read again") {
  CHECK_THROWS_WITH(read_serving_trace("/dev/null"),
                    "/dev/null: error: a trace is read more than once; write it to a file first");
  CHECK_THROWS_WITH(read_serving_trace("/nowhere.jsonl"), "/nowhere.jsonl: error: no such file");
  CHECK(read("{\"input_length\": 1, \"output_length\": 1} \t\n{\"input_length\": 1, \"output_length\": 1}")
            .requests.size() == 2);
}

TEST_CASE("a delay needs an earlier request of its session") {
  CHECK(error_of(R"({"session_id": "a", "delay": 1, "input_length": 1, "output_length": 1})") ==
        ":1:30: error: delay: there is no earlier request of the same session to count from");
}

TEST_CASE("agentic Mooncake lines stand behind their header and wait for one another") {
  const std::string header =
      R"({"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local", "source": {}})"
      "\n";
  const auto row = [](const std::string& id, const std::string& play, const std::string& session,
                      const std::string& rest) {
    return R"({"request_id": ")" + id + R"(", "play_id": ")" + play + R"(", "session_id": ")" + session +
           R"(", "model": "m", "input_length": 5, "output_length": 1, )" + rest + "}\n";
  };
  const std::string waits =
      R"("dependencies": [{"request_id": "a", "trigger": "completion", "delay_ms": 1.5, "relation": "sequence"}, )"
      R"({"request_id": "b", "trigger": "dispatch", "delay_ms": 0, "relation": "spawn"}])";
  const ServingTrace trace = read(header + row("a", "p", "s", R"("hash_ids": [1, 2], "not_before_ms": 3)") +
                                  row("b", "p", "t", R"("hash_ids": [1, 3], "not_before_ms": 4, "dependencies": [])") +
                                  row("c", "p", "s", R"("hash_ids": [1, 4], "not_before_ms": 5, )" + waits) +
                                  row("d", "q", "s", R"("hash_ids": [2, 1], "not_before_ms": 0, "priority": 5)"));
  CHECK(trace.requests[3].priority == 5);
  CHECK(trace.block_tokens == 4U);
  REQUIRE(trace.requests.size() == 4);
  CHECK(trace.requests[0].line == 2);
  CHECK(trace.requests[2].arrival == SimTime::milliseconds(5));
  CHECK(dependencies(trace, 2) ==
        std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime::microseconds(1500)},
                                     {1, TraceDependency::Trigger::dispatch, SimTime{}}});
  CHECK(trace.requests[2].session == trace.requests[0].session);
  CHECK(trace.requests[3].session != trace.requests[0].session);
  CHECK(blocks(trace, 0)[0] == blocks(trace, 1)[0]);
  CHECK(blocks(trace, 3)[1] != blocks(trace, 0)[0]);

  CHECK(error_of(header) == ": error: holds no request");
  CHECK(error_of(header, {.block_tokens = 8}) == ":1:67: error: block_size: the blocks have 4 tokens, not 8");
  CHECK(error_of(R"({"schema": "dynamo.agentic_mooncake", "version": 1, "block_size": 4, "hash_id_scope": "local"})") ==
        ":1:50: error: version: '1' is not a whole number from 2 to 2");
  CHECK(error_of(R"({"schema": "other", "version": 2})") ==
        ":1:12: error: schema: 'other' is not one of dynamo.agentic_mooncake");
  const std::string ids = R"("hash_ids": [1, 2], "not_before_ms": )";
  CHECK(error_of(header + row("a", "p", "s", ids + "3") + row("b", "p", "s", ids + "2"))
            .ends_with("arrives before the request in the line above; sort the file by arrival"));
  CHECK(error_of(header + row("a", "p", "s", ids + "3") + row("a", "p", "s", ids + "3")) ==
        ":3:16: error: request_id: a is in the file twice");
  CHECK(error_of(header + row("b", "p", "s", ids + "3, " + waits)) ==
        ":2:181: error: request_id: no request 'a' stands above");
  CHECK(error_of(header + row("a", "p", "s", R"("hash_ids": [1, 2, 3], "not_before_ms": 0)"))
            .ends_with("hash_ids: 3 ids for 5 tokens, which fill 2 blocks of 4"));
  CHECK(
      error_of(header + row("a", "p", "s", ids + "3") + row("b", "p", "s", R"("hash_ids": [2, 1], "not_before_ms": 3)"))
          .ends_with("block 2 stands at the start of a prompt here, but behind 1 in line 2; equal ids mean equal "
                     "prefixes"));
}

TEST_CASE("Bailian lines know their chats, and their hashes are of single blocks") {
  const auto row = [](int chat, int parent, const std::string& rest) {
    return "{\"chat_id\": " + std::to_string(chat) + ", \"parent_chat_id\": " + std::to_string(parent) +
           ", \"input_length\": 20, \"output_length\": 3, \"type\": \"text\", \"turn\": 1, " + rest + "}\n";
  };
  const ServingTrace trace = read(
      row(7, -1, R"("timestamp": 0.5, "hash_ids": [1, 2])") + row(8, 7, R"("timestamp": 61.114, "hash_ids": [1, 2])") +
      row(9, 99, R"("timestamp": 62, "hash_ids": [2, 1])") + row(10, 99, R"("timestamp": 62, "hash_ids": [1, 1])"));
  CHECK(trace.block_tokens == 16U);
  CHECK(trace.requests[1].arrival == SimTime::milliseconds(61'114));
  CHECK(trace.requests[0].session == 0U);
  CHECK(trace.requests[1].session == 0U);
  CHECK(trace.requests[2].session == 1U);
  CHECK(trace.requests[3].session == 1U);
  CHECK(dependencies(trace, 1) == std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(dependencies(trace, 3).empty());
  CHECK(blocks(trace, 0) == blocks(trace, 1));
  // The same contents behind other blocks are other prefixes.
  CHECK(blocks(trace, 2)[1] != blocks(trace, 0)[0]);
  CHECK(blocks(trace, 3)[0] == blocks(trace, 0)[0]);
  CHECK(blocks(trace, 3)[1] != blocks(trace, 3)[0]);

  const std::string good = R"("timestamp": 1, "hash_ids": [1, 2])";
  CHECK(error_of(row(7, -1, good) + row(7, -1, good)) == ":2:13: error: chat_id: 7 is in the file twice");
  CHECK(error_of(row(8, 7, good) + row(7, -1, good)) ==
        ":2:13: error: chat_id: 7 stands below a chat that names it as its parent");
  CHECK(error_of(row(7, -1, R"("hash_ids": [1, 2])")) == ":1:1: error: no timestamp");
  CHECK(error_of(row(7, -1, good) + row(8, -1, R"("timestamp": 0.999, "hash_ids": [1, 2])"))
            .ends_with("arrives before the request in the line above; sort the file by arrival"));
  CHECK(error_of(row(7, -1, R"("timestamp": 1, "hash_ids": [1])"))
            .ends_with("hash_ids: 1 ids for 20 tokens, which fill 2 blocks of 16"));
  CHECK(error_of(row(7, -1, good + ", \"turns\": 2")).find("unknown key 'turns' (did you mean turn?)") !=
        std::string::npos);
}

TEST_CASE("Azure's dates count from the first request") {
  const std::string heading = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const ServingTrace trace =
      read(heading + "2023-11-16 23:59:59.9799600,374,44\n2024-02-29 00:00:01.04+00:00,396,109\n");
  CHECK(trace.requests[0].timed);
  CHECK(trace.requests[0].arrival == SimTime{});
  CHECK(trace.requests[0].prompt == 374);
  CHECK(trace.requests[0].output == 44);
  CHECK(trace.requests[1].arrival == SimTime{105 * 86'400 * 1'000'000'000'000 - 86'398'939'960'000'000});
  CHECK(trace.block_tokens == std::nullopt);
  CHECK(!read("GeneratedTokens,ContextTokens\n1,2\n").requests[0].timed);
  for (const char* bad : {"now", "2023-11-31 00:00:00", "2023-11-16 24:00:00", "2023-11-16 00:00:00.", "2023-11-16",
                          "2023/11/16 00:00:00", "2023-11-16 00:00:00Z", "2023-1-16 000:00:00"}) {
    INFO(bad);
    CHECK(error_of(heading + bad + ",1,2\n") ==
          ":2:1: error: TIMESTAMP: '" + std::string(bad) + "' is not like 2023-11-16 18:17:03.97");
  }
  CHECK(error_of(heading + "2023-11-16 00:00:01,1,2\n2023-11-16 00:00:00.9,1,2\n") ==
        ":3:1: error: arrives before the request in the line above; sort the file by arrival");
  CHECK(error_of(heading + "2023-11-16 00:00:01,1,2\n2025-11-16 00:00:00,1,2\n") ==
        ":3:1: error: TIMESTAMP: more than 9000000 s from the first one");
  CHECK(error_of("TIMESTAMP,ContextTokens\n") ==
        ":1:1: error: no column GeneratedTokens; the first line names the columns");
}

TEST_CASE("BurstGPT's requests may have failed, and their totals are sums") {
  const std::string heading = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
  const ServingTrace trace = read(heading + "5.5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n");
  CHECK(trace.requests[0].timed);
  CHECK(trace.requests[0].arrival == SimTime{});
  CHECK(trace.requests[1].arrival == SimTime::milliseconds(39'500));
  CHECK(trace.requests[0].prompt == 472);
  CHECK(trace.requests[0].output == 18);
  CHECK(trace.requests[1].output == 0);
  CHECK(read("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
             "1,x,2.5,GPT-4,1,2,3,API log\n")
            .requests[0]
            .session == 0U);
  CHECK(error_of(heading + "5,ChatGPT,472,18,491,API log\n") ==
        ":2:18: error: Total tokens: 491, but request and response have 490 together");
  CHECK(error_of(heading + "5,ChatGPT,472,18,490,API log\n4,ChatGPT,1,1,2,API log\n") ==
        ":3:1: error: arrives before the request in the line above; sort the file by arrival");
  CHECK(error_of(heading + "5,ChatGPT,472,18\n") == ":2:15: error: 4 values in 6 columns");
  CHECK(error_of(heading + "x,ChatGPT,472,18,490,API log\n") ==
        ":2:1: error: Timestamp: 'x' is not a number from 0 to 10000000000");
}

TEST_CASE("the project's own lines have lengths, arrivals and sessions") {
  const ServingTrace trace =
      read("session, input_tokens, output_tokens, arrival_s, delay_s\na, 5, 7, 0.25,\n,6,8,0.25,\na,7,9,,1.5\n");
  CHECK(trace.requests[0].arrival == SimTime::milliseconds(250));
  CHECK(trace.requests[0].session == 0U);
  CHECK(!trace.requests[1].session);
  CHECK(!trace.requests[2].timed);
  CHECK(trace.requests[2].prompt == 7);
  CHECK(trace.requests[2].output == 9);
  CHECK(dependencies(trace, 2) ==
        std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime::milliseconds(1500)}});
  CHECK(read("input_tokens,output_tokens,priority\n5,7,3\n").requests[0].priority == 3);
  CHECK(error_of("input_tokens,output_tokens,priority\n5,7,-1\n") ==
        ":2:5: error: priority: '-1' is not a whole number from 0 to 1000000");
  CHECK(error_of("input_tokens,tokens\n1,2\n").starts_with(":1:14: error: unknown column 'tokens'"));
  CHECK(error_of("input_tokens\n1\n") == ":1:1: error: no column output_tokens; the first line names the columns");
  CHECK(error_of("input_tokens,output_tokens\n") == ": error: holds no request");
  CHECK(error_of("input_tokens,output_tokens\n5,0\n").starts_with(":2:3: error: output_tokens: '0' is not a whole"));
  CHECK(error_of("input_tokens,output_tokens,delay_s\n5,1,2\n") ==
        ":2:5: error: delay_s: there is no earlier request of the same session to count from");
  CHECK(error_of("input_tokens,output_tokens\n4000,98\n", {.most_positions = 4096}) ==
        ":2:1: error: 4098 tokens (4000 in, 98 out) exceed the 4096 positions of the model");
  CHECK(error_of("input_tokens,output_tokens\n\xff,1\n").starts_with(":2:1: error: byte 0xFF is not UTF-8"));
}

TEST_CASE("Weka's sessions have agents, and scopes of their own") {
  const auto request = [](double t, int in, const std::string& ids, const std::string& more = "") {
    return R"({"t": )" + std::to_string(t) + R"(, "type": "s", "model": "m", "in": )" + std::to_string(in) +
           R"(, "out": 2, "hash_ids": )" + ids + more + "}";
  };
  const auto session = [](const std::string& scope, const std::string& requests) {
    return R"({"id": "x", "models": ["m"], "block_size": 4, "hash_id_scope": ")" + scope +
           R"(", "tool_tokens": 1, "system_tokens": 1, "requests": [)" + requests + "]}\n";
  };
  const std::string agent = R"({"t": 2, "type": "subagent", "agent_id": "a", "requests": [)" + request(0.5, 4, "[1]") +
                            ", " + request(1, 8, "[1, 5]", R"(, "think_time": 0.25)") + "]}";
  const std::string first = session("local", request(0, 5, "[1, 2]") + ", " + agent + ", " + request(9, 9, "[1, 3]"));
  const ServingTrace trace = read(first + session("local", request(0, 4, "[1]")));
  CHECK(trace.block_tokens == 4U);
  REQUIRE(trace.requests.size() == 5);
  CHECK(trace.requests[1].arrival == SimTime::milliseconds(2500));
  CHECK(dependencies(trace, 1) == std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(dependencies(trace, 2) ==
        std::vector<TraceDependency>{{1, TraceDependency::Trigger::completion, SimTime::milliseconds(250)}});
  CHECK(dependencies(trace, 3) == std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime{}},
                                                               {2, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(blocks(trace, 0)[0] == blocks(trace, 1)[0]);
  CHECK(blocks(trace, 4)[0] != blocks(trace, 0)[0]);
  CHECK(blocks(trace, 3).size() == 2);  // without the one that is partly filled
  const ServingTrace global = read(session("global", request(0, 4, "[1]")) + session("global", request(0, 4, "[1]")));
  CHECK(blocks(global, 0) == blocks(global, 1));

  CHECK(error_of(session("local", request(0, 9, "[1]")))
            .ends_with("hash_ids: 1 ids for 9 tokens, which fill 3 blocks of 4"));
  CHECK(error_of(session("local", request(1, 4, "[1]") + "," + request(0.5, 4, "[1]")))
            .ends_with("arrives before the request in the line above; sort the file by arrival"));
  CHECK(error_of(session("far", request(0, 4, "[1]"))) ==
        ":1:64: error: hash_id_scope: 'far' is not one of local, global");
  CHECK(error_of(session("local", R"({"t": 0, "type": "x", "in": 1, "out": 1, "hash_ids": [1]})"))
            .ends_with("error: type: 'x' is not one of n, s, subagent"));
}

TEST_CASE("Weka's sessions are files of a folder") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("csdsim-weka-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string text =
      "{\n \"id\": \"x\", \"block_size\": 64,\n \"requests\": [\n"
      "  {\"t\": 0, \"type\": \"n\", \"in\": 64, \"out\": 1, \"hash_ids\": [1]}\n]}\n";
  std::ofstream(folder / "b.json") << text;
  std::ofstream(folder / "a.json") << text;
  const ServingTrace trace = read_serving_trace(folder);
  CHECK(trace.requests.size() == 2);
  CHECK(trace.requests[1].line == 4);
  CHECK(blocks(trace, 0) != blocks(trace, 1));
  std::filesystem::remove_all(folder);
}

TEST_CASE("answers of ShareGPT are requests whose prompts grow") {
  const auto chat = [](const std::string& messages) { return R"([{"id": "c", "conversations": [)" + messages + "]}]"; };
  const std::string text =
      R"([{"id": "a", "conversations": [{"from": "human", "value": "x", "tokens": 3}, {"from": "gpt", "value": "y",
        "tokens": 2}, {"from": "human", "tokens": 4}, {"from": "gpt", "tokens": 1}]},
        {"id": "b", "conversations": [{"from": "gpt", "tokens": 1}, {"from": "user", "tokens": 2},
        {"from": "gpt", "tokens": 0}]}])";
  const ServingTrace trace = read(text, {.block_tokens = 4});
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].prompt == 3);
  CHECK(trace.requests[0].output == 2);
  CHECK(trace.requests[1].prompt == 9);
  CHECK(trace.requests[2].prompt == 3);
  CHECK(trace.requests[2].output == 0);
  CHECK(trace.requests[2].line == 4);
  CHECK(dependencies(trace, 1) == std::vector<TraceDependency>{{0, TraceDependency::Trigger::completion, SimTime{}}});
  CHECK(blocks(trace, 0).size() == 1);
  CHECK(blocks(trace, 1).size() == 3);
  CHECK(blocks(trace, 0)[0] != blocks(trace, 1)[0]);  // partly filled
  CHECK(blocks(trace, 0)[0] != blocks(trace, 2)[0]);

  ServingTraceOptions words{.block_tokens = 2};
  words.tokenize = [](std::string_view value) { return std::vector<std::uint32_t>(value.begin(), value.end()); };
  const ServingTrace read_words =
      read(R"({"id": "a", "conversations": [{"from": "human", "value": "abc"}, {"from": "gpt", "value": "de"}]})"
           "\n"
           R"({"id": "b", "conversations": [{"from": "human", "value": "abcdefg"}, {"from": "gpt", "value": "h"}]})",
           words);
  CHECK(read_words.requests[0].prompt == 3);
  CHECK(read_words.requests[1].prompt == 7);
  CHECK(blocks(read_words, 0)[0] == blocks(read_words, 1)[0]);
  CHECK(blocks(read_words, 0)[1] != blocks(read_words, 1)[1]);

  CHECK(error_of(chat(R"({"from": "human", "value": "x"})")) ==
        ":1:32: error: no tokens, the length of the message; or give a tokenizer");
  CHECK(error_of(chat(R"({"from": "human", "value": "xy", "tokens": 3})"), words) ==
        ":1:75: error: tokens: 3, but the tokenizer makes 2");
  CHECK(error_of(chat(R"({"from": "robot", "tokens": 3})")) ==
        ":1:41: error: from: 'robot' is not one of system, human, user, gpt, chatgpt, bing, bard");
  CHECK(error_of(chat(R"({"from": "human", "tokens": 3}, {"from": "gpt", "tokens": 3})"), {.most_positions = 5}) ==
        ":1:64: error: 6 tokens (3 in, 3 out) exceed the 5 positions of the model");
  CHECK(error_of("[]") == ": error: holds no request");
  CHECK(error_of("[\n{\"id\": 1,\n\"conversation\": []}]").starts_with(":3:1: error: unknown key 'conversation'"));
}

namespace {

/// A trace as a text of each format that is written.
std::vector<std::string> written_texts() {
  const TraceKind& kind = *std::ranges::find(trace_kinds(), "chats", &TraceKind::name);
  TraceGeneration settings = kind.defaults;
  settings.requests = 20;
  settings.block_tokens = 16;
  settings.prefix_tokens = 20;
  settings.input_tokens = settings.output_tokens = 9;
  std::vector<std::string> texts;
  for (const ServingTraceFormat& format : serving_trace_formats())
    if (format.written) texts.push_back(write_serving_trace(kind.generate(settings), std::string(format.name)));
  return texts;
}

}  // namespace

TEST_CASE("a trace is the same with a byte-order mark, carriage returns and without its last line end") {
  for (const std::string& text : written_texts()) {
    INFO(text.substr(0, 80));
    const ServingTraceOptions options{.block_tokens = 16};
    const ServingTrace plain = read(text, options);
    std::string crlf;
    for (const char c : text) crlf += c == '\n' ? "\r\n" : std::string(1, c);
    for (const std::string& form : {"\xEF\xBB\xBF" + text, crlf, text.substr(0, text.size() - 1),
                                    "\xEF\xBB\xBF" + crlf.substr(0, crlf.size() - 2)}) {
      ServingTrace other = read(form, options);
      other.name = plain.name;
      CHECK(other == plain);
    }
  }
}

TEST_CASE("a trace that ends in the middle of a line says so") {
  constexpr const char* kTorn = "; the file ends in this line, without a line end: the line may be torn";
  std::uint64_t errors = 0, notes = 0;
  for (const std::string& text : written_texts()) {
    INFO(text.substr(0, 80));
    // From the start of the last line on.
    for (std::size_t size = text.rfind('\n', text.size() - 2) + 2; size < text.size(); ++size) {
      std::string note;
      const ServingTraceOptions options{.block_tokens = 16, .on_note = [&](const std::string& n) { note = n; }};
      const std::string error = error_of(text.substr(0, size), options);
      // A JSON object that is closed is whole.
      const bool closed = text.front() == '{' && size + 1 == text.size();
      if (error == "no error") {
        CHECK(note.empty() == closed);
        notes += note.empty() ? 0 : 1;
      } else {
        CHECK(error.ends_with(kTorn));
        ++errors;
      }
    }
  }
  CHECK(errors > 100);
  CHECK(notes > 3);
}

TEST_CASE("no bytes upset the readers, which say where they are wrong") {
  Rng rng(41);
  for (const std::string& text : written_texts())
    for (int i = 0; i < 400; ++i) {
      std::string changed = text;
      for (std::uint64_t n = 1 + rng.below(3); n > 0; --n)
        changed[rng.below(changed.size())] = "{}[]\",:\n \r0-9e.\xff"[rng.below(17)];
      const std::string error = error_of(changed, {.block_tokens = 16});
      CHECK((error == "no error" || error.starts_with(":")));
    }
}

TEST_CASE("what a generator makes is read back as it was, from every format that is written") {
  for (const TraceKind& kind : trace_kinds()) {
    TraceGeneration settings = kind.defaults;
    settings.requests = 200;
    ServingTrace made = kind.generate(settings);
    CHECK(made.requests.size() == 200);
    for (std::size_t i = 0; i < made.requests.size(); ++i)
      made.requests[i].priority = static_cast<std::uint32_t>(i % 3);
    for (const ServingTraceFormat& format : serving_trace_formats()) {
      if (!format.written) continue;
      INFO(kind.name << " " << format.name);
      const bool timed = made.requests.back().timed;
      if (!timed && (format.name == "bailian" || format.name == "azure" || format.name == "burstgpt")) {
        CHECK_THROWS_AS(write_serving_trace(made, std::string(format.name)), UserError);
        continue;
      }
      const ServingTrace back = read(write_serving_trace(made, std::string(format.name)),
                                     {.block_tokens = format.name == "bailian" ? made.block_tokens : std::nullopt});
      const bool from_first = format.name == "azure" || format.name == "burstgpt";
      const SimTime start = from_first ? made.requests[0].arrival : SimTime{};
      REQUIRE(back.requests.size() == made.requests.size());
      for (std::size_t i = 0; i < made.requests.size(); ++i) {
        const TracedRequest &a = made.requests[i], &b = back.requests[i];
        REQUIRE(b.prompt == a.prompt);
        REQUIRE(b.output == a.output);
        if (timed) REQUIRE(b.arrival == a.arrival - start);
        if (format.name == "mooncake") REQUIRE(blocks(back, i) == blocks(made, i));
        if (format.name == "mooncake" || format.name == "agentic" || format.name == "csv")
          REQUIRE((dependencies(back, i) == dependencies(made, i) && b.priority == a.priority));
        if (back.block_tokens) REQUIRE(b.blocks == a.blocks);
      }
      CHECK(back.block_tokens == (from_first || format.name == "csv" ? std::nullopt : made.block_tokens));
    }
  }
}

TEST_CASE("generated traces have the means that they were asked for") {
  const auto made = [](std::string_view name, TraceGeneration settings) {
    return std::ranges::find(trace_kinds(), name, &TraceKind::name)->generate(settings);
  };
  const auto mean_gap = [](const ServingTrace& trace) {
    return trace.requests.back().arrival.seconds() / static_cast<double>(trace.requests.size());
  };
  TraceGeneration settings{.requests = 20'000, .input_tokens = 100, .output_tokens = 10};
  const ServingTrace poisson = made("poisson", settings);
  double input = 0, output = 0;
  for (const TracedRequest& r : poisson.requests) {
    input += r.prompt;
    output += r.output;
  }
  CHECK(input / 20'000 == Approx(100.5).epsilon(0.03));  // rounded up
  CHECK(output / 20'000 == Approx(10.5).epsilon(0.03));
  CHECK(mean_gap(poisson) == Approx(1).epsilon(0.03));

  settings.burst = 10;
  const ServingTrace bursts = made("bursts", settings);
  CHECK(mean_gap(bursts) == Approx(1).epsilon(0.08));
  std::size_t times = 1;
  for (std::size_t i = 1; i < bursts.requests.size(); ++i)
    times += bursts.requests[i].arrival != bursts.requests[i - 1].arrival ? 1 : 0;
  CHECK(static_cast<double>(times) == Approx(2000).epsilon(0.08));

  settings.turns = 5;
  settings.prefix_tokens = 1024;
  settings.prefixes = 3;
  const ServingTrace chats = made("chats", settings);
  std::set<std::uint32_t> sessions;
  std::set<std::uint64_t> beginnings;
  for (std::size_t i = 0; i < chats.requests.size(); ++i) {
    const TracedRequest& r = chats.requests[i];
    sessions.insert(*r.session);
    beginnings.insert(blocks(chats, i)[1]);
    if (r.dependencies == 0) continue;
    // A prompt begins with the whole blocks of the prompt before.
    const std::uint32_t before = chats.dependencies_of(r)[0].request;
    const std::uint64_t whole = chats.requests[before].prompt / settings.block_tokens;
    Ids now = blocks(chats, i), then = blocks(chats, before);
    now.resize(whole);
    then.resize(whole);
    CHECK(now == then);
  }
  CHECK(static_cast<double>(sessions.size()) == Approx(4000).epsilon(0.05));
  CHECK(beginnings.size() == 3);

  settings.clients = 7;
  const ServingTrace closed = made("closed-loop", settings);
  for (std::size_t i = 0; i < closed.requests.size(); ++i) {
    CHECK(closed.requests[i].session == i % 7);
    CHECK((i < 7 ? closed.requests[i].dependencies == 0
                 : closed.dependencies_of(closed.requests[i])[0].request == i - 7));
  }
  settings.seed = 2;
  CHECK(made("poisson", settings).requests != poisson.requests);
  settings.turns = 0.5;
  CHECK_THROWS_AS(made("chats", settings), UserError);
}

}  // namespace test_serving_traces

// A stream of sequences that arrive, grow, end and are freed: what it does to the flash.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "tests/integration/kv_occupancy.h"

namespace test_kv_lifetime {

using namespace csdsim;

namespace {

constexpr std::uint32_t kChannels = 2, kPlanes = 4, kKvBlocks = 11, kPages = 32;
constexpr std::uint32_t kGroup = 32, kPagesPerGroup = 2 * 4;  // tokens of a page; K and V of 4 heads of one layer

struct Lengths {
  std::uint32_t least_input, most_input, least_output, most_output;
};

std::string requests(const Lengths& l, std::uint32_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::string text = "arrival_s,input_tokens,output_tokens\n";
  for (std::uint32_t i = 0; i < count; ++i)
    text += "0," + std::to_string(l.least_input + rng.below(l.most_input - l.least_input + 1)) + "," +
            std::to_string(l.least_output + rng.below(l.most_output - l.least_output + 1)) + "\n";
  return text;
}

scenario::RunResult run(const std::string& requests, std::uint32_t places) {
  const auto file = std::filesystem::temp_directory_path() / ("csdsim_lifetime_" + std::to_string(::getpid()) + ".csv");
  std::ofstream(file) << requests;
  const std::string text =
      "csdsim: 1\nname: lifetime\nplatform:\n  gpu: {preset: a6000}\n  host: {preset: xeon-5320}\n  device:\n"
      "    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 1, pages_per_block: 32, page_size: 4 KiB, "
      "blocks_per_plane: " +
      std::to_string(kKvBlocks + 6) +
      "}\n    dram: {capacity: 64 MiB}\n    ftl: {over_provisioning: 0}\n"
      "model: {layers: 1, heads: 4, kv_heads: 4, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, "
      "max_positions: 4096}\nsystem: {kind: instinfer-dense}\n"
      "workload: {kind: generation, requests: " +
      file.string() + ", batch: " + std::to_string(places) + "}\n";
  const auto loaded = experiment::load_scenario_text(text, "lifetime.yaml", CSDSIM_SOURCE_DIR, {});
  scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  std::filesystem::remove(file);
  return result;
}

/// What each sequence writes and when, from the times of its request: tokens come evenly.
std::vector<test::SequenceEvent> events_of(const std::string& csv) {
  std::vector<test::SequenceEvent> events;
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  REQUIRE(line == "request,input_tokens,output_tokens,arrival_s,admitted_s,first_token_s,end_s");
  for (std::uint32_t id = 0; std::getline(lines, line); ++id) {
    std::istringstream fields(line);
    std::vector<double> v;
    for (std::string field; std::getline(fields, field, ',');) v.push_back(std::stod(field));
    const auto input = static_cast<std::uint32_t>(v[1]);
    const std::uint32_t tokens = input + static_cast<std::uint32_t>(v[2]) - 1;  // the last one is not written
    if (input >= kGroup) events.push_back({v[5], id, input / kGroup * kPagesPerGroup});
    for (std::uint32_t group = input / kGroup + 1; group * kGroup <= tokens; ++group) {
      const double share = double(group * kGroup - input) / (v[2] - 1);
      events.push_back({v[5] + share * (v[6] - v[5]), id, kPagesPerGroup});
    }
    events.push_back({v[6] + 1e-9, id, 0});
  }
  return events;
}

}  // namespace

TEST_CASE("write amplification of a stream of sequences is that of the occupancy of blocks") {
  const struct {
    Lengths lengths;
    std::uint32_t places;
  } streams[] = {{{100, 130, 100, 200}, 20}, {{100, 130, 100, 200}, 22}, {{100, 130, 100, 200}, 24},
                 {{100, 130, 100, 200}, 25}, {{129, 352, 10, 60}, 17},   {{129, 352, 10, 60}, 19},
                 {{33, 500, 8, 90}, 14}};
  double most = 1;
  for (const auto& stream : streams) {
    const scenario::RunResult result = run(requests(stream.lengths, 600, 5), stream.places);
    REQUIRE(result.failure.empty());
    const auto& metrics = result.document["metrics"];
    const double modelled = test::KvOccupancy(kChannels, kPlanes / kChannels, kKvBlocks, kPages)
                                .amplification(events_of(result.files.at(0).text));
    const double simulated = metrics["kv_write_amplification"];
    CAPTURE(stream.lengths.least_input, stream.places, modelled, simulated, metrics["kv_erases"].get<int>());
    CHECK(simulated == Approx(modelled).epsilon(0.05));
    CHECK(simulated - 1 == Approx(modelled - 1).epsilon(0.2));  // the pages that move
    most = std::max(most, simulated);
    CHECK(metrics["kv_erases"].get<double>() > 4 * kPlanes * kKvBlocks);
  }
  CHECK(most > 1.75);
}

TEST_CASE("what a stream writes, per day and until the flash is worn, follows from its pages") {
  const scenario::RunResult result = run(requests({40, 400, 20, 60}, 120, 5), 14);
  const auto& metrics = result.document["metrics"];
  const auto of = [&](const char* name) { return metrics[name].get<double>(); };
  double end = 0;
  std::uint64_t tokens = 0, pages = 0;
  for (const test::SequenceEvent& event : events_of(result.files.at(0).text)) {
    end = std::max(end, event.time - (event.pages == 0 ? 1e-9 : 0));
    pages += event.pages;
  }
  std::istringstream lines(requests({40, 400, 20, 60}, 120, 5));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string arrival, in, out;
    std::getline(fields, arrival, ',');
    std::getline(fields, in, ',');
    std::getline(fields, out, ',');
    tokens += std::stoul(in) + std::stoul(out) - 1;
  }
  CHECK(of("kv_bytes_written") == double(tokens * 2 * 4 * 64 * 2));
  const double capacity = kPlanes * (kKvBlocks + 6) * kPages * 4096.0;
  // As a block drive it would export all blocks of a plane but the one of the other namespace, two open ones and a
  // free one.
  const double exported = kPlanes * (kKvBlocks + 6 - 4) * kPages * 4096.0;
  CHECK(of("drive_writes_per_day") == Approx(of("kv_bytes_written") / exported / end * 86400).epsilon(1e-6));
  CHECK(of("kv_write_amplification") == Approx(1 + of("kv_gc_pages_moved") / double(pages)).epsilon(1e-9));
  const double worn = std::max((double(pages) + of("kv_gc_pages_moved")) * 4096, of("kv_erases") * kPages * 4096);
  CHECK(of("kv_wear_per_byte") == Approx(worn / of("kv_bytes_written")).epsilon(1e-9));
  CHECK(of("drive_terabytes_written") ==
        Approx(of("drive_lifetime_years") * 365 * of("drive_writes_per_day") * exported * 1e-12).epsilon(1e-6));
  CHECK(of("drive_lifetime_years") == Approx(3000 * capacity / worn * end / 86400 / 365).epsilon(1e-6));
}

}  // namespace test_kv_lifetime

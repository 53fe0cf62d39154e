// SparF in drives that keep K and V of 8 and 4 bits: tokens against SparQ over the same rounded values, bytes and time.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "csd_model/firmware/dram_port.h"
#include "experiment/generation/generation_run.h"
#include "experiment/generation/generation_setup.h"
#include "experiment/generation/modelled_sources.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "platform/platform.h"
#include "tests/integration/few_bits.h"

namespace test_few_bits_of_sparf {

using namespace csdsim;
using namespace csdsim::test;

namespace {

/// Prompts that fill windows of 8 components and of 64.
scenario::Scenario carried(const std::string& model, const std::string& system, Sets more) {
  more.insert(more.begin(), {"workload.input_tokens=300", "system={" + system + "}"});
  return carried_few_bits(model, more);
}

constexpr std::uint64_t kJobs = 4 * 6 * 8;  // heads that a step attends to
constexpr std::uint64_t kHeadDim = 64, kPrompt = 1000, kSteps = 8, kChosen = 500, kPage = 4096, kGroup = 8;

struct Format {
  std::string set;
  std::uint64_t bits, scales;  ///< bits of an element, and scales of a row
  std::uint64_t page_tokens;   ///< n
  std::uint64_t window;        ///< T
  std::uint64_t row() const { return kHeadDim * bits / 8 + 2 * scales; }
  std::uint64_t groups() const { return kPrompt / page_tokens; }
  std::uint64_t windows() const { return kPrompt / window; }
  std::uint64_t embedding_pages() const { return windows() * (kHeadDim / kGroup); }
};

// An embedding page has 8 components and, of few bits, a scale of each group of elements among them for every token.
const std::vector<Format> kFormats{{"", 16, 0, 32, 256},
                                   {", kv_bits: 8", 8, 1, 62, 372},
                                   {", kv_bits: 8, kv_group: 32", 8, 2, 60, 360},
                                   {", kv_bits: 4", 4, 1, 120, 600},
                                   {", kv_bits: 4, kv_group: 16", 4, 4, 102, 612},
                                   {", kv_bits: 4, kv_group: 4", 4, 16, 64, 512}};

struct Measured {
  experiment::GenerationOutcome run;
  csd_model::DriveConfig drive;
  Bytes group_buffer, component_tail;  ///< held at the end
  Bytes tail_traffic, host_traffic;    ///< traffic of controller DRAM, where it has a bandwidth
};

/// Every component scores, and every page has a chosen token: reads do not depend on a choice. No group of tokens of
/// any format fills in the decode steps.
Measured timing(const std::string& kv, Sets sets = {}, const std::string& system = "instinfer-sparf, r: 64, k: 500") {
  sets.insert(sets.begin(), {"platform.device.flash.program_latency=20 us",
                             "platform.device.ftl.mapping.embedding_group=8", "system={kind: " + system + kv + "}"});
  const scenario::Scenario s = load_few_bits(
      "model: {layers: 6, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 1024, "
      "vocab_size: 1000, max_positions: 4096}\n"
      "workload: {kind: generation, batch: 4, input_tokens: 1000, output_tokens: 9, mini_batches: 1}\n"
      "simulation: {sampling: off, selection: {kind: clustered, token_page_fraction: 1}}\n",
      sets);
  const auto& workload = experiment::generation_of(s);
  Measured measured;
  experiment::GenerationHooks hooks;
  platform::Platform* platform = nullptr;
  hooks.before_start = [&](platform::Platform& p) { platform = &p; };
  hooks.before_end = [&](platform::Platform&) {
    const csd_model::Drive& drive = platform->drive(0);
    measured.group_buffer = drive.dram().used(ftl::DramUse::group_buffer);
    measured.component_tail = drive.dram().used(ftl::DramUse::component_tail);
    measured.tail_traffic = drive.dram_port().bytes(csd_model::DramTraffic::kv_tail);
    measured.host_traffic = drive.dram_port().bytes(csd_model::DramTraffic::host_data);
  };
  experiment::GenerationSetup setup =
      experiment::generation_setup(s, std::vector(workload.batch, workload.input_tokens));
  const auto selection = experiment::make_selection(s, setup);
  setup.platform.drive.selection = selection.get();
  measured.run = experiment::run_generation(setup, hooks);
  measured.drive = setup.platform.drive;
  return measured;
}

/// Summed over the decode steps and heads; `of_head` is given the tokens of a head.
template <class OfHead>
double over_steps(const OfHead& of_head) {
  std::uint64_t sum = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) sum += kJobs * of_head(kPrompt + 1 + step);
  return double(sum);
}

}  // namespace

TEST_CASE("carried: SparF in drives makes the tokens of SparQ on the host over the same rounded K and V") {
  int others = 0;  // formats whose rounding changes tokens
  for (const char* const model : {"opt-6m", "llama-gqa-6m"}) {
    const std::string sparf = "kind: instinfer-sparf, ratio: 1/4";
    const scenario::Scenario half = carried(model, sparf, {});
    const Tokens of_half = tokens_of(run_checked(half));
    for (const RowQuantisation& format : {RowQuantisation{4, 32}, {8, 16}, {4, 4}}) {
      const std::string kv = fmt::format(", kv_bits: {}, kv_group: {}", format.bits, format.group);
      auto method = host::configure_method("sparf", half.system->traits().method.settings, half.model.head_dim).method;
      const Tokens expected = rounded_tokens(model, half, format, std::move(method));
      const auto run = [&](Sets more) {
        CAPTURE(model, kv, more);
        return tokens_of(run_checked(carried(model, sparf + kv, std::move(more))));
      };
      CHECK((run({"platform.device.count=2"}) == expected));
      CHECK((run({"platform.device.ftl.mapping.embedding_group=8"}) == expected));
      others += expected != of_half ? 1 : 0;
      if (format.bits == 8) continue;
      CHECK((run({"platform.device.ftl.mapping.embedding_group=64", "platform.device.nvme.granularity=head"}) ==
             expected));
      for (const char* const tail : {"dram", "partial_program"})
        CHECK((run({"platform.device.ftl.mapping.embedding_group=8",
                    "platform.device.ftl.mapping.tail=" + std::string(tail)}) == expected));
      for (const char* const more : {"platform.device.ftl.mapping.kind=paired", "platform.device.flash.page_buffers=13",
                                     "platform.device.flash.page_size=4 KiB", "platform.device.nvme.transfer=host"})
        CHECK((run({more}) == expected));
    }
  }
  CHECK(others > 0);
}

TEST_CASE("carried: hybrids whose drives attend to few bits with SparF") {
  for (const char* const model : {"opt-6m", "llama-gqa-6m"})
    for (const char* const kv : {"kv_bits: 4, kv_group: 32", "kv_bits: 8"}) {
      CAPTURE(model, kv);
      const std::string system = fmt::format(
          "kind: hybrid, method: sparf, ratio: 1/4, recomputed_share: 20 %, gpu_share: 0.1, "
          "host_share: 0.1, write_back_tokens: 2, {}",
          kv);
      run_checked(carried(model, system, {"platform.device.count=2"}));
    }
}

TEST_CASE("bytes of flash, engine, link and controller DRAM are those of the format") {
  const Sets dram{"platform.device.dram.bandwidth=10 GB/s"};
  const Measured plain = timing("", dram);
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const Measured measured = timing(format.set, dram);
    const experiment::GenerationOutcome& run = measured.run;
    // Components of full windows, K of the groups after them, then K and V of all groups.
    const std::uint64_t after = format.groups() - format.windows() * format.window / format.page_tokens;
    const std::uint64_t pages = format.embedding_pages() + after + 2 * format.groups();
    CHECK(run.decode.channel_bytes - run.decode.programmed_bytes == double(kSteps * kJobs * pages * kPage));
    // Also what drains in the first decode step; windows are transposed from K that is in DRAM yet or read back.
    CHECK(run.prefill.programmed_bytes + run.decode.programmed_bytes ==
          double(kJobs * (2 * format.groups() + format.embedding_pages()) * kPage));
    CHECK(run.decode.engine_bytes ==
          over_steps([&](std::uint64_t tokens) { return tokens * format.row() + 2 * kChosen * format.row(); }));
    const std::uint64_t saved = kJobs * 2 * (2 * kHeadDim - format.row());
    CHECK(plain.run.prefill.link_bytes - run.prefill.link_bytes == Approx(double(saved * kPrompt)).epsilon(0.005));
    CHECK(plain.run.decode.link_bytes - run.decode.link_bytes == Approx(double(saved * kSteps)).epsilon(0.005));

    const auto outside = [&](std::uint64_t tokens) { return tokens - format.groups() * format.page_tokens; };
    CHECK(measured.group_buffer == Bytes{kJobs * 2 * outside(kPrompt + kSteps) * format.row()});
    CHECK(double(measured.tail_traffic.value) ==
          over_steps([&](std::uint64_t tokens) { return 2 * outside(tokens) * format.row(); }));
    CHECK(plain.host_traffic - measured.host_traffic == Bytes{saved * (kPrompt + kSteps)});

    const Measured in_dram = timing(format.set, {"platform.device.ftl.mapping.tail=dram"});
    CHECK(in_dram.group_buffer == measured.group_buffer);
    CHECK(in_dram.component_tail ==
          Bytes{kJobs * (kPrompt + kSteps - format.windows() * format.window) * format.row()});
    CHECK(in_dram.run.decode.channel_bytes - in_dram.run.decode.programmed_bytes ==
          double(kSteps * kJobs * (pages - after) * kPage));
  }
}

TEST_CASE("controller DRAM of drives that attend densely holds and moves rows of the format") {
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const Measured measured = timing(format.set, {"platform.device.dram.bandwidth=10 GB/s"}, "instinfer-dense");
    const std::uint64_t groups = kPrompt / (kPage / format.row()), n = kPage / format.row();
    CHECK(measured.group_buffer == Bytes{kJobs * 2 * (kPrompt + kSteps - groups * n) * format.row()});
    CHECK(measured.component_tail == Bytes{});
    CHECK(double(measured.tail_traffic.value) ==
          over_steps([&](std::uint64_t tokens) { return 2 * (tokens - groups * n) * format.row(); }));
  }
}

TEST_CASE("without filters whole pages reach the kernels, with filters on the dies rows and components alone") {
  const Sets unfiltered{"platform.device.flash.filter_location=none"};
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const std::uint64_t n = kPage / format.row(), dense_groups = kPrompt / n;
    CHECK(timing(format.set, unfiltered, "instinfer-dense").run.decode.engine_bytes ==
          over_steps([&](std::uint64_t tokens) {
            return 2 * (dense_groups * kPage + (tokens - dense_groups * n) * format.row());
          }));
    // K of the tokens in no page for scores, then K and V of them: the newest tokens are always chosen.
    const std::uint64_t after = format.groups() - format.windows() * format.window / format.page_tokens;
    const std::uint64_t pages = format.embedding_pages() + after + 2 * format.groups();
    CHECK(timing(format.set, unfiltered).run.decode.engine_bytes == over_steps([&](std::uint64_t tokens) {
            return pages * kPage + 3 * (tokens - format.groups() * format.page_tokens) * format.row();
          }));
    // Filters on the dies pass components and their scales, keys in no window, and the chosen rows.
    const csd_model::DriveWork on_die = timing(format.set, {"platform.device.flash.filter_location=die"}).run.decode;
    const std::uint64_t in_pages = format.groups() * format.page_tokens, windowed = format.windows() * format.window;
    // Each page has the scales that its components need.
    const std::uint64_t scales = format.scales == 0 ? 0 : std::max(kHeadDim / kGroup, format.scales);
    const std::uint64_t components = windowed * (kHeadDim * format.bits / 8 + 2 * scales);
    CHECK(on_die.channel_bytes - on_die.programmed_bytes == over_steps([&](std::uint64_t tokens) {
            return components + (in_pages - windowed + 2 * (kChosen - (tokens - in_pages))) * format.row();
          }));
  }
}

TEST_CASE("with slow channels a step of SparF takes what its pages take, with a slow dequantiser what elements take") {
  const Sets slow_channels{"platform.device.flash.channel_bandwidth=20 MB/s",
                           "platform.device.flash.read_latency=1 us"};
  const csd_model::DriveWork plain = timing("", slow_channels).run.decode;
  const double of_byte = plain.channel_busy / plain.channel_bytes;
  CHECK(of_byte == Approx(1 / 20e6).epsilon(0.05));  // with command cycles
  for (const Format& format : kFormats) {
    CAPTURE(format.set);
    const Measured measured = timing(format.set, slow_channels);
    const experiment::GenerationOutcome& run = measured.run;
    CHECK(run.decode.channel_busy == Approx(run.decode.channel_bytes * of_byte).epsilon(0.002));
    CHECK(run.times.decode_s == Approx(run.decode.channel_busy / 4).epsilon(0.02));
  }
  const Sets slow_intake{"platform.device.engine.dequantised_per_cycle=1", "platform.device.engine.kernels=2",
                         "platform.device.engine.clock=100 MHz"};
  const double elements = over_steps([](std::uint64_t tokens) { return kHeadDim * tokens + 2 * kChosen * kHeadDim; });
  for (const char* const kv : {", kv_bits: 8", ", kv_bits: 4"})
    CHECK(timing(kv, slow_intake).run.times.decode_s == Approx(elements / 2 / 100e6).epsilon(0.02));
  CHECK(timing("", slow_intake).run.times.decode_s < elements / 2 / 100e6 / 2);
}

TEST_CASE("both fidelities take the same time over few bits") {
  for (const char* const kv : {", kv_bits: 8", ", kv_bits: 4, kv_group: 16"}) {
    const auto run = [&](const char* fidelity) {
      return timing(kv, {"workload.batch=2", "workload.output_tokens=3", "model.layers=2",
                         "platform.device.fidelity=" + std::string(fidelity)})
          .run.simulated;
    };
    CHECK(run("fast") == run("at"));
  }
}

}  // namespace test_few_bits_of_sparf

// A drive from its data sheet: what checks say of values that it leaves out, and the capacity as vendors state it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"
#include "csd_model/exported_capacity.h"
#include "csd_model/wear_drive.h"
#include "experiment/assemble.h"
#include "experiment/block_io/block_workload.h"
#include "tests/scenario/scenario_support.h"

namespace test_drive_sheet {

using namespace csdsim;
using namespace csdsim::test;
using Sets = std::vector<std::string>;

namespace {

/// The notes where the time of the controller is stated.
std::vector<std::string> notes_of(const std::string& file, Sets sets = {}) {
  sets.emplace_back("platform.device.nvme.pipeline_time=0 ps");
  const std::string path = std::string(CSDSIM_SOURCE_DIR) + "/tests/data/data_sheet/" + file;
  return load_scenario(path, sets).base.notes;
}

/// The notes that begin with `path` and hold all `words`, each of which is one line.
std::size_t count(const std::vector<std::string>& notes, const std::string& path, const Sets& words = {}) {
  return static_cast<std::size_t>(std::ranges::count_if(notes, [&](const std::string& note) {
    const bool one_line = note.find('\n') == std::string::npos;
    const auto holds = [&](const std::string& word) { return note.find(word) != std::string::npos; };
    return one_line && holds("note: " + path + ":") && std::ranges::all_of(words, holds);
  }));
}

constexpr const char* kPage = "platform.device.flash.page_size";
constexpr const char* kProgram = "platform.device.flash.program_latency";
constexpr const char* kBlocks = "platform.device.flash.blocks_per_plane";
constexpr const char* kScaledFrom = "platform.device.ftl.scaled_from_blocks";
constexpr const char* kBuffer = "platform.device.write_buffer.capacity";
constexpr const char* kMapping = "platform.device.ftl.mapping.kind";

csd_model::DeviceConfig device_of(const Sets& sets, const std::string& file = "drive.yaml") {
  const std::string path = std::string(CSDSIM_SOURCE_DIR) + "/tests/data/data_sheet/" + file;
  return load_scenario(path, sets).base.scenario.platform.device;
}

std::string error_of(const Sets& sets) {
  try {
    device_of(sets);
  } catch (const config::ConfigError& e) {
    REQUIRE(e.messages().size() == 1);
    return e.messages().front();
  }
  return "";
}

}  // namespace

TEST_CASE("reads of a part of a page without codewords are noted, and nothing else is where nothing is written") {
  const std::vector<std::string> notes = notes_of("drive.yaml");
  CAPTURE(notes);
  CHECK(count(notes, kPage, {"requests of 4 KiB read whole pages of 16 KiB", "flash.codewords: {}"}) == 1);
  CHECK(notes.size() == 1);
  CHECK(notes_of("drive.yaml", {"platform.device.flash.codewords={}"}).empty());
  CHECK(notes_of("drive.yaml", {"platform.device.flash.codewords=none"}).empty());  // decided
  CHECK(notes_of("drive.yaml", {"workload.request_size=16 KiB"}).empty());
  CHECK(notes_of("drive.yaml", {"platform.device.flash.page_size=4 KiB"}).empty());
  CHECK(count(notes_of("drive.yaml", {"workload.request_sizes=[16 KiB, 32 KiB]"}), kPage) == 0);
  CHECK(count(notes_of("drive.yaml", {"workload.request_sizes=[16 KiB, 8 KiB]"}), kPage, {"of 8 KiB"}) == 1);
  for (const auto& [sets, grain] :
       {std::pair{Sets{"workload.request_size=24 KiB"}, "multiples of 24 KiB"},
        {Sets{std::string("workload.request_size=16 KiB"), "workload.alignment=4 KiB"}, "of 4 KiB"}})
    CHECK(count(notes_of("drive.yaml", sets), kPage, {"KiB that begin or end at", grain}) == 1);
  CHECK(notes_of("drive.yaml", Sets{std::string("workload.request_size=64 KiB"), "workload.alignment=16 KiB"}).empty());
}

TEST_CASE("writes to a drive from its data sheet are noted for word lines, small planes and the write buffer") {
  const std::vector<std::string> notes = notes_of("random_write.yaml");
  CAPTURE(notes);
  CHECK(count(notes, kPage, {"write whole pages of 16 KiB", "ftl.mapping_unit: 4 KiB"}) == 1);
  CHECK(count(notes, kProgram, {"700 us", "word_line_pages: 3"}) == 1);
  CHECK(count(notes, kBlocks, {"of 9.0 spare blocks", "3.0 are open or free", "1.46 times", "from 432 blocks on"}) ==
        1);
  CHECK(count(notes, kBuffer, {"no write buffer"}) == 1);
  CHECK(notes.size() == 4);
  // Each is silent once the scenario has decided, and where there is nothing to note.
  const auto silent = [](const char* path, const Sets& sets) {
    CAPTURE(path, sets);
    CHECK(count(notes_of("random_write.yaml", sets), path) == 0);
    CHECK(notes_of("random_write.yaml", sets).size() == 3);
  };
  silent(kPage, {"platform.device.ftl.mapping_unit=4 KiB"});
  silent(kProgram, {"platform.device.flash.word_line_pages=1"});
  silent(kProgram, {"platform.device.flash.program_latency=200 us"});
  silent(kProgram, {"platform.device.flash.page_types={cell: mlc, read_latency: [60 us, 60 us]}"});
  silent(kBlocks, {"platform.device.flash.blocks_per_plane=1328"});
  silent(kBuffer, {"platform.device.write_buffer.capacity=64 MiB"});
  silent(kBuffer, {"platform.device.write_buffer.capacity=0 B"});
  silent(kBuffer, {"platform.device.write_buffer.capacity=16 KiB"});
  CHECK(count(notes_of("random_write.yaml", {"platform.device.write_buffer.capacity=1 B"}), kBuffer,
              {"1 B do not hold a page of 16 KiB", "as without a write buffer"}) == 1);
  CHECK(count(notes_of("random_write.yaml", {"platform.device.ftl.over_provisioning=0"}), kBlocks,
              {"over_provisioning 0 leaves the 3.0 blocks", "far more than on a drive that is sold"}) == 1);
  // Flows count one by one.
  CHECK(count(notes_of("drive.yaml", {"workload.flows={patterns: [random_read, random_write]}"}), kBuffer) == 1);
}

TEST_CASE("a controller without time is noted until its time is stated") {
  const std::string path = std::string(CSDSIM_SOURCE_DIR) + "/tests/data/data_sheet/drive.yaml";
  const auto noted = [&](const Sets& sets) {
    return count(load_scenario(path, sets).base.notes, "platform.device.nvme.pipeline_time",
                 {"the controller takes no time per command"});
  };
  CHECK(noted({}) == 1);
  CHECK(noted({"platform.device.nvme.pipeline_time=0 ps"}) == 0);
  CHECK(noted({"platform.device.nvme.pipeline_time=8 us"}) == 0);
  CHECK(noted({"platform.device.nvme.firmware_time=1 us"}) == 0);
}

TEST_CASE("what only points of a sweep do is noted once, with the first of them, and eight such notes at most") {
  const auto all = [](const std::string& axis) {
    return all_notes(load_scenario_text(
        "csdsim: 1\nworkload: {kind: block_io, pattern: random_read}\n"
        "platform: {device: {flash: {page_size: 4 KiB}, nvme: {pipeline_time: 0 ps}}}\nsweep: {axes: {" +
            axis + "}}\n",
        "s.yaml", "", {}));
  };
  const std::vector<std::string> notes = all("platform.device.flash.page_size: [4 KiB, 16 KiB], seed: [1, 2]");
  CAPTURE(notes);
  CHECK(count(notes, kPage, {"read whole pages of 16 KiB", "(at page_size=16KiB,seed=1)"}) == 1);
  CHECK(notes.size() == 1);
  // Keys of the kinds that other points take are no news.
  const auto kinds = load_scenario_text(
      "csdsim: 1\nworkload: {kind: generation}\nmodel: {preset: opt-1.3b}\nsystem: {kind: instinfer-sparf, ratio: "
      "1/8}\n"
      "sweep: {axes: {system.kind: [instinfer-sparf, instinfer-dense]}}\n",
      "s.yaml", "", {});
  CHECK(all_notes(kinds).empty());
  std::string sizes;
  for (int i = 1; i <= 12; ++i) sizes += (i > 1 ? ", " : "") + std::to_string(8 * i) + " KiB";
  const std::vector<std::string> many = all("platform.device.flash.page_size: [" + sizes + "]");
  CAPTURE(many);
  CHECK(many.size() == 9);
  CHECK(many.back() == "4 more notes of points of the sweep");
}

TEST_CASE("a smaller copy of a drive has as much spare flash beside its open and free blocks") {
  const std::string from = std::string(kScaledFrom) + "=";
  const Sets sets{from + "1328"};
  const auto notes = notes_of("random_write.yaml", sets);
  CAPTURE(notes);
  CHECK(count(notes, kBlocks) == 0);
  CHECK(count(notes, kScaledFrom, {"over_provisioning 0.08991, in place of 0.07", "6.79 % of the flash"}) == 1);
  const csd_model::DeviceConfig copy = device_of(sets, "random_write.yaml");
  // One block of each plane is the KV namespace's; three are open or free.
  CHECK(copy.ftl.over_provisioning.value() == Approx(1 - 0.93 * 1327 / 1324 * 124 / 127).epsilon(1e-4));
  CHECK_FALSE(copy.ftl.scaled_from_blocks);  // loaded once more, nothing changes
  CHECK(device_of({from + "128"}, "random_write.yaml").ftl.over_provisioning == Ratio::of(7, 100));
  // The background keeps more blocks free.
  CHECK(device_of({from + "1328", "platform.device.ftl.gc.background={free_blocks: 6}"}, "random_write.yaml")
            .ftl.over_provisioning.value() == Approx(1 - 0.93 * 1327 / 1320 * 120 / 127).epsilon(1e-4));
}

TEST_CASE("presets of products note nothing, unless they are made to compute") {
  const auto notes = [](const std::string& device, const std::string& workload) {
    return load_scenario_text("csdsim: 1\nplatform: {device: " + device + "}\nworkload: " + workload + "\n", "s.yaml",
                              "", {})
        .base.notes;
  };
  const std::string writes = "{kind: block_io, pattern: random_write, request_size: 4 KiB}";
  for (const char* preset : {"samsung-980-pro-2tb", "micron-9550-max-6.4tb", "micron-9650-max-6.4tb",
                             "solidigm-d5-p5336-122.88tb", "apple-m1-max-1tb"}) {
    CAPTURE(preset);
    for (const std::string& note : notes(std::string("{preset: ") + preset + "}", writes)) {
      // QLC drives of that size map whole pages.
      CHECK(std::string(preset) == "solidigm-d5-p5336-122.88tb");
      CHECK(note.find(kPage) != std::string::npos);
    }
  }
  const std::string attends = "{kind: generation, input_tokens: 8, output_tokens: 2}\nmodel: {preset: opt-6.7b}";
  const auto invented = notes("{preset: samsung-980-pro-2tb, ftl: {mapping: {kind: instinfer}}}", attends);
  CHECK(count(invented, kMapping, {"no such drive is sold", "samsung-980-pro-2tb has no attention engine"}) == 1);
  for (const char* sold : {"instcsd-zynq7045", "smartssd", "hbf-512gb"})
    CHECK(count(notes(std::string("{preset: ") + sold + "}", attends), kMapping) == 0);
}

TEST_CASE("capacity and over-provisioning are accepted as vendors state them") {
  // 64 planes of 1,328 blocks of 12 MiB: 1,069.4 GB, of which 7 % leave 994.6 GB.
  constexpr std::uint64_t kBlockBytes = 64 * 768 * 16384ull;
  const std::string share = "platform.device.ftl.over_provisioning=", blocks = std::string(kBlocks) + "=",
                    of_user = "platform.device.ftl.over_provisioning_of_user=";
  SECTION("over the capacity for data") {
    CHECK(device_of({of_user + "7 %"}).ftl.over_provisioning == Ratio::of(7, 107));
    // A block of each plane is no part of the block namespace.
    CHECK(csd_model::exported_capacity(device_of({of_user + "28 %"})).value ==
          Approx(1327.0 * kBlockBytes / 1.28).epsilon(1e-6));
    CHECK_FALSE(device_of({of_user + "7 %"}).ftl.over_provisioning_of_user);
  }
  const Bytes sold{1'000'000'000'000};
  const auto exports_it = [&](const csd_model::DeviceConfig& device) {
    CHECK(csd_model::exported_capacity(device) >= sold);
    CHECK(csd_model::exported_capacity(device) < sold + device.flash.geometry.page_size);
  };
  SECTION("capacity beside blocks: what is left is spare") {
    const std::string file = "capacity.yaml";
    const csd_model::DeviceConfig device = device_of({blocks + "1328"}, file);
    CHECK(device.flash.geometry.blocks_per_plane == 1328);
    CHECK(device.ftl.over_provisioning.value() == Approx(1 - 1e12 / (1327.0 * kBlockBytes)));
    exports_it(device);
  }
  SECTION("capacity beside over-provisioning: as many blocks as it takes") {
    for (const auto& [set, user_share] :
         {std::pair{share + "0.07", 0.93}, {of_user + "28 %", 1 / 1.28}, {share + "0", 1.0}}) {
      CAPTURE(set);
      const csd_model::DeviceConfig device = device_of({set}, "capacity.yaml");
      // Beside the data: a block of each plane that is no part of the namespace, and no less than the open and the
      // free one of collection.
      const double data = 1e12 / kBlockBytes;
      CHECK(device.flash.geometry.blocks_per_plane == 1 + std::max(std::ceil(data / user_share), std::ceil(data) + 3));
      exports_it(device);
    }
    const csd_model::DeviceConfig device = device_of({}, "capacity.yaml");  // the default share
    CHECK(device.flash.geometry.blocks_per_plane == 1 + std::ceil(1e12 / 0.93 / kBlockBytes));
    exports_it(device);
  }
  SECTION("all three, where they agree") {
    exports_it(device_of({"platform.device.capacity=1 TB", share + "0.065"}));
    exports_it(device_of({"platform.device.capacity=1 TB", share + "0.07"}));  // 0.065 in whole percent
    exports_it(device_of({"platform.device.capacity=1 TB", of_user + "7 %"}));
    CHECK(error_of({"platform.device.capacity=1 TB", share + "0.072"}).find("disagrees") != std::string::npos);
  }
  SECTION("blocks that the block namespace does not have are no part of it") {
    const csd_model::DeviceConfig spare = device_of({"platform.device.ftl.spare_blocks=20"}, "capacity.yaml");
    CHECK(spare.flash.geometry.blocks_per_plane == 21 + std::ceil(1e12 / 0.93 / kBlockBytes));
    exports_it(spare);
    exports_it(device_of({blocks + "1328", "platform.device.ftl.spare_blocks=20"}, "capacity.yaml"));
    exports_it(device_of({"platform.device.ftl.map={kind: cached, capacity: 64 MiB}"}, "capacity.yaml"));
    // Units of three blocks of each plane: whole ones beside the block that is no part of them.
    const csd_model::DeviceConfig units = device_of({"platform.device.ftl.reclaim_unit_blocks=192"}, "capacity.yaml");
    CHECK((units.flash.geometry.blocks_per_plane - 1) % 3 == 0);
    exports_it(units);
  }
  SECTION("a preset keeps its flash, and gives more or less of it away") {
    const auto d = load_scenario_text(
                       "csdsim: 1\nplatform: {device: {preset: micron-9550-max-6.4tb, capacity: 3.2 TB}}\n"
                       "workload: {kind: block_io}\n",
                       "s.yaml", "", {})
                       .base.scenario.platform.device;
    CHECK(d.flash.geometry.blocks_per_plane == 1363);
    CHECK(csd_model::exported_capacity(d).value == Approx(3.2e12).epsilon(1e-6));
  }
}

TEST_CASE("what a drive exports is what its FTL says") {
  // A plane of 64 blocks of 256 KiB, one of which is no part of the block namespace.
  const auto exported = [](const std::string& ftl) {
    const auto s = load_scenario_text(
                       "csdsim: 1\nplatform: {device: {flash: {channels: 1, dies_per_channel: 1, planes_per_die: 1,"
                       " blocks_per_plane: 64, pages_per_block: 64, page_size: 4 KiB}, ftl: {mapping: {kind: page}, " +
                           ftl + "}}}\nworkload: {kind: block_io}\n",
                       "s.yaml", "", {})
                       .base.scenario;
    const Bytes capacity = csd_model::exported_capacity(s.platform.device);
    CHECK(experiment::exported_capacity(s) == capacity);
    CHECK(csd_model::WearDrive(experiment::drive_config(s)).ftl.capacity() == capacity);
    return capacity.value;
  };
  constexpr std::uint64_t kPage = 4096, kBlock = 64 * kPage;
  CHECK(exported("over_provisioning: 0.25") == 63 * kBlock / kPage * 3 / 4 * kPage);
  CHECK(exported("over_provisioning: 0.2, spare_blocks: 13") == 40 * kBlock);
  // Two open blocks, and one that is always free.
  CHECK(exported("over_provisioning: 0") == 60 * kBlock);
  // Each 1,024 pages have one of the map, beside two pages of the plane.
  CHECK(exported("over_provisioning: 0.25, map: {kind: cached, capacity: 64 KiB}") ==
        (63 * 64 * 3 / 4 - 2) * 1024 / 1025 * kPage);
}

TEST_CASE("capacities that contradict one another are errors at the last of them") {
  const std::string capacity = "platform.device.capacity=";
  const std::string far = error_of({capacity + "1 TB", "platform.device.ftl.over_provisioning=0.28"});
  CAPTURE(far);
  CHECK(far.find("disagrees with the flash of 1069.45 GB of which over_provisioning 0.28 leaves 769.42 GB") !=
        std::string::npos);
  CHECK(far.find("over-provisioning of 0.0642 or 1726 blocks_per_plane") != std::string::npos);
  const std::string both =
      error_of({"platform.device.ftl.over_provisioning=0.07", "platform.device.ftl.over_provisioning_of_user=7 %"});
  CHECK(both.find("exclude each other") != std::string::npos);
  // A drive that cannot be built has the error of its part alone.
  for (const char* const part : {"platform.device.ftl.mapping_unit=64 KiB", "platform.device.ftl.spare_blocks=2000"}) {
    CAPTURE(part);
    const std::string key = std::string(part).substr(0, std::string(part).find('='));
    CHECK(error_of({capacity + "1 TB", part}).find(key.substr(key.rfind('.') + 1)) != std::string::npos);
  }
  CHECK(error_of({capacity + "1 TB", "platform.device.ftl.spare_blocks=100"}).find("exports at most 985.69") !=
        std::string::npos);
  CHECK(error_of({capacity + "100 TB", "platform.device.ftl.over_provisioning_of_user=7 %",
                  "platform.device.flash.pages_per_block=16"})
            .find("do not fit into a flash of 22.28 GB") != std::string::npos);
}

}  // namespace test_drive_sheet

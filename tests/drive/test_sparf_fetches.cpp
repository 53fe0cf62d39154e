// The reads of a head of SparF, in closed form, on one plane where nothing contends: senses, bytes over the channel,
// time.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "attention_engine/core/selection.h"
#include "base/rounding.h"
#include "tests/drive/drive_host.h"

namespace test_sparf_fetches {

using namespace csdsim;
using namespace csdsim::test;

namespace {

constexpr std::uint32_t kTokens = 1024, kDim = 128;

/// Pages of `page` bytes with `codeword` data bytes (0: read whole), and groups of tokens of so many codewords.
struct Flash {
  Bytes page, codeword, parity;
  std::uint32_t group_codewords = 1;
};

csd_model::DriveConfig drive_with(const Flash& flash) {
  csd_model::DriveConfig drive = tiny_drive();
  drive.data = ftl::DataMode::timing;
  drive.geometry = {.channels = 1,
                    .dies_per_channel = 1,
                    .planes_per_die = 1,
                    .blocks_per_plane = 64,
                    .pages_per_block = 64,
                    .page_size = flash.page};
  if (flash.codeword.value > 0)
    drive.flash.codewords = nfc::CodewordsConfig{.size = flash.codeword, .parity = flash.parity};
  drive.kv.codeword = drive.block.codeword = flash.codeword;
  drive.kv.group_codewords = flash.group_codewords;
  drive.kv.layout.embedding_group = static_cast<std::uint32_t>(flash.page.value / (2 * kTokens));  // one window
  drive.nvme.controller.mdts = Bytes::mib(16);
  return drive;
}

/// The senses and bytes of wanted places in pages of one kind.
class Wanted {
 public:
  explicit Wanted(const Flash& flash) : flash_(flash) {}
  void add(std::uint64_t byte, std::uint64_t length, std::uint64_t unit) {
    const std::uint64_t size = flash_.codeword.value == 0 ? flash_.page.value : flash_.codeword.value;
    const std::uint64_t first = byte / unit * unit, end = (byte + length + unit - 1) / unit * unit;
    for (std::uint64_t at = first; at < end; at += size) pages_[at / flash_.page.value].insert(at / size);
  }
  std::uint64_t senses() const { return pages_.size(); }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [page, words] : pages_) sum += bytes_of(words.size());
    return sum;
  }
  SimTime time(const nfc::FlashTiming& t) const {
    SimTime sum;
    for (const auto& [page, words] : pages_)
      sum += t.command_time + t.read_latency + t.data_out_setup +
             transfer_time(Bytes{bytes_of(words.size())}, t.channel_bandwidth);
    return sum;
  }

 private:
  std::uint64_t bytes_of(std::size_t words) const {
    return flash_.codeword.value == 0 ? flash_.page.value : words * (flash_.codeword + flash_.parity).value;
  }
  Flash flash_;
  std::map<std::uint64_t, std::set<std::uint64_t>> pages_;
};

}  // namespace

TEST_CASE(
    "a head of SparF senses the pages of what it selects and moves their codewords, in the time that this takes") {
  const std::vector<Flash> flashes{{Bytes::kib(4), {}, {}},
                                   {Bytes::kib(16), {}, {}},
                                   {Bytes::kib(16), Bytes::kib(4), Bytes{512}},
                                   {Bytes::kib(16), Bytes::kib(1), Bytes{128}},
                                   {Bytes::kib(16), Bytes{512}, Bytes{64}},
                                   {Bytes::kib(16), Bytes{512}, Bytes{64}, 8},  // groups of 4 KiB
                                   {Bytes::kib(4), Bytes{512}, Bytes{64}}};
  const std::uint64_t seed = 1414;
  CAPTURE(seed);
  Rng rng(seed, "sparf fetches");
  std::vector<std::uint32_t> components, tokens;
  for (std::uint32_t i = 0; i < kDim; ++i)
    if (rng.below(8) == 0) components.push_back(i);
  for (std::uint32_t t = 0; t < kTokens; ++t)
    if (rng.below(8) == 0) tokens.push_back(t);
  std::optional<SimTime> rest;
  for (std::size_t number = 0; number < flashes.size(); ++number) {
    const Flash& flash = flashes[number];
    CAPTURE(number);
    engine::RecordedSelection selection;
    selection.record({SequenceId{1}, LayerId{0}, KvHead{0}}, kTokens, components, tokens);
    csd_model::DriveConfig config = drive_with(flash);
    config.selection = &selection;
    DriveHost host(config);
    host.content.d = kDim;
    REQUIRE(host.create(1, 1, 1).ok());
    host.drive().materialise(SequenceId{1}, LayerId{0}, {KvHead{0}, 1}, kTokens);

    const std::uint64_t run = 2 * kTokens, row = 2 * kDim, word = flash.codeword.value;
    Wanted embedding(flash), rows(flash);
    for (const std::uint32_t i : components) embedding.add(i * run, run, word == 0 ? flash.page.value : word);
    for (const std::uint32_t t : tokens)
      rows.add(t * row, row, word == 0 ? flash.page.value : word * flash.group_codewords);
    const SimTime reading = embedding.time(config.flash) + rows.time(config.flash) * 2;

    const SimTime start = nvme::sim_now();
    const auto attend =
        host.attend(0,
                    {sparse_heads_of(1, kTokens - 1, 0, 1, static_cast<std::uint16_t>(components.size()),
                                     static_cast<std::uint32_t>(tokens.size()), 1)},
                    nvme::AttendMethod::sparf);
    REQUIRE(attend.sent->status.ok());
    const nfc::FlashStatistics& s = host.drive().flash_statistics();
    const auto attends = static_cast<std::size_t>(OpClass::attend), reads = static_cast<std::size_t>(PageOpKind::read);
    CHECK(s.ops[attends][reads] == embedding.senses() + 2 * rows.senses());
    CHECK(s.bytes[attends][reads] == embedding.bytes() + 2 * rows.bytes());
    CHECK(s.plane_busy[0] == reading);
    // The rest of the command is the same on every flash.
    const SimTime others = attend.sent->at - start - reading;
    CHECK(others > SimTime{});
    if (!rest) rest = others;
    CHECK(others == *rest);
  }
}

}  // namespace test_sparf_fetches

// The link between SSD controller and on-board switch: what crosses it, and what it costs.
#include <catch2/catch.hpp>

#include "csd_model/firmware/internal_link.h"
#include "csd_model/firmware/peer_reads.h"
#include "tests/drive/long_context.h"

namespace test_internal_link {

using namespace csdsim;
using namespace csdsim::test;
using csd_model::PeerReadConfig;
using nvme::LinkDirection;

namespace {

double seconds(SimTime t) { return static_cast<double>(t.ps) * 1e-12; }

/// With a link to the host that limits nothing.
csd_model::DriveConfig behind_switch(const PeerReadConfig& reads) {
  csd_model::DriveConfig drive = scoring_drive();
  drive.link.bandwidth = Bandwidth{20'000'000'000};
  drive.link.generation = drive.link.lanes = {};
  drive.peer_reads = reads;
  return drive;
}

constexpr std::uint32_t kBlocks = 64;  ///< blocks of a command of 256 KiB

/// Data that a host reads, in commands that are submitted at once, without being stored before.
std::vector<SentPtr> send_reads(DriveHost& host, std::uint32_t commands) {
  std::vector<SentPtr> sent;
  for (std::uint32_t i = 0; i < commands; ++i) sent.push_back(host.send_read(std::uint64_t{i} * kBlocks, kBlocks, 2));
  return sent;
}

void write_blocks(DriveHost& host, std::uint32_t commands) {
  std::vector<SentPtr> sent;
  for (std::uint32_t i = 0; i < commands; ++i)
    sent.push_back(host.send_write(std::uint64_t{i} * kBlocks, kBlocks, std::byte{1}, 2));
  for (const SentPtr& s : sent) REQUIRE(host.run(s).ok());
}

}  // namespace

TEST_CASE("block reads and peer-to-peer reads share what leaves the SSD controller") {
  constexpr std::uint16_t kHeads = 16;
  constexpr std::uint32_t kTokens = 2048, kReads = 32;
  const Bandwidth bandwidth{800'000'000};
  const PeerReadConfig reads{.bandwidth = bandwidth, .request_bandwidth = bandwidth};
  LongContext host(behind_switch(reads), kHeads, kTokens);
  const csd_model::InternalLink& link = host.drive().internal_link();
  REQUIRE(link.present());
  write_blocks(host, kReads);
  const std::uint64_t data = std::uint64_t{kReads} * kBlocks * host.driver().block_size().value;
  CHECK(link.stats(LinkDirection::to_drive).bytes == data);
  CHECK(link.stats(LinkDirection::to_host).bytes == 0);

  const SimTime alone = host.score(ScorePrecision::fp16);
  CHECK(link.stats(LinkDirection::to_host).bytes == host.key_bytes());

  SimTime start = sim_time_now();
  for (const SentPtr& read : send_reads(host, kReads)) REQUIRE(host.run(read).ok());
  const double blocks_alone = seconds(sim_time_now() - start);
  CHECK(blocks_alone == Approx(static_cast<double>(data) / 8e8).epsilon(0.05));

  start = sim_time_now();
  const std::vector<SentPtr> beside = send_reads(host, kReads);
  const SimTime scored = host.score(ScorePrecision::fp16);
  double last = seconds(scored);
  for (const SentPtr& read : beside) last = std::max(last, seconds(read->at - start));
  CHECK(scored > alone);
  CHECK(last == Approx(static_cast<double>(data + host.key_bytes()) / 8e8).epsilon(0.05));
  CHECK(link.stats(LinkDirection::to_host).bytes == 2 * (data + host.key_bytes()));
  CHECK(link.stats(LinkDirection::to_host).busy == transfer_time(Bytes{2 * (data + host.key_bytes())}, bandwidth));
  const csd_model::DriveTotals totals = host.drive().totals();
  CHECK(totals.internal_link_bytes == 3 * data + 2 * host.key_bytes());
  CHECK(totals.from_controller_busy == link.stats(LinkDirection::to_host).busy);
  CHECK(totals.to_controller_busy == link.stats(LinkDirection::to_drive).busy);
}

TEST_CASE("an idle internal link adds no time to a page, and pages that come at once pass it one after the other") {
  constexpr Bandwidth kInternal{3'200'000'000};
  const auto times = [&](bool with_switch, std::uint32_t blocks) {
    csd_model::DriveConfig config = behind_switch({.bandwidth = kInternal});
    config.geometry.page_size = Bytes::kib(4);
    if (!with_switch) config.peer_reads.reset();
    DriveHost host(config);
    CHECK(host.drive().internal_link().present() == with_switch);
    DriveHost::run_for(SimTime::milliseconds(1));
    const SentPtr write = host.send_write(0, blocks, std::byte{7});
    REQUIRE(host.run(write).ok());
    const SimTime start = nvme::sim_now();
    const SentPtr read = host.send_read(0, blocks);
    REQUIRE(host.run(read).ok());
    CHECK(*host.at(read->buffer.address) == std::byte{7});
    return std::pair{write->at, read->at - start};
  };
  CHECK(times(true, 1) == times(false, 1));
  // Four pages come from four channels at once.
  CHECK(times(true, 4).second - times(false, 4).second >
        transfer_time(Bytes::kib(12), kInternal) - transfer_time(Bytes::kib(16), Bandwidth{20'000'000'000}));
  CHECK(times(true, 4).second - times(false, 4).second < transfer_time(Bytes::kib(12), kInternal));
}

TEST_CASE("appended K and V cross the internal link, queries and scores do not") {
  const Bandwidth slow{50'000'000};
  csd_model::DriveConfig config = behind_switch({.bandwidth = slow, .request_bandwidth = slow});
  config.geometry.page_size = Bytes::kib(4);
  DriveHost host(config);
  REQUIRE(host.create(1, 1, 4, nvme::create_flag::token_major).ok());
  const csd_model::InternalLink& link = host.drive().internal_link();
  std::vector<SentPtr> sent;
  const SimTime start = sim_time_now();
  constexpr std::uint32_t kTokens = 64, kCommands = 8;
  for (std::uint32_t i = 0; i < kCommands; ++i) sent.push_back(host.send_append(1, 0, i * kTokens, kTokens, 0, 4));
  std::uint64_t bytes = 0;
  for (const SentPtr& s : sent) {
    REQUIRE(host.run(s).ok());
    bytes += s->buffer.length.value;
  }
  CHECK(bytes == std::uint64_t{kCommands} * kTokens * 4 * host.content.d * 2 * sizeof(Half));
  CHECK(link.stats(LinkDirection::to_drive).bytes == bytes);
  CHECK(seconds(sim_time_now() - start) >= static_cast<double>(bytes) / 5e7);

  // Attention appends a token. Tokens that are in no full page yet are read over the link; the newest page is not full.
  const std::uint64_t before = link.stats(LinkDirection::to_host).bytes;
  const std::uint32_t token = kCommands * kTokens;
  const auto a = host.attend(0, {heads_of(1, token, 0, 4, true)});
  CHECK(a.sent->status.ok());
  CHECK(host.error(a) < kOutputTolerance);
  CHECK(link.stats(LinkDirection::to_drive).bytes == bytes + (a.layout.out - a.layout.k).value);
  const auto flushed = host.drive().peer_reads()->stats().bytes;
  const std::uint32_t in_page = 4096 / (2 * host.content.d);
  const std::uint64_t tail = std::uint64_t{(token + 1) % in_page} * 4 * 2 * host.content.d * sizeof(Half);
  CHECK(link.stats(LinkDirection::to_host).bytes - before == flushed + tail);
}

TEST_CASE("each page is written to the FPGA's DRAM and read from it") {
  constexpr std::uint16_t kHeads = 32;
  constexpr std::uint32_t kTokens = 4096;
  const PeerReadConfig reads{.dram_bandwidth = Bandwidth{2'000'000'000}};
  const csd_model::DriveConfig config = behind_switch(reads);
  LongContext host(config, kHeads, kTokens);
  const double rate = static_cast<double>(host.key_bytes()) / seconds(host.score(ScorePrecision::fp16));
  CHECK(rate == Approx(1e9).epsilon(0.03));
  CHECK(host.drive().peer_reads()->dram_stats().bytes == 2 * host.key_bytes());
  CHECK(host.drive().totals().fpga_dram_busy == host.drive().peer_reads()->dram_stats().busy);
}

}  // namespace test_internal_link

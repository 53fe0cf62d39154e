// A tier with a file per block: what files add to the blocks in them, in commands, bytes and time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "host_runtime/core/serving/engine/kv_files.h"
#include "host_runtime/core/serving/engine/rates_transport.h"
#include "tests/serving/engine_support.h"

namespace test_kv_files {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint64_t kBlock = FileSystemLayout::kBlock;
constexpr Bytes kFile = Bytes::kib(64);

/// Keeps what is asked of the drive. What is discarded is overwritten.
class RecordingTransport final : public RatesTransport {
 public:
  using RatesTransport::RatesTransport;
  void read(const DriveRange& from, Place to, std::span<std::byte> bytes, ReadDone done) override {
    reads.push_back(from);
    RatesTransport::read(from, to, bytes, std::move(done));
  }
  void write(const DriveRange& to, Place from, std::span<const std::byte> bytes, Done done) override {
    writes.push_back(to);
    RatesTransport::write(to, from, bytes, std::move(done));
  }
  void discard(const DriveRange& range, Done done) override {
    discards.push_back(range);
    const auto nothing = std::make_shared<std::vector<std::byte>>(range.size.value, std::byte{0xEE});
    RatesTransport::write(range, Place::host(), *nothing, [nothing, done = std::move(done)] { done(); });
  }
  Bytes written(const std::function<bool(const DriveRange&)>& counts) const {
    Bytes sum;
    for (const DriveRange& range : writes)
      if (counts(range)) sum += range.size;
    return sum;
  }
  std::vector<DriveRange> reads, writes, discards;
};

/// Blocks of metadata that the life of a file changes: its directory, its inode, the two bitmaps, the descriptor of its
/// group. In a file system of one group all files of a directory share all but the blocks of inodes.
std::uint64_t shared_blocks(std::uint64_t files) { return 4 + (files + 15) / 16; }

KvFiles::Config one_directory() {
  KvFiles::Config config = small_files();
  config.capacity = Bytes::mib(16);
  config.files.directories = 1;
  config.files.commit_interval = SimTime::milliseconds(50);
  config.files.write_back_interval = SimTime::milliseconds(200);
  config.files.journal = Bytes::mib(1);
  return config;
}

struct Run {
  RecordingTransport transport{TransportRates{}};
  KvFiles files;
  explicit Run(const KvFiles::Config& config, const TransportRates& rates = {}, std::uint32_t parts = 1)
      : transport(rates), files(config, transport, 1, parts, Bytes{kFile.value / parts}) {}
  /// Stores a block and runs until all is done, timers included.
  void store(KvBlockSlot slot) {
    files.write(slot, Place::host(), {}, [] {});
    transport.run();
  }
};

}  // namespace

TEST_CASE("metadata of files goes to the journal and to its place, once for all that changed it", "[serving][files]") {
  const KvFiles::Config config = one_directory();
  for (const std::uint64_t count : {1U, 16U, 40U}) {
    CAPTURE(count);
    Run run(config);
    for (std::uint32_t slot = 0; slot < count; ++slot) run.files.write(slot, Place::host(), {}, [] {});
    run.transport.run();
    REQUIRE(run.files.settled());
    // The entries of 40 names fit in a block of the directory; 256 files are not expected in 16 MiB.
    const FileUse use = run.files.files();
    const FileSystemLayout layout(config.files, config.capacity, kFile);
    REQUIRE(layout.directory == (16 * 1024 / 64 + 39) / 40);
    std::uint64_t entries = 0;
    for (const DriveRange& range : run.transport.writes)
      if (range.offset.value >= layout.entries * kBlock && range.offset < layout.data)
        entries += range.size.value / kBlock;
    const std::uint64_t blocks = shared_blocks(count) - 1 + entries;
    CHECK(use.created == count);
    CHECK(use.deleted == 0);
    CHECK(use.metadata_written.value == blocks * kBlock);
    CHECK(use.journal_written.value == (blocks + 2) * kBlock);
    CHECK(use.metadata_read.value == 0);
    const Bytes data = run.transport.written([&](const DriveRange& range) { return range.offset >= layout.data; });
    CHECK(data == kFile * count);
    CHECK(run.transport.written([](const DriveRange&) { return true; }) == data + use.written());
    // The journal is written from its beginning.
    const auto first =
        std::ranges::find_if(run.transport.writes, [&](const DriveRange& range) { return range.offset < layout.data; });
    CHECK(first->offset.value == 0);
  }
}

TEST_CASE("changes within a commit interval share a transaction", "[serving][files]") {
  KvFiles::Config config = one_directory();
  config.files.create_time = SimTime::milliseconds(20);
  config.files.write_back_interval = SimTime::milliseconds(10'000);
  config.threads = 1;
  const auto journal = [&](SimTime interval) {
    config.files.commit_interval = interval;
    Run run(config);
    for (std::uint32_t slot = 0; slot < 12; ++slot) run.files.write(slot, Place::host(), {}, [] {});
    run.transport.run();
    return run.files.files();
  };
  // A directory block per file at most, and one transaction for all or one for each.
  const FileUse together = journal(SimTime::milliseconds(1000)), apart = journal(SimTime::microseconds(1));
  CHECK(apart.journal_written.value > 5 * together.journal_written.value);
  CHECK(apart.metadata_written.value == together.metadata_written.value);
}

TEST_CASE("a file alone takes the time of its thread and of its I/Os", "[serving][files]") {
  const TransportRates rates{.copy = {},
                             .copy_latency = {},
                             .read = Bandwidth{1'000'000'000},
                             .write = Bandwidth{500'000'000},
                             .read_latency = SimTime::microseconds(70),
                             .write_latency = SimTime::microseconds(20)};
  for (const bool bounce : {false, true}) {
    KvFiles::Config config = one_directory();
    config.io.access = bounce ? FileAccess::bounce : FileAccess::direct;
    config.io.io_size = Bytes::kib(24);  // 24, 24 and 16 KiB
    config.io.copy_bandwidth = Bandwidth{bounce ? 2'000'000'000U : 0U};
    Run run(config, rates, 2);
    SimTime written, read, part;
    const auto since = [&](SimTime& at) { return [&](auto...) { at = run.transport.now(); }; };
    run.files.write(3, Place::host(), {}, since(written));
    run.transport.run();
    const SimTime copy = bounce ? transfer_time(kFile, config.io.copy_bandwidth) : SimTime{};
    // The directory is made with the first file in it.
    CHECK(written.ps == (config.files.create_time * 2 + config.files.rename_time + config.io.io_overhead * 3 + copy +
                         transfer_time(kFile, rates.write) + rates.write_latency * 3)
                            .ps);
    SimTime began = run.transport.now();
    run.files.read(3, {0, 2}, Place::host(), {}, since(read));
    run.transport.run();
    CHECK((read - began).ps == (config.files.open_time + config.io.io_overhead * 3 + copy +
                                transfer_time(kFile, rates.read) + rates.read_latency * 3)
                                   .ps);
    // A part of a file is read with an open of its own.
    began = run.transport.now();
    run.files.read(3, {1, 1}, Place::host(), {}, since(part));
    run.transport.run();
    CHECK((part - began).ps == (config.files.open_time + config.io.io_overhead * 2 + SimTime{copy.ps / 2} +
                                transfer_time(Bytes{kFile.value / 2}, rates.read) + rates.read_latency * 2)
                                   .ps);
    const FileSystemLayout layout(config.files, config.capacity, kFile);
    CHECK(run.transport.reads.back().offset == layout.data + Bytes::kib(32 + 24));
    CHECK(run.transport.reads.back().size == Bytes::kib(8));
    // The block's file is deleted and created anew.
    began = run.transport.now();
    run.files.write(3, Place::host(), {}, since(written));
    run.transport.run();
    CHECK((written - began).ps ==
          (config.files.unlink_time + config.files.create_time + config.files.rename_time + config.io.io_overhead * 3 +
           copy + transfer_time(kFile, rates.write) + rates.write_latency * 3)
              .ps);
    CHECK(run.files.files().deleted == 1);
  }
}

TEST_CASE("threads have a file each", "[serving][files]") {
  const TransportRates latency{.copy = {},
                               .copy_latency = {},
                               .read = {},
                               .write = {},
                               .read_latency = SimTime::microseconds(100),
                               .write_latency = {}};
  const auto time = [&](std::uint32_t threads) {
    KvFiles::Config config = one_directory();
    config.threads = threads;
    config.io.io_size = kFile;
    Run run(config, latency);
    for (std::uint32_t slot = 0; slot < 12; ++slot) run.store(slot);
    const SimTime began = run.transport.now();
    SimTime end;
    for (std::uint32_t slot = 0; slot < 12; ++slot)
      run.files.read(slot, {}, Place::host(), {}, [&](bool) { end = run.transport.now(); });
    run.transport.run();
    return end - began;
  };
  const SimTime one = SimTime::microseconds(3 + 2 + 100);
  CHECK(time(1).ps == (one * 12).ps);
  CHECK(time(4).ps == (one * 3).ps);
  CHECK(time(12).ps == one.ps);
}

TEST_CASE("metadata that is not in memory is read before the file", "[serving][files]") {
  KvFiles::Config config = one_directory();
  config.files.metadata_cache = {};
  config.io.io_size = kFile;
  Run run(config);
  run.store(0);
  REQUIRE(run.transport.reads.empty());
  run.files.read(0, {}, Place::host(), {}, [](bool) {});
  run.transport.run();
  // The block of the directory says which inode it is; then comes the inode, then the file.
  const FileSystemLayout layout(config.files, config.capacity, kFile);
  REQUIRE(run.transport.reads.size() == 3);
  CHECK(run.transport.reads[0].offset.value >= layout.entries * kBlock);
  CHECK(run.transport.reads[0].size.value == kBlock);
  CHECK(run.transport.reads[1].offset.value == layout.inodes * kBlock);
  CHECK(run.transport.reads[2].offset == layout.data);
  CHECK(run.files.files().metadata_read.value == 2 * kBlock);
  config.files.metadata_cache = Bytes::mib(1);
  Run cached(config);
  cached.store(0);
  cached.files.read(0, {}, Place::host(), {}, [](bool) {});
  cached.transport.run();
  CHECK(cached.transport.reads.size() == 1);
}

TEST_CASE("a directory for each file makes more metadata than one for all", "[serving][files]") {
  KvFiles::Config config = one_directory();
  const auto written = [&](std::uint32_t directories) {
    config.files.directories = directories;
    Run run(config);
    for (std::uint32_t slot = 0; slot < 100; ++slot) run.files.write(slot, Place::host(), {}, [] {});
    run.transport.run();
    return run.files.files().metadata_written.value / kBlock;
  };
  // 100 files take nearly 100 of 1,024 directories, each with a block of its own.
  CHECK(written(1024) > 90);
  CHECK(written(1) <= shared_blocks(100) + 6);
}

TEST_CASE("places of deleted files are used again after the commit, in turn", "[serving][files]") {
  KvFiles::Config config = one_directory();
  config.threads = 1;
  config.files.reserved = Ratio{0, 1};
  config.files.directories = 1;
  config.capacity = Bytes::mib(4);
  const FileSystemLayout layout(config.files, config.capacity, kFile);
  REQUIRE(layout.files + 1 == layout.places);
  for (const bool discard : {false, true}) {
    config.files.discard = discard;
    Run run(config);
    for (std::uint32_t slot = 0; slot < layout.files; ++slot) run.files.write(slot, Place::host(), {}, [] {});
    run.transport.run();
    const auto places = [&] {
      std::vector<std::uint64_t> all;
      for (const DriveRange& range : run.transport.writes)
        if (range.offset >= layout.data) all.push_back((range.offset - layout.data).value / kFile.value);
      return all;
    };
    const std::size_t before = places().size();
    // One place is free: the second of three waits for a commit, which frees the places of both deleted ones.
    for (const std::uint32_t slot : {5U, 9U, 2U}) run.files.write(slot, Place::host(), {}, [] {});
    run.transport.run();
    const std::vector<std::uint64_t> all = places();
    CHECK(std::vector<std::uint64_t>(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()) ==
          std::vector<std::uint64_t>{layout.places - 1, 5, 9});
    CHECK(run.transport.discards.size() == (discard ? 3 : 0));
    CHECK(run.files.files().discarded == kFile * (discard ? 3U : 0U));
  }
}

TEST_CASE("files hold what was written last, whatever is deleted, discarded and written beside them",
          "[serving][files]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "files");
    KvFiles::Config config = one_directory();
    config.capacity = Bytes::mib(4 + rng.below(3));
    config.threads = 1 + static_cast<std::uint32_t>(rng.below(5));
    config.files.directories = 1 + static_cast<std::uint32_t>(rng.below(20));
    config.files.discard = rng.below(2) == 0;
    config.files.metadata_cache = Bytes::kib(4 * rng.below(10));
    config.files.commit_interval = SimTime::microseconds(static_cast<std::int64_t>(1 + rng.below(3000)));
    config.files.write_back_interval = SimTime::microseconds(static_cast<std::int64_t>(1 + rng.below(3000)));
    config.files.journal = Bytes::kib(64);
    const TransportRates rates{.copy = {},
                               .copy_latency = {},
                               .read = Bandwidth{1'000'000'000},
                               .write = Bandwidth{1'000'000'000},
                               .read_latency = SimTime::microseconds(10),
                               .write_latency = SimTime::microseconds(10)};
    Run run(config, rates);
    const std::uint64_t slots = FileSystemLayout(config.files, config.capacity, kFile).files;
    REQUIRE(slots > 4);
    std::map<KvBlockSlot, std::vector<std::byte>> stored;
    std::set<KvBlockSlot> busy;
    int left = 400;
    std::uint64_t reads = 0, wrong = 0;
    // Several slots are read and written at a time, each by one.
    std::function<void()> next = [&] {
      if (left-- <= 0) return;
      KvBlockSlot slot = static_cast<KvBlockSlot>(rng.below(slots));
      while (busy.contains(slot)) slot = static_cast<KvBlockSlot>(rng.below(slots));
      busy.insert(slot);
      const auto bytes = std::make_shared<std::vector<std::byte>>(kFile.value, static_cast<std::byte>(rng.below(200)));
      if (stored.contains(slot) && rng.below(2) == 0) {
        run.files.read(slot, {}, Place::host(), *bytes, [&, slot, bytes](bool read) {
          ++reads;
          wrong += read && *bytes == stored[slot] ? 0 : 1;
          busy.erase(slot);
          next();
        });
        return;
      }
      run.files.write(slot, Place::host(), *bytes, [&, slot, bytes] {
        stored[slot] = *bytes;
        busy.erase(slot);
        next();
      });
    };
    for (int i = 0; i < 4; ++i) next();
    run.transport.run();
    bool synced = false;
    run.files.sync([&] { synced = true; });
    run.transport.run();
    REQUIRE(synced);
    REQUIRE(run.files.settled());
    CHECK(reads > 50);
    CHECK(wrong == 0);
    const FileUse use = run.files.files();
    CHECK(use.created - use.deleted == stored.size());
    Bytes metadata;
    const FileSystemLayout layout(config.files, config.capacity, kFile);
    for (const DriveRange& range : run.transport.reads)
      if (range.offset < layout.data) metadata += range.size;
    CHECK(use.metadata_read == metadata);
    CHECK(use.written() == run.transport.written([&](const DriveRange& range) { return range.offset < layout.data; }));
  }
}

TEST_CASE("a slow file tier makes a service slower than none, where the same drive as a range does not",
          "[serving][files]") {
  // A prompt comes back after others have pushed it out of the GPU.
  TraceOf trace(64);
  for (std::uint32_t i = 0; i < 24; ++i) {
    const std::uint64_t first = 100 * (i % 6);
    trace.add(SimTime::milliseconds(40 * i), 4 * 64 + 8, 2, {first + 1, first + 2, first + 3, first + 4, 1000 + i});
  }
  EngineSettings settings;
  settings.serving.engine.gpu_blocks = 17;
  settings.serving.engine.factor = 4;
  settings.rates.read = settings.rates.copy = {};
  const auto ttft = [&] {
    const EngineRun run(settings, trace.trace());
    double sum = 0;
    for (const ServedRequest& r : run.meter().requests()) sum += (r.life.first_token - r.life.arrival).seconds();
    return sum;
  };
  const double none = ttft();
  settings.drive_blocks = 1000;
  const double range = ttft();
  settings.tiers.files = small_files();
  settings.tiers.files->threads = 1;
  settings.tiers.files->io.access = FileAccess::bounce;
  settings.tiers.files->io.copy_bandwidth = Bandwidth{100'000'000};
  const double files = ttft();
  CHECK(range < none);
  CHECK(files > none);
}

}  // namespace test_kv_files

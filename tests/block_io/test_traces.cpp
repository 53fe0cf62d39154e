// Readers of traces: what they make of good lines, where they say bad ones are, and that no bytes upset them.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/block_io/requests/trace_requests.h"
#include "tests/support/temporary_file.h"

namespace test_traces {

using namespace csdsim;
using test::TemporaryFile;
using namespace csdsim::experiment::workload;

namespace {

const std::filesystem::path kTraces = std::filesystem::path(CSDSIM_SOURCE_DIR) / "scenarios/traces";

std::vector<TraceRecord> read_all(TraceFormat format, const std::string& text) {
  const TemporaryFile file(text);
  const auto reader = open_trace(format, file.path.string());
  std::vector<TraceRecord> records;
  while (const auto record = reader->next()) records.push_back(*record);
  return records;
}

/// The message without the name of the file: "LINE:COLUMN: error: ...".
std::string error_of(TraceFormat format, const std::string& text) {
  const TemporaryFile file(text);
  try {
    const auto reader = open_trace(format, file.path.string());
    while (reader->next()) {
    }
  } catch (const UserError& e) {
    const std::string message = e.what();
    REQUIRE(message.starts_with(file.path.string() + ":"));
    return message.substr(file.path.string().size() + 1);
  }
  return "no error";
}

std::string msr_error(const std::string& text) { return error_of(TraceFormat::msr, text); }
std::string fio_error(const std::string& text) { return error_of(TraceFormat::fio, text); }

std::string file_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("MSR records are read field by field") {
  const auto records = read_all(TraceFormat::msr,
                                "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"
                                "128166372003061629,hm,1,Read,383496192,32768,413\r\n"
                                "\n"
                                "128166372016382155,hm,0,write,2822144,4096,0\n"
                                "128166372003061628,hm,1,WRITE,0,512,18446744073709551615");
  REQUIRE(records.size() == 3);
  CHECK(records[0].kind == RequestKind::read);
  CHECK(records[0].offset == Bytes{383'496'192});
  CHECK(records[0].length == Bytes{32'768});
  CHECK(records[0].at == SimTime{});
  CHECK(records[0].stream == 0);
  CHECK(records[0].line == 2);
  CHECK(records[0].offset_column == 30);
  CHECK(records[1].kind == RequestKind::write);
  CHECK(records[1].at == SimTime::nanoseconds(1'332'052'600));
  CHECK(records[1].stream == 1);
  CHECK(records[1].line == 4);
  CHECK(records[2].at == SimTime::nanoseconds(-100));  // earlier than the first
  CHECK(records[2].stream == 0);
  CHECK(records[2].length == Bytes{512});
}

TEST_CASE("an eighth field of a write is its placement identifier, which the drive must take") {
  const std::string text =
      "100,hm,1,Write,0,4096,1,7\n100,hm,1,Write,0,4096,1\n100,hm,1,Write,0,4096,1,\n"
      "100,hm,1,Read,0,4096,1,7\n";
  const auto records = read_all(TraceFormat::msr, text);
  REQUIRE(records.size() == 4);
  CHECK(records[0].placement == 7);
  for (std::size_t i = 1; i < 4; ++i) CHECK(!records[i].placement);
  const TemporaryFile file(text);
  TraceConfig config{.file = file.path.string(), .block = Bytes::kib(4), .span = Bytes::mib(1)};
  TraceCounts counts;
  CHECK(TraceRequests(config, counts).next(0)->placement == 7);
  config.placement = false;
  TraceRequests refusing(config, counts);
  CHECK_THROWS_WITH(refusing.next(0), Catch::Contains(":1:25: error: PlacementIdentifier") &&
                                          Catch::Contains("platform.device.nvme.fdp"));
}

TEST_CASE("malformed MSR lines are located") {
  const std::string good = "100,hm,1,Read,0,512,1\n";
  CHECK(msr_error("").starts_with("no error"));
  for (const char* const heading :
       {"timestamp,hostname,disknumber,type,offset,size,responsetime\n",
        "\"Timestamp\", \"Hostname\",\"DiskNumber\",\"Type\",\"Offset\",\"Size\",\"ResponseTime\"\n"})
    CHECK(read_all(TraceFormat::msr, heading + good).size() == 1);
  CHECK(read_all(TraceFormat::msr, "\"100\",\"hm\",\"1\",\"Read\",\"0\",\"512\",\"1\"\n").front().length == Bytes{512});
  CHECK(msr_error("fio version 3 iolog\n") == "1:1: error: this is an iolog of fio (format: fio)");
  CHECK(msr_error(good + "100,hm,1,Read,0,512\n") ==
        "2:20: error: 6 of 7 fields: ResponseTime is missing (Timestamp,Hostname,DiskNumber,Type,Offset,Size,"
        "ResponseTime)");
  CHECK(msr_error("nonsense").starts_with("1:9: error: 1 of 7 fields: Hostname is missing"));
  CHECK(msr_error("100,hm,1,Read,0,512,1,2,3\n") == "1:25: error: more than 8 fields");
  CHECK(msr_error("100,hm,1,Write,0,512,1,x\n") == "1:24: error: PlacementIdentifier: 'x' is not a whole number");
  CHECK(msr_error("100,hm,1,Write,0,512,1,65536\n") ==
        "1:24: error: PlacementIdentifier: 65536 is too large for 16 bits");
  CHECK(msr_error("x,hm,1,Read,0,512,1\n") == "1:1: error: Timestamp: 'x' is not a whole number");
  CHECK(msr_error("100,,1,Read,0,512,1\n") == "1:5: error: Hostname: is empty");
  CHECK(msr_error("100,hm,one,Read,0,512,1\n") == "1:8: error: DiskNumber: 'one' is not a whole number");
  CHECK(msr_error("100,hm,1,Trim,0,512,1\n") == "1:10: error: Type: 'Trim' is neither Read nor Write");
  CHECK(msr_error("100,hm,1,Read,-1,512,1\n") == "1:15: error: Offset: '-1' is not a whole number");
  CHECK(msr_error("100,hm,1,Read,0,5 12,1\n") == "1:17: error: Size: '5 12' is not a whole number");
  CHECK(msr_error("100,hm,1,Read,0,0,1\n") == "1:17: error: Size: a request of 0 bytes");
  CHECK(msr_error("100,hm,1,Read,0,512,\n") == "1:21: error: ResponseTime: '' is not a whole number");
  CHECK(msr_error("100,hm,1,Read,99999999999999999999,512,1\n") ==
        "1:15: error: Offset: 99999999999999999999 is too large");
  CHECK(msr_error(good + "18446744073709551615,hm,1,Read,0,512,1\n") ==
        "2:1: error: Timestamp: more than 106 days after the first one");
  CHECK(msr_error(good + std::string("100,h\0m,1\n", 10)) == "2:6: error: a NUL character: not text");
  CHECK(msr_error(good + std::string(5000, 'x')) == "2:4097: error: a line of more than 4096 bytes");
  CHECK_THROWS_WITH(open_trace(TraceFormat::msr, "/no/such/trace"), "/no/such/trace: error: no such file");
}

TEST_CASE("iologs of version 2 wait until a time in milliseconds after the start") {
  const auto records =
      read_all(TraceFormat::fio,
               "fio version 2 iolog\n/dev/a add\n/dev/b add\n/dev/a open\n/dev/b open\n"
               "/dev/a read 4096 512\n/dev/a wait 150 0\n/dev/b write 0 8192\n/dev/a wait 150 0\n/dev/a wait 200 0\n"
               "/dev/a sync 0 0\n/dev/b trim 512 1024\n/dev/a close\n/dev/a open\n/dev/a datasync 1 1\n");
  REQUIRE(records.size() == 5);
  CHECK(records[0].kind == RequestKind::read);
  CHECK(records[0].offset == Bytes{4096});
  CHECK(records[0].at == SimTime{});
  CHECK(records[1].kind == RequestKind::write);
  CHECK(records[1].stream == 1);
  CHECK(records[1].at == SimTime::microseconds(150'000));
  CHECK(records[2].kind == RequestKind::flush);
  CHECK(records[2].length == Bytes{});
  CHECK(records[2].at == SimTime::microseconds(200'000));
  CHECK(records[3].kind == RequestKind::trim);
  CHECK(records[3].length == Bytes{1024});
  CHECK(records[4].kind == RequestKind::flush);
}

TEST_CASE("iologs of version 3 have a time a line") {
  const auto records = read_all(TraceFormat::fio,
                                "fio version 3 iolog\n0 a add\n5 a open\n10 a read 0 4096\n7 a  write\t4096 512\n"
                                "1000000 a close\n");
  REQUIRE(records.size() == 2);
  CHECK(records[0].at == SimTime::microseconds(10));
  CHECK(read_all(TraceFormat::fio, "fio version 3 iolog \t\n0 a add\n5 a open\n10 a read 0 4096\n").size() == 1);
  CHECK(records[1].at == SimTime::microseconds(7));
  CHECK(records[1].offset_column == 12);
  CHECK(records[1].length_column == 17);
}

TEST_CASE("malformed iologs are located") {
  const std::string v2 = "fio version 2 iolog\na add\na open\n", v3 = "fio version 3 iolog\n0 a add\n0 a open\n";
  CHECK(fio_error("") == "1:1: error: expected 'fio version 2 iolog' or 'fio version 3 iolog', found 'nothing'");
  CHECK_THAT(fio_error("  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n"),
             Catch::Contains("this is text of blkparse: write a line 'TIME FILE ACTION OFFSET LENGTH'"));
  CHECK_THAT(fio_error("1, 4096, 8192\n"), Catch::Contains("a log of version 1, which has no header"));
  CHECK_THAT(fio_error("128166372003061629,hm,1,Read,383496192,32768,413\n"), Catch::Contains("format: msr"));
  CHECK(fio_error("fio version 4 iolog\n").starts_with("1:1: error: expected 'fio version 2 iolog'"));
  CHECK(fio_error(v2 + "a read 0\n") ==
        "4:8: error: expected FILE ACTION or FILE ACTION OFFSET LENGTH, found 3 words; a torn line is left "
        "where fio was stopped, or where several jobs write one log");
  CHECK(fio_error(v2 + "a read 0 512\n" + v2).starts_with("5:1: error: a second header: the log of several jobs"));
  CHECK(fio_error(v3 + "5\n")
            .starts_with("4:2: error: expected TIME FILE ACTION or TIME FILE ACTION OFFSET LENGTH, found 1 words"));
  CHECK(fio_error(v3 + "a read 0 512\n") == "4:1: error: timestamp: 'a' is not a whole number");
  CHECK(fio_error(v2 + "b read 0 512\n") == "4:1: error: 'b' is not open");
  CHECK(fio_error(v2 + "a add\n") == "4:1: error: 'a' has been added before");
  CHECK(fio_error(v2 + "b open\n") == "4:1: error: 'b' has not been added");
  CHECK(fio_error(v2 + "a open\n") == "4:3: error: 'a' is already open");
  CHECK(fio_error(v2 + "a close\na close\n") == "5:3: error: 'a' is not open");
  CHECK(fio_error(v2 + "a close\na read 0 512\n") == "5:1: error: 'a' is not open");
  CHECK(fio_error(v2 + "a rename\n").starts_with("4:3: error: 'rename' is no action on a file"));
  CHECK(fio_error(v2 + "a seek 0 0\n") == "4:3: error: 'seek' is no action: read, write, trim, sync, datasync, wait");
  CHECK(fio_error(v3 + "1 a wait 0 0\n") == "4:5: error: 'wait' is not allowed in version 3: lines have times");
  CHECK(fio_error(v2 + "a read 0 0\n") == "4:10: error: length: a request of 0 bytes");
  CHECK(fio_error(v2 + "a read 1k 512\n") == "4:8: error: offset: '1k' is not a whole number");
  CHECK(fio_error(v2 + "a wait 99999999999999 0\n") == "4:8: error: wait: more than 106 days after the start");
}

TEST_CASE("requests are fitted to the drive, or refused where they do not fit") {
  const TemporaryFile file(
      "0,h,0,Read,0,4096,0\n10,h,0,Write,70000,512,0\n30,h,0,Read,4000,200,0\n20,h,0,Read,65500,100,0\n");
  TraceConfig config;
  config.file = file.path.string();
  config.block = Bytes{512};
  config.span = Bytes::kib(64);
  config.speed = Ratio{2, 1};
  TraceCounts counts;
  TraceRequests requests(config, counts);
  CHECK(requests.footprint() == Bytes::kib(64));
  BlockRequest r = *requests.next(0);
  CHECK((r.offset == Bytes{0} && r.length == Bytes{4096}));
  r = *requests.next(0);  // 70,000 - 65,536 = 4,464 to 4,976: two sectors
  CHECK((r.offset == Bytes{4096} && r.length == Bytes{1024} && r.at == SimTime::nanoseconds(500)));
  r = *requests.next(0);
  CHECK((r.offset == Bytes{3584} && r.length == Bytes{1024} && r.at == SimTime::nanoseconds(1500)));
  r = *requests.next(0);  // reaches over the end by 64 bytes: stays in front of it; and it goes back in time
  CHECK((r.offset == Bytes{65024} && r.length == Bytes{512} && r.at == SimTime::nanoseconds(1500)));
  CHECK_FALSE(requests.next(0));
  CHECK(counts.records == 4);
  CHECK(counts.wrapped == 2);
  CHECK(counts.extended == 3);
  CHECK(counts.backwards == 1);

  // A request from before the first one comes with it, and is counted.
  const TemporaryFile early("100,h,0,Read,0,512,0\n99,h,0,Read,512,512,0\n101,h,0,Read,0,512,0\n");
  config.file = early.path.string();
  TraceCounts early_counts;
  TraceRequests early_requests(config, early_counts);
  CHECK(early_requests.next(0)->at == SimTime{});
  CHECK(early_requests.next(0)->at == SimTime{});
  CHECK(early_requests.next(0)->at == SimTime::nanoseconds(50));
  CHECK(early_counts.backwards == 1);
  config.file = file.path.string();

  TraceCounts ignored;
  const auto refused = [&](TraceConfig strict) {
    TraceRequests source(strict, ignored);
    try {
      while (source.next(0)) {
      }
    } catch (const UserError& e) {
      return std::string(e.what()).substr(config.file.size());
    }
    return std::string("no error");
  };
  TraceConfig strict = config;
  strict.beyond = Misfit::refuse;
  CHECK(refused(strict) ==
        ":2:14: error: bytes 70000 to 70512 lie beyond the drive, which has 65536 bytes (beyond: wrap moves them "
        "inside)");
  strict = config;
  strict.unaligned = Misfit::refuse;
  CHECK(refused(strict).starts_with(":2:14: error: bytes 4464 to 4976 are not whole logical blocks of 512 bytes"));
  const TemporaryFile trim("fio version 2 iolog\na add\na open\na trim 100 300\n");
  TraceConfig of_trim = strict;
  of_trim.format = TraceFormat::fio;
  of_trim.file = trim.path.string();
  TraceRequests trims(of_trim, ignored);
  CHECK_THROWS_WITH(trims.next(0), Catch::Contains("(unaligned: extend takes the blocks that lie inside a trim)"));
  strict = config;
  strict.span = Bytes{2048};
  CHECK(refused(strict) == ":1:14: error: a request of 4096 bytes on a drive of 2048 bytes");
}

TEST_CASE("trims are rounded inwards, and parts that cover a block together trim it") {
  const TemporaryFile file(
      "fio version 2 iolog\na add\na open\n"
      "a trim 512 1024\na trim 4096 4608\na trim 0 512\na write 0 512\na trim 1536 2560\na read 8192 4096\n"
      "a trim 0 512\na trim 512 512\na trim 1024 512\na trim 8000 9000\n");
  TraceConfig config;
  config.format = TraceFormat::fio;
  config.file = file.path.string();
  config.block = Bytes{4096};
  config.span = Bytes::kib(64);
  TraceCounts counts;
  TraceRequests requests(config, counts);
  const auto next = [&](RequestKind kind, std::uint64_t offset, std::uint64_t length) {
    const BlockRequest r = *requests.next(0);
    CHECK((r.kind == kind && r.offset == Bytes{offset} && r.length == Bytes{length}));
  };
  next(RequestKind::trim, 4096, 4096);  // 4,096 to 8,704
  next(RequestKind::write, 0, 4096);    // forgets what was trimmed of block 0
  next(RequestKind::read, 8192, 4096);  // no trim of block 0 before it: the write has cleared its trimmed parts
  next(RequestKind::trim, 0, 4096);     // by three more parts
  next(RequestKind::trim, 8192, 8192);  // 8,000 to 17,000: the part of block 2 is whole, that of block 1 is not
  CHECK_FALSE(requests.next(0));
  CHECK(counts.rounded_trims == 8);
  CHECK(counts.empty_trims == 5);
  CHECK(counts.extended == 1);
}

TEST_CASE("disks and files of a trace have their own addresses, or share them") {
  const TemporaryFile file("0,h,0,Read,0,5000,0\n1,h,1,Read,0,512,0\n2,h,0,Read,4096,512,0\n3,g,0,Write,1024,512,0\n");
  TraceConfig config;
  config.file = file.path.string();
  config.block = Bytes{512};
  config.span = Bytes::kib(64);
  const auto offsets = [&] {
    TraceCounts counts;
    TraceRequests requests(config, counts);
    std::vector<std::uint64_t> all;
    while (const auto r = requests.next(0)) all.push_back(r->offset.value);
    return all;
  };
  CHECK(offsets() == std::vector<std::uint64_t>{0, 5120, 4096, 5120 + 512 + 1024});
  config.separate = false;
  CHECK(offsets() == std::vector<std::uint64_t>{0, 0, 4096, 1024});
}

TEST_CASE("a trace is the same with a byte-order mark, CRLF and no last newline") {
  const std::string msr =
                        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n100,hm,1,Read,0,512,1\n"
                        "200,hm,1,Write,512,512,1\n",
                    fio = "fio version 2 iolog\na add\na open\na read 0 512\na wait 3 0\na sync 0 0\n";
  for (const auto& [format, text] : {std::pair{TraceFormat::msr, msr}, {TraceFormat::fio, fio}}) {
    const auto plain = read_all(format, text);
    for (int form = 1; form < 8; ++form) {
      std::string other;
      for (const char c : text) other += (form & 1) && c == '\n' ? "\r\n" : std::string(1, c);
      if (form & 2) other = "\xEF\xBB\xBF" + other;
      if (form & 4) other.erase(other.find_last_not_of("\r\n") + 1);
      const auto records = read_all(format, other);
      REQUIRE(records.size() == plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i) {
        CHECK(records[i].offset == plain[i].offset);
        CHECK(records[i].at == plain[i].at);
        CHECK(records[i].offset_column == plain[i].offset_column);
      }
    }
  }
  CHECK(
      msr_error("100,hm,1,Read,0,512,1\n100,h\xB5,1,Read,0,512,1\n").starts_with("2:6: error: byte 0xB5 is not UTF-8"));
  CHECK(msr_error("100,hm,1,\u200bRead,0,512,1\n") == "1:10: error: Type: '<U+200B>Read' is neither Read nor Write");
}

TEST_CASE("a log that ends in the middle of a line says so") {
  const std::string log = "fio version 3 iolog\n0 a add\n0 a open\n5 a read 0 4096\n9 a read 4096 4096\n";
  constexpr const char* kTorn = "; the file ends in this line, without a line end: the line may be torn";
  const auto note_of = [](const std::string& text, TraceFormat format) {
    const TemporaryFile file(text);
    TraceConfig config;
    config.format = format;
    config.file = file.path.string();
    config.block = Bytes::kib(4);
    config.span = Bytes::mib(1);
    config.unaligned = Misfit::adapt;
    TraceCounts counts;
    TraceRequests requests(config, counts);
    while (requests.next(0)) {
    }
    return counts.torn_note.empty() ? "" : counts.torn_note.substr(file.path.string().size());
  };
  for (std::size_t size = 1; size < log.size(); ++size) {
    const std::string part = log.substr(0, size);
    INFO(part);
    const std::string error = fio_error(part);
    const bool whole = part.back() == '\n';
    CHECK((error == "no error" || error.ends_with(kTorn) != whole));
    if (error == "no error" && !whole) CHECK(note_of(part, TraceFormat::fio).find(": note: the file ends in") == 2);
    if (error == "no error" && whole) CHECK(note_of(part, TraceFormat::fio).empty());
  }
  CHECK(fio_error(log.substr(0, log.size() - 3)) == "no error");  // 40 of 4096
  CHECK(note_of("1,h,0,Read,0,4096,12", TraceFormat::msr).starts_with(":1: note: "));
  CHECK(note_of("1,h,0,Read,0,4096,12\n", TraceFormat::msr).empty());
}

TEST_CASE("every request of a wild trace lies within the drive in whole blocks") {
  constexpr std::uint64_t kSeed = 5;
  Rng rng(kSeed);
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t offset = rng.next() >> rng.below(64);
    const std::uint64_t size = 1 + rng.below(std::uint64_t{1} << rng.below(20));
    text += fmt::format("{},h,{},{},{},{},0\n", rng.below(1'000'000), rng.below(3), rng.below(2) ? "Read" : "Write",
                        offset, size);
  }
  const TemporaryFile file(text);
  TraceConfig config;
  config.file = file.path.string();
  config.block = Bytes::kib(4);
  config.span = Bytes::kib(4) * 257;
  TraceCounts counts;
  TraceRequests requests(config, counts);
  INFO("seed " << kSeed);
  SimTime last;
  while (const auto r = requests.next(0)) {
    REQUIRE(r->offset.value % 4096 == 0);
    REQUIRE(r->length.value % 4096 == 0);
    REQUIRE(r->length.value > 0);
    REQUIRE(r->offset + r->length <= config.span);
    REQUIRE(r->at >= last);
    last = r->at;
  }
  CHECK(counts.records == 20'000);
}

TEST_CASE("mutated traces are read or refused with their place, and never crash") {
  constexpr std::uint64_t kSeed = 31;
  Rng rng(kSeed);
  static const std::string kSigns = ",\n\r \t0123456789-+.xRWa\x80\xFF\x01\"";
  struct Seed {
    TraceFormat format;
    std::string text;
  };
  std::vector<Seed> seeds;
  for (const auto& [format, name] : {std::pair{TraceFormat::msr, "mail.msr.csv"},
                                     {TraceFormat::fio, "database.v3.iolog"},
                                     {TraceFormat::fio, "backup.v2.iolog"}}) {
    seeds.push_back({format, file_text(kTraces / name).substr(0, 1200)});
    REQUIRE(seeds.back().text.size() == 1200);
  }
  int read = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const Seed& seed = seeds[static_cast<std::size_t>(round) % seeds.size()];
    std::string text = seed.text;
    const std::uint64_t changes = rng.below(5);
    for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
      const std::size_t at = rng.below(text.size());
      switch (rng.below(5)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text[at] = kSigns[rng.below(kSigns.size())];
          break;
        case 2:
          text.insert(at, 1 + rng.below(30), kSigns[rng.below(kSigns.size())]);
          break;
        case 3:
          text.erase(at, 1 + rng.below(40));
          break;
        default:
          text.insert(at, text.substr(rng.below(text.size()), rng.below(200)));
          break;
      }
    }
    INFO("seed " << kSeed << " round " << round);
    const std::string error = error_of(seed.format, text);
    if (error == "no error") {
      ++read;
    } else {
      ++refused;
      REQUIRE(error.find(": error: ") != std::string::npos);
    }
  }
  CHECK(read > 300);
  CHECK(refused > 1000);
}

}  // namespace test_traces

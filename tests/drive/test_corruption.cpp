// Faults are put into the drive: its answers must show them, and its checks must name them.
#include <catch2/catch.hpp>

#include "tests/drive/drive_host.h"
#include "tests/ftl/faulty_media.h"

namespace test_corruption {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
namespace status = nvme::status;

namespace {

/// Two sequences of 200 tokens in 2 heads.
struct Filled : DriveHost {
  explicit Filled(ftl::PageCheck check = ftl::PageCheck::key) : DriveHost(config(check)) {
    for (std::uint32_t s = 1; s <= 2; ++s) {
      REQUIRE(create(s, 1, 2) == status::success);
      REQUIRE(append(s, 0, 0, 200, 0, 2) == status::success);
    }
  }
  static csd_model::DriveConfig config(ftl::PageCheck check) {
    auto c = tiny_drive();
    c.kv.check = check;
    return c;
  }
  Attend dense() { return attend(0, {heads_of(1, 199, 0, 2)}); }
  Attend sparf() { return attend(0, {sparse_heads_of(1, 199, 0, 2, 8, 60, 20)}, nvme::AttendMethod::sparf); }
  PhysicalPageAddress page(const ftl::KvPageId& id) {
    PhysicalPageAddress found = PhysicalPageAddress::invalid();
    drive().kv_ftl().visit_pages([&](const ftl::KvPageId& p, PhysicalPageAddress ppa) {
      if (p == id) found = ppa;
    });
    REQUIRE(found.valid());
    return found;
  }
  std::string message(std::size_t i = 0) { return to_string(drive().kv_backing_store().kept_integrity_errors().at(i)); }
};

ftl::KvPageId page_id(std::uint32_t sequence, std::uint32_t head, ftl::PageKind kind, std::uint32_t group,
                      std::uint32_t window = 0) {
  return {{SequenceId{sequence}, LayerId{0}, KvHead{head}}, kind, group, window};
}

}  // namespace

TEST_CASE("without faults: right answers and no integrity error") {
  Filled host(GENERATE(ftl::PageCheck::key, ftl::PageCheck::key_and_crc));
  CHECK(host.error(host.dense()) < kOutputTolerance);
  CHECK(host.error(host.sparf()) < kOutputTolerance);
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().kv_ftl().verify() == 0);
  CHECK(host.drive().kv_backing_store().kept_integrity_errors().empty());
}

TEST_CASE("two exchanged map entries of K or V give a wrong answer and are reported") {
  const auto kind = GENERATE(ftl::PageKind::token_k, ftl::PageKind::token_v);
  Filled host;
  const bool key = kind == ftl::PageKind::token_k;
  SECTION("of two groups of a head") {
    host.drive().kv_ftl().swap_mapping(page_id(1, 1, kind, 0), page_id(1, 1, kind, 5));
    CHECK(host.error(host.dense()) > 10 * kOutputTolerance);
    CHECK(host.integrity_errors() == 2);
    CHECK_THAT(host.message(), Contains(key ? "expected K group 0 of sequence 1, layer 0, head 1, found K group 5"
                                            : "expected V group 0 of sequence 1, layer 0, head 1, found V group 5"));
    CHECK(host.drive().kv_ftl().verify() == 2);
  }
  SECTION("of two sequences") {
    host.drive().kv_ftl().swap_mapping(page_id(1, 0, kind, 3), page_id(2, 0, kind, 3));
    CHECK(host.error(host.dense()) > 10 * kOutputTolerance);
    CHECK(host.integrity_errors() == 1);
    CHECK_THAT(host.message(), Contains("of sequence 1") && Contains("found " + std::string(key ? "K" : "V") +
                                                                     " group 3 of sequence 2, layer 0, head 0"));
  }
}

TEST_CASE("two exchanged map entries of embedding pages give a wrong selection and are reported") {
  Filled host;
  host.drive().kv_ftl().swap_mapping(page_id(1, 0, ftl::PageKind::embedding, 0, 1),
                                     page_id(1, 0, ftl::PageKind::embedding, 0, 2));
  CHECK(host.error(host.dense()) < kOutputTolerance);  // dense attention does not read them
  CHECK(host.integrity_errors() == 0);
  CHECK(host.error(host.sparf()) > 10 * kOutputTolerance);
  CHECK(host.integrity_errors() > 0);
  CHECK_THAT(host.message(), Contains("expected embedding page 2 of sequence 1, layer 0, head 0") &&
                                 Contains("found embedding page 4"));
}

TEST_CASE("a flipped bit of a page gives a wrong answer; the CRC tells, the key does not") {
  const auto check = GENERATE(ftl::PageCheck::key, ftl::PageCheck::key_and_crc);
  const auto kind = GENERATE(ftl::PageKind::token_k, ftl::PageKind::token_v);
  Filled host(check);
  const PhysicalPageAddress ppa = host.page(page_id(1, 1, kind, 2));
  // The top exponent bit of one component of the group's first token: that value becomes huge.
  const std::uint64_t bit = 3 * 16 + 14;
  host.drive().kv_backing_store().flip_bit(ppa, bit);
  CHECK(host.error(host.dense()) > 10 * kOutputTolerance);
  CHECK(host.integrity_errors() == (check == ftl::PageCheck::key_and_crc ? 1 : 0));
  CHECK(host.drive().kv_ftl().verify() == 1);
  CHECK_THAT(host.message(), Contains("expected CRC") && Contains("physical page " + std::to_string(ppa.value)));
  // The same bit once more makes it whole.
  host.drive().kv_backing_store().flip_bit(ppa, bit);
  CHECK(host.error(host.dense()) < kOutputTolerance);
  CHECK(host.drive().kv_ftl().verify() == 0);
}

TEST_CASE("a flipped bit of a block page is read back flipped, and told by the CRC") {
  auto config = tiny_drive();
  config.block.check = ftl::PageCheck::key_and_crc;
  DriveHost host(config);
  REQUIRE(host.run(host.send_write(5, 1, std::byte{0x5A})) == status::success);
  const PhysicalPageAddress ppa = host.drive().block_ftl().lookup(ftl::LogicalPage{20});  // 4 pages a block
  host.drive().backing_store().flip_bit(ppa, 9);
  const SentPtr read = host.send_read(5, 1);
  REQUIRE(host.run(read) == status::success);
  auto expected = std::vector(4096, std::byte{0x5A});
  expected[1] = std::byte{0x58};
  CHECK(host.get<std::byte>(read->buffer.address, 4096) == expected);
  CHECK(host.integrity_errors() == 1);
}

TEST_CASE("a block read of one page or several fails where one cannot be corrected, in timing as in carried runs") {
  for (const ftl::DataMode mode : {ftl::DataMode::carried, ftl::DataMode::timing}) {
    for (const Bytes page : {Bytes::kib(1), Bytes::kib(4)}) {
      CAPTURE(mode, page.value);
      ftl::test::FaultyMedia media(3);
      auto config = tiny_drive();
      config.geometry.page_size = page;
      config.data = mode;
      config.faults = &media;
      DriveHost host(config);
      REQUIRE(host.run(host.send_write(1, 1, std::byte{7})) == status::success);
      DriveHost::settle();
      media.uncorrectable = 1;
      const SimTime start = nvme::sim_now();
      const SentPtr read = host.send_read(1, 1);
      CHECK(host.run(read) == status::unrecovered_read_error);
      CHECK(read->at - start > config.flash.read_latency);
      media.uncorrectable = 0;
      CHECK(host.run(host.send_read(1, 1)) == status::success);
      CHECK(host.drive().block_ftl().stats().host_pages_read == 2 * 4096 / page.value);
      // Nothing was written there: no page is read.
      CHECK(host.run(host.send_read(2, 1)) == status::success);
      CHECK(host.drive().block_ftl().stats().unwritten_reads == 4096 / page.value);
    }
  }
}

}  // namespace test_corruption

// The drive that bad commands are sent to, with checks that it is well.
#pragma once

#include <catch2/catch.hpp>

#include "tests/drive/raw_queue.h"

namespace csdsim::test {

inline constexpr std::uint32_t kTokens = 100;

/// A drive that holds sequence 1 (2 layers, 4 heads of d = 16, layer 1 with 100 tokens) and some blocks.
struct Victim {
  DriveHost host;
  RawQueue raw{host};
  nvme::Segment scratch = host.buffer(Bytes::mib(8));  ///< a good buffer for bad commands
  std::vector<Half> good_output;
  std::uint64_t dram_used = 0;

  explicit Victim(const csd_model::DriveConfig& config = tiny_drive()) : host(config) {
    REQUIRE(host.create(1, 2, 4) == nvme::status::success);
    REQUIRE(host.append(1, 1, 0, kTokens, 0, 4) == nvme::status::success);
    REQUIRE(host.run(host.send_write(2, 3, std::byte{0x33})) == nvme::status::success);
    const auto a = host.attend(1, {heads_of(1, kTokens - 1, 0, 4)});
    REQUIRE(host.error(a) < kOutputTolerance);
    good_output = host.output(a);
    dram_used = host.drive().dram().used().value;
  }

  /// The entry with contiguous PRPs for `size` bytes of scratch memory; lists from the driver's own builder.
  nvme::Status run(const nvme::SubmissionEntry& entry, Bytes size) { return host.run(entry, {scratch.address, size}); }
  nvme::Status run(const nvme::SubmissionEntry& entry) { return run(entry, Bytes{std::uint64_t{entry.cdw10} * 4}); }

  void require_alive() {
    const auto a = host.attend(1, {heads_of(1, kTokens - 1, 0, 4)});
    REQUIRE(a.sent->status == nvme::status::success);
    REQUIRE(host.output(a) == good_output);
    const auto s = host.attend(1, {sparse_heads_of(1, kTokens - 1, 0, 4, 8, 40, 10)}, nvme::AttendMethod::sparf);
    REQUIRE(s.sent->status == nvme::status::success);
    REQUIRE(host.error(s) < kOutputTolerance);
    REQUIRE(host.run(host.send_write(9, 1, std::byte{0x44})) == nvme::status::success);
    const SentPtr read = host.send_read(2, 8);
    REQUIRE(host.run(read) == nvme::status::success);
    const auto bytes = host.get<std::byte>(read->buffer.address, 8 * 4096);
    REQUIRE(bytes[0] == std::byte{0x33});
    REQUIRE(bytes[3 * 4096 - 1] == std::byte{0x33});
    REQUIRE(bytes[3 * 4096] == std::byte{0});
    REQUIRE(bytes[7 * 4096] == std::byte{0x44});
    REQUIRE(host.drive().dram().used().value == dram_used);
    REQUIRE(host.integrity_errors() == 0);
    REQUIRE(host.drive().kv_ftl().verify() == 0);
    REQUIRE(host.driver().issued() == host.driver().completed());
    REQUIRE(host.drive().controller().commands_inside() == 0);
  }

  nvme::SubmissionEntry append_entry(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_token,
                                     std::uint32_t tokens, std::uint32_t first_head, std::uint32_t heads,
                                     std::uint16_t d = 16) {
    return nvme::encode(kNamespace, DriveHost::append_command(sequence, layer, first_token, tokens, first_head, heads),
                        d);
  }

  /// Writes the descriptors into the scratch buffer; the entry of an attend (or, with `scores`, a score) with them.
  nvme::SubmissionEntry attend_entry(const std::vector<nvme::AttendDescriptor>& descriptors,
                                     nvme::AttendMethod method = nvme::AttendMethod::dense, std::uint16_t d = 16,
                                     std::uint32_t layer = 1) {
    nvme::KvAttend c{LayerId{layer}, static_cast<std::uint16_t>(descriptors.size()), method, 1, d, 0};
    for (const auto& x : descriptors) c.total_heads += x.head_count;
    if (c.total_heads < c.n) c.total_heads = c.n;
    host.put(scratch.address, descriptors);
    return nvme::encode(kNamespace, c);
  }
  nvme::SubmissionEntry score_entry(const nvme::AttendDescriptor& descriptor, std::uint32_t scores,
                                    std::uint16_t d = 16, std::uint32_t layer = 1) {
    host.put(scratch.address, std::vector{descriptor});
    return nvme::encode(kNamespace, nvme::KvScore{LayerId{layer}, 1, nvme::AttendMethod::dense, 1, d,
                                                  std::max<std::uint32_t>(1, descriptor.head_count), scores});
  }
  nvme::SubmissionEntry fetch_entry(const nvme::AttendDescriptor& descriptor, const std::vector<std::uint32_t>& tokens,
                                    std::uint16_t d = 16, std::uint32_t layer = 1,
                                    std::optional<std::uint16_t> heads = std::nullopt) {
    const nvme::KvFetch c{LayerId{layer}, d, static_cast<std::uint32_t>(tokens.size()),
                          heads.value_or(descriptor.head_count)};
    host.put(scratch.address, std::vector{descriptor});
    host.put(scratch.address + nvme::fetch_layout(c).tokens, tokens);
    return nvme::encode(kNamespace, c);
  }
};

}  // namespace csdsim::test

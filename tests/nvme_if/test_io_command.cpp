#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "nvme_if/core/io_command.h"
#include "nvme_if/spec/encode.h"

namespace test_io_command {

using namespace csdsim;
using namespace csdsim::nvme;

namespace {
const ControllerParams kParams{.mdts = Bytes::kib(128), .block_size = Bytes::kib(4), .namespace_blocks = 1000};
constexpr NamespaceId kNs{1};
Status status_of(const SubmissionEntry& e) { return decode_io(e, kParams).status; }
template <class Change>
SubmissionEntry changed(SubmissionEntry e, Change change) {
  change(e);
  return e;
}
}  // namespace

TEST_CASE("block commands") {
  const DecodedIo d = decode_io(encode_block_io(nvm_opcode::read, kNs, Lba{990}, 10), kParams);
  REQUIRE(d.status.ok());
  CHECK(std::get<BlockRead>(d.command.operation).slba.value == 990);
  CHECK(std::get<BlockRead>(d.command.operation).blocks == 10);
  CHECK(d.command.data.value == 40960);
  CHECK(d.command.direction == DataDirection::drive_to_host);
  CHECK(status_of(encode_block_io(nvm_opcode::read, kNs, Lba{991}, 10)) == status::lba_out_of_range);
  CHECK(status_of(encode_block_io(nvm_opcode::write, kNs, Lba{~0ull}, 1)) == status::lba_out_of_range);
  CHECK(status_of(encode_block_io(nvm_opcode::write, kNs, Lba{0}, 32)).ok());
  CHECK(status_of(encode_block_io(nvm_opcode::write, kNs, Lba{0}, 33)) == status::invalid_field);  // mdts
  CHECK(status_of(encode_block_io(nvm_opcode::write, NamespaceId{0}, Lba{0}, 1)) == status::invalid_namespace);
  CHECK(status_of(encode_block_io(nvm_opcode::write, NamespaceId{2}, Lba{0}, 1)) == status::invalid_namespace);
  CHECK(status_of(encode_flush(kNs)).ok());
  CHECK(status_of(encode_flush(NamespaceId{0xFFFFFFFF})).ok());
  CHECK(status_of(encode_block_io(nvm_opcode::read, NamespaceId{0xFFFFFFFF}, Lba{0}, 1)) == status::invalid_namespace);
  const DecodedIo dsm = decode_io(encode_deallocate(kNs, 256), kParams);
  CHECK(std::get<DatasetManagement>(dsm.command.operation).ranges == 256);
  CHECK(std::get<DatasetManagement>(dsm.command.operation).deallocate);
  CHECK(dsm.command.data.value == 4096);
  CHECK(status_of(changed(encode_flush(kNs), [](auto& e) { e.flags = 0x80; })) ==
        status::invalid_field);  // SGL of metadata
  CHECK(status_of(changed(encode_flush(kNs), [](auto& e) { e.flags = 0x01; })) == status::invalid_field);  // fused
  CHECK(status_of({.opcode = 0x7F, .nsid = 1}) == status::invalid_opcode);
  CHECK(status_of({.opcode = 0x7F, .nsid = 9}) == status::invalid_opcode);
}

TEST_CASE("KV commands with rows of few bits") {
  const auto format_after = [](const RowQuantisation& format, std::uint16_t head_dim) {
    const KvCreate create{SequenceId{7}, 12, 4, head_dim, format_flags(format, head_dim), 2048};
    const DecodedIo c = decode_io(encode(kNs, create), kParams);
    REQUIRE(c.status.ok());
    return format_of(std::get<KvCreate>(c.command.operation).flags, head_dim);
  };
  for (const RowQuantisation& format : {RowQuantisation{4, 64}, {8, 128}, {4, 2}, {16, 64}})
    CHECK(format_after(format, 128) == format);
  CHECK(format_after({4, 80}, 80) == RowQuantisation{4, 80});
  const auto status_with = [](std::uint16_t flags) {
    return status_of(encode(kNs, KvCreate{SequenceId{7}, 12, 4, 64, flags, 2048}));
  };
  CHECK(status_with(create_flag::bits_4 | 1 << 4) == status::success);
  CHECK(status_with(create_flag::bits_4) == status::kv_bad_parameters);                                 // no scale
  CHECK(status_with(create_flag::bits_8 | create_flag::bits_4 | 1 << 4) == status::kv_bad_parameters);  // both
  CHECK(status_with(create_flag::bits_8 | 3 << 4) == status::kv_bad_parameters);                        // 64 / 3
  CHECK(status_with(1 << 4) == status::kv_bad_parameters);  // scales of fp16
  CHECK(status_with(1 << 3) == status::invalid_field);

  KvAttend attend{LayerId{3}, 2, AttendMethod::dense, 2, 64, 8};
  const AttendLayout fp16 = attend_layout(attend);
  attend.row_words = 17;
  const DecodedIo t = decode_io(encode(kNs, attend), kParams);
  REQUIRE(t.status.ok());
  CHECK(std::get<KvAttend>(t.command.operation).words() == 17);
  CHECK(attend_layout(attend).v - attend_layout(attend).k == Bytes{320});  // 8 x 34 B, in multiples of 64
  CHECK(fp16.size - t.command.data == (Bytes{1024} - Bytes{320}) * 2);
}

TEST_CASE("KV commands round-trip") {
  const KvCreate create{SequenceId{7}, 12, 4, 64, create_flag::token_major, 2048};
  const DecodedIo c = decode_io(encode(kNs, create), kParams);
  REQUIRE(c.status.ok());
  const auto& got = std::get<KvCreate>(c.command.operation);
  CHECK((got.sequence == create.sequence && got.layers == 12 && got.kv_heads == 4 && got.head_dim == 64 &&
         got.flags == create_flag::token_major && got.max_tokens == 2048));
  CHECK(c.command.data.value == 0);

  const KvAppend append{SequenceId{7}, LayerId{3}, TokenIndex{100}, 5, KvHead{2}, 2};
  const DecodedIo a = decode_io(encode(kNs, append, 64), kParams);
  REQUIRE(a.status.ok());
  const auto& appended = std::get<KvAppend>(a.command.operation);
  CHECK((appended.layer == append.layer && appended.first_token == append.first_token && appended.token_count == 5 &&
         appended.first_head == append.first_head && appended.head_count == 2));
  CHECK(append_words(appended, a.command.data) == 64);

  const KvAttend attend{LayerId{3}, 2, AttendMethod::sparf, 2, 64, 8};
  const DecodedIo t = decode_io(encode(kNs, attend), kParams);
  REQUIRE(t.status.ok());
  const auto& attended = std::get<KvAttend>(t.command.operation);
  CHECK((attended.layer == attend.layer && attended.n == 2 && attended.method == AttendMethod::sparf &&
         attended.group == 2 && attended.head_dim == 64 && attended.total_heads == 8));
  CHECK(t.command.direction == DataDirection::bidirectional);
  CHECK(t.command.data == attend_layout(attend).size);

  const KvAttend partial{LayerId{3}, 2, AttendMethod::dense_partial, 2, 64, 8};
  const DecodedIo p = decode_io(encode(kNs, partial), kParams);
  REQUIRE(p.status.ok());
  CHECK(std::get<KvAttend>(p.command.operation).method == AttendMethod::dense_partial);
  CHECK(p.command.data == attend_layout(attend).size + Bytes{128});  // 16 query heads x 2 x 4 B

  CHECK(status_of(encode(kNs, KvFree{SequenceId{1}})).ok());
  const DecodedIo fork = decode_io(encode(kNs, KvFork{SequenceId{1}, SequenceId{2}}), kParams);
  REQUIRE(fork.status.ok());
  CHECK(std::get<KvFork>(fork.command.operation).parent == SequenceId{1});
  CHECK(std::get<KvFork>(fork.command.operation).child == SequenceId{2});
  const DecodedIo s = decode_io(encode(kNs, KvScore{LayerId{1}, 1, AttendMethod::dense, 1, 64, 4, 400}), kParams);
  REQUIRE(s.status.ok());
  CHECK(std::get<KvScore>(s.command.operation).total_scores == 400);
  // Mode 0 is that of version 1; every other mode is decoded as it was encoded.
  CHECK((encode(kNs, KvScore{LayerId{1}, 1, AttendMethod::dense, 1, 64, 4, 400}).cdw13 & 0xFF) == 0);
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    for (const ScoreAggregate aggregate :
         {ScoreAggregate::sum_raw, ScoreAggregate::max_raw, ScoreAggregate::per_head}) {
      const KvScore mode{LayerId{1}, 1, AttendMethod::dense, 1, 64, 4, 400, precision, aggregate};
      const DecodedIo m = decode_io(encode(kNs, mode), kParams);
      REQUIRE(m.status.ok());
      CHECK(std::get<KvScore>(m.command.operation).precision == precision);
      CHECK(std::get<KvScore>(m.command.operation).aggregate == aggregate);
      CHECK(std::get<KvScore>(m.command.operation).lists(4) == (aggregate == ScoreAggregate::per_head ? 4u : 1u));
    }
  const DecodedIo f = decode_io(encode(kNs, KvFetch{LayerId{1}, 64, 33, 4}), kParams);
  REQUIRE(f.status.ok());
  CHECK(std::get<KvFetch>(f.command.operation).token_count == 33);
  CHECK(std::get<KvFetch>(f.command.operation).head_count == 4);
}

TEST_CASE("malformed KV commands") {
  const auto create = [](KvCreate c) { return status_of(encode(kNs, c)); };
  CHECK(create({SequenceId{1}, 0, 4, 64}) == status::kv_bad_parameters);
  CHECK(create({SequenceId{1}, 1, 0, 64}) == status::kv_bad_parameters);
  CHECK(create({SequenceId{1}, 1, 4, 0}) == status::kv_bad_parameters);
  const SubmissionEntry good = encode(kNs, KvCreate{SequenceId{1}, 1, 4, 64});
  CHECK(status_of(changed(good, [](auto& e) { e.cdw10 = 1; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(good, [](auto& e) { e.cdw11 = 1; })) == status::invalid_field);
  CHECK(status_of(changed(good, [](auto& e) { e.cdw14 |= 8u << 16; })) == status::invalid_field);
  CHECK(status_of(changed(good, [](auto& e) { e.nsid = 0; })) == status::invalid_namespace);
  CHECK(status_of(changed(encode(kNs, KvFree{SequenceId{1}}), [](auto& e) { e.cdw13 = 1; })) == status::invalid_field);

  const SubmissionEntry fork = encode(kNs, KvFork{SequenceId{1}, SequenceId{2}});
  CHECK(status_of(changed(fork, [](auto& e) { e.cdw14 = 1; })) == status::invalid_field);
  CHECK(status_of(changed(fork, [](auto& e) { e.cdw15 = 1; })) == status::invalid_field);
  CHECK(status_of(changed(fork, [](auto& e) { e.cdw10 = 1; })) == status::kv_shape_mismatch);

  const auto append = [](KvAppend c) { return status_of(encode(kNs, c, 64)); };
  CHECK(append({SequenceId{1}, LayerId{0}, TokenIndex{0}, 0, KvHead{0}, 1}) == status::kv_bad_token);
  CHECK(append({SequenceId{1}, LayerId{0}, TokenIndex{0xFFFFFFFF}, 1, KvHead{0}, 1}) == status::kv_bad_token);
  CHECK(append({SequenceId{1}, LayerId{0}, TokenIndex{0}, 1, KvHead{0}, 0}) == status::kv_bad_head);
  CHECK(append({SequenceId{1}, LayerId{0}, TokenIndex{0}, 1000, KvHead{0}, 4}) == status::invalid_field);  // mdts
  const SubmissionEntry a = encode(kNs, KvAppend{SequenceId{1}, LayerId{0}, TokenIndex{0}, 3, KvHead{0}, 2}, 64);
  CHECK(status_of(changed(a, [](auto& e) { e.cdw10 += 1; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(a, [](auto& e) { e.cdw10 = 0; })) == status::kv_shape_mismatch);

  const SubmissionEntry t = encode(kNs, KvAttend{LayerId{0}, 2, AttendMethod::dense, 1, 64, 4});
  CHECK(status_of(changed(t, [](auto& e) { e.cdw12 = 0; })) == status::kv_bad_parameters);          // n = 0
  CHECK(status_of(changed(t, [](auto& e) { e.cdw13 |= 9; })) == status::kv_bad_parameters);         // method
  CHECK(status_of(changed(t, [](auto& e) { e.cdw13 &= ~0xFF00u; })) == status::kv_bad_parameters);  // G = 0
  CHECK(status_of(changed(t, [](auto& e) { e.cdw13 &= 0xFFFFu; })) == status::kv_bad_parameters);   // d = 0
  CHECK(status_of(changed(t, [](auto& e) { e.cdw14 = 1; })) == status::kv_bad_head);                // fewer than n
  CHECK(status_of(changed(t, [](auto& e) { e.cdw14 = 5; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(t, [](auto& e) { e.cdw14 = ~0u; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(t, [](auto& e) { e.cdw15 = 1u << 16; })) == status::invalid_field);
  CHECK(status_of(changed(t, [](auto& e) { e.cdw10 = ~0u; })) == status::invalid_field);

  const SubmissionEntry p = encode(kNs, KvAttend{LayerId{0}, 2, AttendMethod::dense_partial, 1, 64, 4});
  CHECK(status_of(p).ok());
  CHECK(status_of(changed(p, [](auto& e) { e.cdw13 &= ~2u; })) == status::kv_shape_mismatch);  // dense, too long
  CHECK(status_of(changed(p, [](auto& e) { e.cdw13 |= 1; })) == status::success);              // sparf_partial
  CHECK(status_of(changed(p, [](auto& e) { e.cdw13 ^= 6; })) == status::kv_bad_parameters);    // method 4
  CHECK(status_of(changed(p, [](auto& e) { e.cdw10 -= 1; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(p, [](auto& e) { e.cdw14 = ~0u; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(p, [](auto& e) { e.cdw15 = 1u << 16; })) == status::invalid_field);

  const SubmissionEntry s = encode(kNs, KvScore{LayerId{1}, 1, AttendMethod::dense, 1, 64, 4, 400});
  for (const std::uint32_t mode : {0x03u, 0x0Fu, 0x30u, 0x80u})
    CHECK(status_of(changed(s, [&](auto& e) { e.cdw13 |= mode; })) == status::kv_bad_parameters);
  CHECK(status_of(changed(s, [](auto& e) { e.cdw15 = 0; })) == status::kv_bad_token);
  CHECK(status_of(changed(s, [](auto& e) { e.cdw15 += 64; })) == status::kv_shape_mismatch);
  const SubmissionEntry f = encode(kNs, KvFetch{LayerId{1}, 64, 33, 4});
  CHECK(status_of(changed(f, [](auto& e) { e.cdw13 = 0; })) == status::kv_bad_token);
  CHECK(status_of(changed(f, [](auto& e) { e.cdw13 = ~0u; })) == status::kv_shape_mismatch);
  CHECK(status_of(changed(f, [](auto& e) { e.cdw14 = 0; })) == status::kv_bad_head);
  CHECK(status_of(changed(f, [](auto& e) { e.cdw14 = 0x10004; })) == status::invalid_field);

  ControllerParams plain = kParams;
  plain.kv_commands = false;
  CHECK(decode_io(good, plain).status == status::invalid_opcode);
}

TEST_CASE("no 64 bytes abort the decoder, and what it accepts is within bounds") {
  const auto seed = Catch::rngSeed() + 3;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  std::uint64_t accepted = 0;
  constexpr std::uint8_t kOpcodes[] = {0x00, 0x01, 0x02, 0x09, 0x80, 0x81, 0x83, 0x84, 0x85, 0x87, 0x8B};
  for (int i = 0; i < 400'000; ++i) {
    SubmissionEntry e;
    std::uint64_t words[8];
    for (auto& w : words) w = rng();
    std::memcpy(&e, words, sizeof e);
    // Half of them are close to valid, so that the checks behind the first ones are reached.
    if (i % 2 == 0) {
      e.opcode = kOpcodes[rng() % std::size(kOpcodes)];
      e.flags = 0;
      e.nsid = 1;
      e.cdw11 = 0;
      for (std::uint32_t* d : {&e.cdw10, &e.cdw12, &e.cdw13, &e.cdw14, &e.cdw15})
        if (rng() % 2 == 0) *d &= 0x000F'000Fu;
    }
    const DecodedIo d = decode_io(e, kParams);
    if (!d.status.ok()) continue;
    ++accepted;
    REQUIRE(d.command.data <= kParams.mdts);
    if (const auto* r = std::get_if<BlockRead>(&d.command.operation))
      REQUIRE(r->slba.value + r->blocks <= kParams.namespace_blocks);
  }
  CHECK(accepted > 1000);
}

}  // namespace test_io_command

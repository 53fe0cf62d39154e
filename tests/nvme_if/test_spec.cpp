#include <catch2/catch.hpp>

#include "nvme_if/spec/encode.h"
#include "nvme_if/spec/identify.h"
#include "nvme_if/spec/registers.h"

namespace test_spec {

using namespace csdsim;
using namespace csdsim::nvme;

TEST_CASE("registers round-trip and stand where the specification puts them") {
  const Cap cap{.mqes = 1023, .cqr = true, .to = 3, .dstrd = 2, .css_nvm = true, .mpsmin = 0, .mpsmax = 4};
  const std::uint64_t raw = cap.encode();
  CHECK((raw & 0xFFFF) == 1023);
  CHECK(((raw >> 16) & 1) == 1);
  CHECK(((raw >> 24) & 0xFF) == 3);
  CHECK(((raw >> 32) & 0xF) == 2);
  CHECK(((raw >> 37) & 1) == 1);
  CHECK(((raw >> 52) & 0xF) == 4);
  CHECK(Cap::decode(raw).encode() == raw);

  const Cc cc{.en = true, .css = 0, .mps = 2, .ams = 0, .shn = 1, .iosqes = 6, .iocqes = 4};
  CHECK(cc.encode() == (1u | (2u << 7) | (1u << 14) | (6u << 16) | (4u << 20)));
  CHECK(Cc::decode(cc.encode()).encode() == cc.encode());
  const Csts csts{true, false, ShutdownStatus::complete};
  CHECK(csts.encode() == (1u | (2u << 2)));

  CHECK(sq_tail_doorbell(QueueId{0}, 0) == 0x1000);
  CHECK(cq_head_doorbell(QueueId{0}, 0) == 0x1004);
  CHECK(sq_tail_doorbell(QueueId{3}, 0) == 0x1018);
  CHECK(cq_head_doorbell(QueueId{3}, 4) == 0x1000 + 7 * 64);
}

TEST_CASE("the status field carries type, code and phase") {
  CompletionEntry e;
  e.status = encode_status(status::kv_bad_token, true);
  CHECK(e.phase());
  CHECK(e.code() == status::kv_bad_token);
  CHECK(e.status == ((7u << 9) | (0xC6u << 1) | 1u));
  e.status = encode_status(status::success, false);
  CHECK(e.status == 0);
  CHECK(status_name(status::lba_out_of_range) == "lba_out_of_range");
  CHECK(status_name(Status{StatusType::media, 0x11}) == "unknown");
}

TEST_CASE("KV buffers are laid out in 64-byte aligned sections") {
  const KvAttend attend{LayerId{3}, 3, AttendMethod::sparf, 4, 80, 5};
  const AttendLayout l = attend_layout(attend);
  CHECK(l.q.value == 128);               // 3 descriptors of 32 bytes
  CHECK(l.k.value == 128 + 3200);        // 5 heads * 4 * 80 * 2
  CHECK(l.v.value == 128 + 3200 + 832);  // 800 -> 832
  CHECK(l.out.value == 128 + 3200 + 2 * 832);
  CHECK(l.size.value == 128 + 2 * 3200 + 2 * 832);
  const SubmissionEntry sqe = encode(NamespaceId{1}, attend);
  CHECK(sqe.opcode == 0x83);
  CHECK(sqe.cdw10 * 4ull == l.size.value);
  CHECK(sqe.cdw11 == 0);
  CHECK(sqe.cdw12 == (3u | (3u << 16)));
  CHECK(sqe.cdw13 == (1u | (4u << 8) | (80u << 16)));
  CHECK(sqe.cdw14 == 5);

  // m and z of 20 query heads: 160 bytes. Everything before them stands where it does without.
  KvAttend partial = attend;
  partial.method = AttendMethod::dense_partial;
  CHECK(l.softmax == l.size);
  CHECK(attend_layout(partial).out == l.out);
  CHECK(attend_layout(partial).softmax == l.size);
  CHECK(attend_layout(partial).size == l.size + Bytes{192});
  CHECK(encode(NamespaceId{1}, partial).cdw10 * 4ull == l.size.value + 192);
  CHECK((encode(NamespaceId{1}, partial).cdw13 & 0xFF) == 2);

  const ScoreLayout s = score_layout({LayerId{0}, 1, AttendMethod::dense, 1, 64, 2, 34});
  CHECK(s.q.value == 64);
  CHECK(s.scores.value == 64 + 256);
  CHECK(s.size.value == 64 + 256 + 192);  // 34 floats are 136 bytes

  const FetchLayout f = fetch_layout({LayerId{0}, 64, 17, 2});
  CHECK(f.tokens.value == 64);
  CHECK(f.k.value == 64 + 128);  // 68 bytes of indices
  CHECK(f.v.value == f.k.value + 2 * 17 * 128);
  CHECK(f.size.value == f.v.value + 2 * 17 * 128);

  CHECK(append_size({SequenceId{1}, LayerId{0}, TokenIndex{0}, 16, KvHead{0}, 4}, 128).value == 4 * 16 * 128 * 4);
}

}  // namespace test_spec

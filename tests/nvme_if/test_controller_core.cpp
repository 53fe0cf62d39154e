#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "nvme_if/core/controller_core.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/spec/identify.h"

namespace test_controller_core {

using namespace csdsim;
using namespace csdsim::nvme;
using Kind = RegisterEffect::Kind;

namespace {

void enable(ControllerCore& core, std::uint16_t entries = 8) {
  core.write(reg::aqa, 4, encode_aqa(static_cast<std::uint16_t>(entries - 1), static_cast<std::uint16_t>(entries - 1)));
  core.write(reg::asq, 8, 0x10000);
  core.write(reg::acq, 8, 0x20000);
  REQUIRE(core.write(reg::cc, 4, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode()).kind == Kind::enabled);
}

Csts csts(const ControllerCore& core) { return Csts::decode(static_cast<std::uint32_t>(*core.read(reg::csts, 4))); }

SubmissionEntry with_prp(SubmissionEntry e, std::uint64_t prp1) {
  e.prp1 = prp1;
  return e;
}

}  // namespace

TEST_CASE("register file: identity, widths, read-only registers") {
  ControllerCore core({.queue_depth = 256, .dstrd = 1});
  const Cap cap = Cap::decode(*core.read(reg::cap, 8));
  CHECK(cap.mqes == 255);
  CHECK(cap.dstrd == 1);
  CHECK(cap.cqr);
  CHECK(*core.read(reg::vs, 4) == 0x10400);
  CHECK(*core.read(reg::cap + 4, 4) == *core.read(reg::cap, 8) >> 32);
  core.write(reg::cap, 4, 0);
  core.write(reg::csts, 4, ~0u);
  CHECK(Cap::decode(*core.read(reg::cap, 8)).mqes == 255);
  CHECK_FALSE(csts(core).rdy);

  CHECK_FALSE(core.read(reg::cap, 2).has_value());
  CHECK_FALSE(core.read(reg::cap + 2, 4).has_value());
  CHECK_FALSE(core.read(reg::vs + 4, 8).has_value());
  CHECK_FALSE(core.read(core.bar_size().value, 4).has_value());
  CHECK(core.write(reg::cc + 1, 4, 0).kind == Kind::refused);
  CHECK(core.write(reg::cc, 8, 0).kind == Kind::refused);
  CHECK(core.write(reg::cc, 1, 0).kind == Kind::refused);
  CHECK(core.write(core.bar_size().value, 4, 0).kind == Kind::refused);

  // 64-bit registers in halves; the low 12 bits are reserved.
  core.write(reg::asq, 4, 0x1234'5FFF);
  core.write(reg::asq + 4, 4, 0xAB);
  CHECK(*core.read(reg::asq, 8) == 0xAB'1234'5000);
  core.write(reg::asq, 8, 0xCD'0000'0FFF);
  CHECK(*core.read(reg::asq, 8) == 0xCD'0000'0000);
  core.write(reg::aqa, 4, ~0u);
  CHECK(*core.read(reg::aqa, 4) == 0x0FFF0FFF);
}

TEST_CASE("enable, reset and shutdown handshake") {
  ControllerCore core({});
  CHECK_FALSE(core.running());
  // There is nothing to shut down before the controller is ready.
  CHECK(core.write(reg::cc, 4, Cc{.shn = 1}.encode()).kind == Kind::none);
  CHECK(csts(core).shst == ShutdownStatus::normal);
  core.write(reg::cc, 4, 0);
  enable(core);
  CHECK(csts(core).rdy);
  CHECK(core.running());
  CHECK(core.sq(QueueId{0}) != nullptr);
  // The admin queue registers hold while enabled.
  core.write(reg::asq, 8, 0x90000);
  CHECK(*core.read(reg::asq, 8) == 0x10000);

  CHECK(core.write(reg::cc, 4, Cc{.en = true, .shn = 1, .iosqes = 6, .iocqes = 4}.encode()).kind == Kind::shutdown);
  CHECK(csts(core).shst == ShutdownStatus::processing);
  CHECK_FALSE(core.running());
  core.finish_shutdown();
  CHECK(csts(core).shst == ShutdownStatus::complete);

  CHECK(core.write(reg::cc, 4, 0).kind == Kind::reset);
  CHECK(csts(core).rdy);  // until finish_reset()
  // Doorbells are dead meanwhile, and enabling waits.
  CHECK(core.write(sq_tail_doorbell(QueueId{0}, 0), 4, 1).kind == Kind::none);
  CHECK(core.write(reg::cc, 4, Cc{.en = true}.encode()).kind == Kind::none);
  core.write(reg::cc, 4, 0);
  core.finish_reset();
  CHECK_FALSE(csts(core).rdy);
  CHECK(csts(core).shst == ShutdownStatus::normal);
  CHECK(core.sq(QueueId{0}) == nullptr);
  enable(core);
  CHECK(core.running());
}

TEST_CASE("a configuration that cannot work sets CFS") {
  const auto try_enable = [](std::uint32_t aqa, std::uint64_t asq, std::uint64_t acq, Cc cc) {
    ControllerCore core({.queue_depth = 1024, .mpsmax = 2});
    core.write(reg::aqa, 4, aqa);
    core.write(reg::asq, 8, asq);
    core.write(reg::acq, 8, acq);
    core.write(reg::cc, 4, cc.encode());
    const Csts s = csts(core);
    CHECK(s.rdy != s.cfs);
    return s.rdy;
  };
  CHECK(try_enable(encode_aqa(7, 7), 0x10000, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(0, 7), 0x10000, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(7, 0), 0x10000, 0x20000, {.en = true}));
  CHECK(try_enable(encode_aqa(1023, 1023), 0x10000, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(1024, 1023), 0x10000, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(1023, 1024), 0x10000, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0, 0x20000, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0x10000, 0, {.en = true}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0x10000, 0x20000, {.en = true, .mps = 3}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0x11000, 0x20000, {.en = true, .mps = 1}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0x10000, 0x20000, {.en = true, .css = 1}));
  CHECK_FALSE(try_enable(encode_aqa(7, 7), 0x10000, 0x20000, {.en = true, .ams = 2}));
}

TEST_CASE("doorbells are checked, wrong ones are ignored and counted") {
  ControllerCore core({.io_queues = 2});
  enable(core, 8);
  const auto sq = [&](std::uint32_t v) { return core.write(sq_tail_doorbell(QueueId{0}, 0), 4, v).kind; };
  const auto cq = [&](std::uint32_t v) { return core.write(cq_head_doorbell(QueueId{0}, 0), 4, v).kind; };
  CHECK(sq(8) == Kind::none);  // outside
  CHECK(sq(0) == Kind::none);  // unchanged
  CHECK(sq(0xFFFF'FFFF) == Kind::none);
  CHECK(cq(1) == Kind::none);  // nothing has been completed
  CHECK(core.stats().invalid_doorbell_value == 4);
  CHECK(sq(7) == Kind::sq_tail);  // all entries but one
  CHECK(core.sq(QueueId{0})->available() == 7);
  CHECK(sq(0) == Kind::none);  // would add one more than is free
  CHECK(core.stats().invalid_doorbell_value == 5);
  CHECK(core.sq(QueueId{0})->claim(3).length == Bytes{3 * sizeof(SubmissionEntry)});
  CHECK(core.sq(QueueId{0})->available() == 4);
  CHECK(sq(0) == Kind::none);  // claimed is not consumed
  core.sq(QueueId{0})->consume();
  CHECK(sq(0) == Kind::sq_tail);
  // A claim ends with the last entry of the queue, because entry 0 does not follow it in memory.
  CHECK(core.sq(QueueId{0})->claim(8).length == Bytes{5 * sizeof(SubmissionEntry)});
  CHECK(core.sq(QueueId{0})->available() == 0);

  CHECK(core.write(sq_tail_doorbell(QueueId{1}, 0), 4, 1).kind == Kind::none);  // not created
  CHECK(core.write(cq_head_doorbell(QueueId{2}, 0), 4, 1).kind == Kind::none);
  CHECK(core.write(sq_tail_doorbell(QueueId{9}, 0), 4, 1).kind == Kind::none);  // may never exist
  CHECK(core.stats().invalid_doorbell_register == 3);
  CHECK(core.write(sq_tail_doorbell(QueueId{0}, 0), 8, 1).kind == Kind::refused);
}

TEST_CASE("completion entries carry phase, head and identifiers, and the phase turns at the wrap") {
  ControllerCore core({});
  enable(core, 4);
  SubmissionQueue& sq = *core.sq(QueueId{0});
  CompletionQueue& cq = *core.cq(QueueId{0});
  std::uint32_t head = 0;
  for (int i = 0; i < 11; ++i) {
    REQUIRE_FALSE(cq.full());
    const auto p = core.post(sq, cq, CommandId{static_cast<std::uint16_t>(100 + i)}, status::lba_out_of_range, 7);
    CHECK(p.address.value == 0x20000 + (i % 4) * 16u);
    CHECK(p.entry.phase() == ((i / 4) % 2 == 0));
    CHECK(p.entry.cid == 100 + i);
    CHECK(p.entry.code() == status::lba_out_of_range);
    CHECK(p.entry.dw0 == 7);
    head = (head + 1) % 4;
    REQUIRE(core.write(cq_head_doorbell(QueueId{0}, 0), 4, head).kind == Kind::cq_head);
  }
  // Full is one entry less than the size.
  for (int i = 0; i < 3; ++i) core.post(sq, cq, CommandId{0}, status::success, 0);
  CHECK(cq.full());
  CHECK(core.stats().error_completions == 11);
}

TEST_CASE("controller parameters out of range are the user's mistake") {
  CHECK_THROWS_AS(ControllerCore({.io_queues = 0}), UserError);
  CHECK_THROWS_AS(ControllerCore({.queue_depth = 1}), UserError);
  CHECK_THROWS_AS(ControllerCore({.mdts = Bytes{5000}}), UserError);
  CHECK_THROWS_AS(ControllerCore({.block_size = Bytes{1000}}), UserError);
  CHECK_THROWS_AS(ControllerCore({.mdts = Bytes{4096}, .block_size = Bytes{8192}}), UserError);
  CHECK_THROWS_AS(ControllerCore({.namespace_blocks = 0}), UserError);
  CHECK_THROWS_AS(ControllerCore({.dstrd = 16}), UserError);
  CHECK_THROWS_WITH(ControllerCore({.mdts = Bytes{5000}}), Catch::Contains("mdts is 5000"));
}

TEST_CASE("Identify structures") {
  ControllerCore core({.mdts = Bytes::kib(64), .block_size = Bytes{512}, .namespace_blocks = 1000});
  enable(core);
  AdminResult r = core.execute_admin(encode_identify(cns::identify_controller));
  REQUIRE(r.action == AdminResult::Action::send_data);
  IdentifyController c;
  std::memcpy(&c, r.data.data(), sizeof c);
  CHECK(c.mdts == 4);
  CHECK(c.sqes == 0x66);
  CHECK(c.cqes == 0x44);
  CHECK(c.nn == 1);
  CHECK(c.ver == 0x00010400);
  CHECK(c.frmw == 0b0011);  // one firmware slot, which is read-only
  CHECK(c.oncs == 0b0100);  // Dataset Management
  CHECK(c.kv_magic == kKvMagic);
  CHECK(std::string(c.sn.begin(), c.sn.end()) == "CSDSIM0001          ");
  r = core.execute_admin(encode_identify(cns::identify_namespace, NamespaceId{1}));
  IdentifyNamespace n;
  std::memcpy(&n, r.data.data(), sizeof n);
  CHECK(n.nsze == 1000);
  CHECK(n.lbaf[0].lbads == 9);
  r = core.execute_admin(encode_identify(cns::active_namespaces));
  std::uint32_t ids[2];
  std::memcpy(ids, r.data.data(), 8);
  CHECK(ids[0] == 1);
  CHECK(ids[1] == 0);
  r = core.execute_admin(encode_identify(cns::active_namespaces, NamespaceId{1}));
  std::memcpy(ids, r.data.data(), 8);
  CHECK(ids[0] == 0);
  r = core.execute_admin(encode_identify(cns::namespace_descriptors, NamespaceId{1}));
  CHECK(r.data[0] == std::byte{1});
  CHECK(r.data[1] == std::byte{8});
  CHECK(core.execute_admin(encode_identify(cns::identify_namespace, NamespaceId{2})).status ==
        status::invalid_namespace);
  CHECK(core.execute_admin(encode_identify(0x77)).status == status::invalid_field);
}

TEST_CASE("queue creation and deletion: every refusal") {
  ControllerCore core({.io_queues = 3, .queue_depth = 64});
  enable(core);
  const auto cq = [&](std::uint16_t id, std::uint32_t n, std::uint16_t vector, std::uint64_t prp = 0x30000) {
    return core.execute_admin(with_prp(encode_create_io_cq(QueueId{id}, n, InterruptVector{vector}), prp)).status;
  };
  const auto sq = [&](std::uint16_t id, std::uint32_t n, std::uint16_t cqid, std::uint64_t prp = 0x40000) {
    return core.execute_admin(with_prp(encode_create_io_sq(QueueId{id}, n, QueueId{cqid}), prp)).status;
  };
  CHECK(core.execute_admin(encode_set_number_of_queues(2)).dw0 == 0x0001'0001);
  CHECK(cq(0, 16, 0) == status::invalid_queue_id);
  CHECK(cq(3, 16, 0) == status::invalid_queue_id);  // two were granted
  CHECK(cq(1, 1, 0) == status::invalid_queue_size);
  CHECK(cq(1, 65, 0) == status::invalid_queue_size);
  CHECK(cq(1, 16, 4) == status::invalid_interrupt_vector);
  CHECK(cq(1, 16, 1, 0x30004) == status::prp_offset_invalid);
  CHECK(cq(1, 16, 1, 0) == status::invalid_field);
  SubmissionEntry scattered = with_prp(encode_create_io_cq(QueueId{1}, 16, InterruptVector{1}), 0x30000);
  scattered.cdw11 &= ~1u;
  CHECK(core.execute_admin(scattered).status == status::invalid_field);
  CHECK(cq(1, 64, 1).ok());
  CHECK(cq(1, 16, 1) == status::invalid_queue_id);  // exists

  CHECK(sq(1, 16, 0) == status::invalid_queue_id);
  CHECK(sq(1, 16, 9) == status::invalid_queue_id);
  CHECK(sq(1, 16, 2) == status::completion_queue_invalid);
  CHECK(sq(1, 1, 1) == status::invalid_queue_size);
  CHECK(sq(1, 16, 1, 0x40010) == status::prp_offset_invalid);
  CHECK(sq(1, 16, 1).ok());
  CHECK(sq(1, 16, 1) == status::invalid_queue_id);
  CHECK(sq(2, 16, 1).ok());

  CHECK(core.execute_admin(encode_set_number_of_queues(2)).status == status::command_sequence_error);
  CHECK(core.execute_admin(encode_delete_io_cq(QueueId{1})).status == status::invalid_queue_deletion);
  CHECK(core.execute_admin(encode_delete_io_cq(QueueId{0})).status == status::invalid_queue_id);
  CHECK(core.execute_admin(encode_delete_io_cq(QueueId{2})).status == status::invalid_queue_id);
  CHECK(core.execute_admin(encode_delete_io_sq(QueueId{0})).status == status::invalid_queue_id);
  CHECK(core.execute_admin(encode_delete_io_sq(QueueId{3})).status == status::invalid_queue_id);
  for (const std::uint16_t id : {std::uint16_t{1}, std::uint16_t{2}}) {
    const AdminResult r = core.execute_admin(encode_delete_io_sq(QueueId{id}));
    REQUIRE(r.action == AdminResult::Action::delete_sq);
    CHECK(core.execute_admin(encode_delete_io_sq(QueueId{id})).status == status::invalid_queue_id);
    core.finish_sq_deletion(QueueId{id});
  }
  CHECK(core.execute_admin(encode_delete_io_cq(QueueId{1})).status.ok());
  CHECK(core.cq(QueueId{1}) == nullptr);
}

TEST_CASE("queues need the entry sizes in CC") {
  ControllerCore core({});
  core.write(reg::aqa, 4, encode_aqa(7, 7));
  core.write(reg::asq, 8, 0x10000);
  core.write(reg::acq, 8, 0x20000);
  core.write(reg::cc, 4, Cc{.en = true}.encode());
  const SubmissionEntry e = with_prp(encode_create_io_cq(QueueId{1}, 16, InterruptVector{1}), 0x30000);
  CHECK(core.execute_admin(e).status == status::invalid_queue_size);
  // They may be set while enabled. One of them is not enough.
  core.write(reg::cc, 4, Cc{.en = true, .iosqes = 6}.encode());
  CHECK(core.execute_admin(e).status == status::invalid_queue_size);
  core.write(reg::cc, 4, Cc{.en = true, .iocqes = 4}.encode());
  CHECK(core.execute_admin(e).status == status::invalid_queue_size);
  core.write(reg::cc, 4, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode());
  CHECK(core.execute_admin(e).status.ok());
}

TEST_CASE("features") {
  ControllerCore core({.io_queues = 8});
  enable(core);
  CHECK(core.execute_admin(encode_get_features(feature::number_of_queues)).dw0 == 0x0007'0007);
  CHECK(core.execute_admin(encode_set_number_of_queues(100)).dw0 == 0x0007'0007);
  CHECK(core.execute_admin(encode_set_features(feature::number_of_queues, 0xFFFF)).status == status::invalid_field);
  CHECK(core.execute_admin(encode_set_features(feature::number_of_queues, 0x0003'0001)).dw0 == 0x0003'0003);
  CHECK(core.execute_admin(encode_set_features(feature::arbitration, 0x07)).status.ok());
  CHECK(core.execute_admin(encode_get_features(feature::arbitration)).dw0 == 0x07);
  CHECK(core.interrupt_coalescing().at_once());
  CHECK(core.execute_admin(encode_set_interrupt_coalescing(16, 3)).status.ok());
  CHECK(core.execute_admin(encode_get_features(feature::interrupt_coalescing)).dw0 == 0x030F);
  CHECK(core.interrupt_coalescing().completions == 16);
  CHECK(core.interrupt_coalescing().time == SimTime::microseconds(300));
  CHECK(core.execute_admin(encode_set_features(feature::write_atomicity, 1)).status == status::feature_not_changeable);
  CHECK(core.execute_admin(encode_set_features(0x55, 0)).status == status::invalid_field);
  CHECK(core.execute_admin(encode_get_features(0x00)).status == status::invalid_field);
  CHECK(core.execute_admin(encode_get_features(feature::volatile_write_cache)).status == status::invalid_field);
  SubmissionEntry save = encode_set_features(feature::arbitration, 1);
  save.cdw10 |= 1u << 31;
  CHECK(core.execute_admin(save).status == status::feature_not_saveable);
  SubmissionEntry saved = encode_get_features(feature::arbitration);
  saved.cdw10 |= 2u << 8;
  CHECK(core.execute_admin(saved).status == status::invalid_field);
  SubmissionEntry fused = encode_get_features(feature::arbitration);
  fused.flags = 1;
  CHECK(core.execute_admin(fused).status == status::invalid_field);
  CHECK(core.execute_admin({.opcode = 0x0D}).status == status::invalid_opcode);
}

}  // namespace test_controller_core

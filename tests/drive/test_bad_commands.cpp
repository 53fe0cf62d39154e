// Commands that a correct host would not send: each gets the status that NVMe or the KV contract names, changes
// nothing, and leaves a drive that works.
#include <catch2/catch.hpp>

#include <functional>

#include "tests/drive/victim.h"

namespace test_bad_commands {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
using nvme::PhysicalAddress;
using nvme::SubmissionEntry;
namespace status = nvme::status;
namespace nvm_opcode = nvme::nvm_opcode;

namespace {

using D = nvme::AttendDescriptor;

template <class Change>
D changed(D descriptor, Change change) {
  change(descriptor);
  return descriptor;
}

struct Bad {
  const char* name;
  nvme::Status expected;
  std::function<nvme::Status(Victim&)> send;
};

SubmissionEntry with_prps(SubmissionEntry e, std::uint64_t prp1, std::uint64_t prp2 = 0) {
  e.prp1 = prp1;
  e.prp2 = prp2;
  return e;
}
SubmissionEntry block_entry(std::uint8_t opcode, std::uint64_t lba, std::uint32_t blocks) {
  return nvme::encode_block_io(opcode, kNamespace, nvme::Lba{lba}, blocks);
}
template <class Change>
SubmissionEntry altered(SubmissionEntry e, Change change) {
  change(e);
  return e;
}

void run_all(const std::vector<Bad>& commands) {
  Victim v;
  for (const Bad& bad : commands) {
    CAPTURE(bad.name);
    const nvme::Status status = bad.send(v);
    CAPTURE(nvme::status_name(status), nvme::status_name(bad.expected));
    CHECK(status == bad.expected);
    v.require_alive();
  }
}

}  // namespace

TEST_CASE("bad addresses: PRPs, lists, memory that is not there") {
  const std::uint64_t nowhere = std::uint64_t{1} << 43;
  run_all({
      {"PRP1 not dword aligned", status::prp_offset_invalid,
       [](Victim& v) {
         return v.raw.run(with_prps(block_entry(nvm_opcode::read, 0, 1), v.scratch.address.value + 2));
       }},
      {"PRP1 zero", status::invalid_field,
       [](Victim& v) { return v.raw.run(with_prps(block_entry(nvm_opcode::read, 0, 1), 0)); }},
      {"PRP2 with an offset", status::prp_offset_invalid,
       [](Victim& v) {
         const std::uint64_t base = v.scratch.address.value;
         return v.raw.run(with_prps(block_entry(nvm_opcode::write, 0, 2), base, base + 4096 + 64));
       }},
      {"PRP2 missing", status::invalid_field,
       [](Victim& v) { return v.raw.run(with_prps(block_entry(nvm_opcode::write, 0, 2), v.scratch.address.value)); }},
      {"PRP list entry with an offset", status::prp_offset_invalid,
       [](Victim& v) {
         const std::uint64_t base = v.scratch.address.value;
         v.host.put(PhysicalAddress{base + 65536}, std::vector<std::uint64_t>{base + 4096, base + 8192 + 8});
         return v.raw.run(with_prps(block_entry(nvm_opcode::read, 0, 3), base, base + 65536));
       }},
      {"PRP list entry zero, of an append", status::invalid_field,
       [](Victim& v) {
         const std::uint64_t base = v.scratch.address.value;
         v.host.put(PhysicalAddress{base + 65536}, std::vector<std::uint64_t>{base + 4096, 0, base + 8192, base});
         return v.raw.run(with_prps(v.append_entry(1, 1, kTokens, 70, 0, 4), base, base + 65536));
       }},
      {"PRP list not qword aligned", status::prp_offset_invalid,
       [](Victim& v) {
         const std::uint64_t base = v.scratch.address.value;
         return v.raw.run(with_prps(block_entry(nvm_opcode::read, 0, 3), base, base + 65536 + 4));
       }},
      {"PRP list in memory that is not there", status::data_transfer_error,
       [=](Victim& v) {
         return v.raw.run(with_prps(block_entry(nvm_opcode::read, 0, 3), v.scratch.address.value, nowhere));
       }},
      {"read into memory that is not there", status::data_transfer_error,
       [=](Victim& v) { return v.raw.run(with_prps(block_entry(nvm_opcode::read, 2, 1), nowhere)); }},
      {"write from memory that is not there", status::data_transfer_error,
       [=](Victim& v) { return v.raw.run(with_prps(block_entry(nvm_opcode::write, 2, 1), nowhere)); }},
      {"deallocate from memory that is not there", status::data_transfer_error,
       [=](Victim& v) { return v.raw.run(with_prps(nvme::encode_deallocate(kNamespace, 1), nowhere)); }},
      {"append from memory that is not there", status::data_transfer_error,
       [=](Victim& v) { return v.raw.run(with_prps(v.append_entry(1, 1, kTokens, 8, 0, 4), nowhere)); }},
      {"attend with descriptors that are not there", status::data_transfer_error,
       [=](Victim& v) { return v.raw.run(with_prps(v.attend_entry({heads_of(1, kTokens - 1, 0, 4)}), nowhere)); }},
      {"append whose second page is not there", status::data_transfer_error,
       [=](Victim& v) {
         return v.raw.run(with_prps(v.append_entry(1, 1, kTokens, 32, 0, 4), v.scratch.address.value, nowhere));
       }},
      {"fetch whose index list is there and whose rows are not", status::data_transfer_error,
       [=](Victim& v) {
         const auto e = v.fetch_entry(heads_of(1, 0, 0, 4), std::vector<std::uint32_t>(32, 5));
         return v.raw.run(with_prps(e, v.scratch.address.value, nowhere));
       }},
  });
}

TEST_CASE("bad block commands") {
  run_all({
      {"unknown opcode", status::invalid_opcode,
       [](Victim& v) { return v.run(SubmissionEntry{.opcode = 0x5A, .nsid = 1}); }},
      {"unknown vendor opcode", status::invalid_opcode,
       [](Victim& v) { return v.run(SubmissionEntry{.opcode = 0x89, .nsid = 1}); }},
      {"fused", status::invalid_field,
       [](Victim& v) {
         return v.run(altered(block_entry(nvm_opcode::read, 0, 1), [](auto& e) { e.flags = 1; }), Bytes::kib(4));
       }},
      {"namespace 2", status::invalid_namespace,
       [](Victim& v) {
         return v.run(altered(block_entry(nvm_opcode::write, 2, 1), [](auto& e) { e.nsid = 2; }), Bytes::kib(4));
       }},
      {"namespace 0, of a KV command", status::invalid_namespace,
       [](Victim& v) { return v.run(altered(DriveHost::free_entry(1), [](auto& e) { e.nsid = 0; })); }},
      {"read behind the end", status::lba_out_of_range,
       [](Victim& v) {
         return v.run(block_entry(nvm_opcode::read, v.host.driver().name_space().nsze, 1), Bytes::kib(4));
       }},
      {"write across the end", status::lba_out_of_range,
       [](Victim& v) {
         return v.run(block_entry(nvm_opcode::write, v.host.driver().name_space().nsze - 1, 2), Bytes::kib(8));
       }},
      {"LBA near 2^64", status::lba_out_of_range,
       [](Victim& v) { return v.run(block_entry(nvm_opcode::write, ~std::uint64_t{0}, 2), Bytes::kib(8)); }},
      {"transfer larger than mdts", status::invalid_field,
       [](Victim& v) { return v.run(block_entry(nvm_opcode::read, 0, 513), Bytes::kib(4) * 513); }},
      {"deallocate across the end, after a good range", status::lba_out_of_range,
       [](Victim& v) {
         const std::uint64_t end = v.host.driver().name_space().nsze;
         v.host.put(v.scratch.address, std::vector<nvme::DsmRange>{{0, 3, 2}, {0, 2, end - 1}});
         return v.run(nvme::encode_deallocate(kNamespace, 2), Bytes{32});
       }},
      {"deallocate at an LBA whose byte address wraps", status::lba_out_of_range,
       [](Victim& v) {
         v.host.put(v.scratch.address, std::vector<nvme::DsmRange>{{0, 3, (std::uint64_t{1} << 52) + 2}});
         return v.run(nvme::encode_deallocate(kNamespace, 1), Bytes{16});
       }},
  });
}

TEST_CASE("bad KV commands: create, free and append") {
  run_all({
      {"create of a live sequence", status::kv_sequence_exists,
       [](Victim& v) { return v.run(DriveHost::create_entry(1, 2, 4, 16)); }},
      {"create with an unknown flag", status::invalid_field,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 16, 1u << 3)); }},
      {"create with rows of few bits without scales", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 16, nvme::create_flag::bits_8)); }},
      {"create without layers", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 0, 4, 16)); }},
      {"create with rows larger than a page", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 1024)); }},
      {"create with data", status::kv_shape_mismatch,
       [](Victim& v) { return v.run(altered(DriveHost::create_entry(5, 2, 4, 16), [](auto& e) { e.cdw10 = 4; })); }},
      {"free of an unknown sequence", status::kv_unknown_sequence,
       [](Victim& v) { return v.run(DriveHost::free_entry(99)); }},
      {"free with a reserved field", status::invalid_field,
       [](Victim& v) { return v.run(altered(DriveHost::free_entry(1), [](auto& e) { e.cdw14 = 1; })); }},

      {"append to an unknown sequence", status::kv_unknown_sequence,
       [](Victim& v) { return v.run(v.append_entry(99, 1, 0, 1, 0, 4)); }},
      {"append to a layer beyond", status::kv_bad_layer,
       [](Victim& v) { return v.run(v.append_entry(1, 2, 0, 1, 0, 4)); }},
      {"append to a head beyond", status::kv_bad_head,
       [](Victim& v) { return v.run(v.append_entry(1, 1, kTokens, 1, 4, 1)); }},
      {"append to heads across the end", status::kv_bad_head,
       [](Victim& v) { return v.run(v.append_entry(1, 1, kTokens, 1, 2, 3)); }},
      {"append with a gap", status::kv_bad_token,
       [](Victim& v) { return v.run(v.append_entry(1, 1, kTokens + 1, 1, 0, 4)); }},
      {"append that overlaps", status::kv_bad_token,
       [](Victim& v) { return v.run(v.append_entry(1, 1, kTokens - 1, 2, 0, 4)); }},
      {"append of tokens to 2^32", status::kv_bad_token,
       [](Victim& v) { return v.run(v.append_entry(1, 1, 0xFFFF'FFFF, 1, 0, 4)); }},
      {"append without tokens", status::kv_bad_token,
       [](Victim& v) {
         return v.run(altered(v.append_entry(1, 1, kTokens, 1, 0, 4), [](auto& e) { e.cdw13 &= 0xFFFF; }));
       }},
      {"append of another d", status::kv_shape_mismatch,
       [](Victim& v) { return v.run(v.append_entry(1, 1, kTokens, 1, 0, 4, 32)); }},
      {"append whose NDT is no whole number of rows", status::kv_shape_mismatch,
       [](Victim& v) { return v.run(altered(v.append_entry(1, 1, kTokens, 1, 0, 4), [](auto& e) { e.cdw10 += 2; })); }},
      {"append with NDM", status::invalid_field,
       [](Victim& v) { return v.run(altered(v.append_entry(1, 1, kTokens, 1, 0, 4), [](auto& e) { e.cdw11 = 1; })); }},
      {"append larger than mdts", status::invalid_field,
       [](Victim& v) { return v.run(v.append_entry(1, 0, 0, 9000, 0, 4)); }},
  });
}

TEST_CASE("bad KV commands: attend") {
  const D good = heads_of(1, kTokens - 1, 0, 4);
  run_all({
      {"attend to an unknown sequence", status::kv_unknown_sequence,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(99, 0, 0, 4)})); }},
      {"attend to an unknown sequence in the second descriptor, append in the first", status::kv_unknown_sequence,
       [](Victim& v) {
         return v.run(v.attend_entry({heads_of(1, kTokens, 0, 4, true), heads_of(99, 0, 0, 4)}));
       }},
      {"attend at a layer beyond", status::kv_bad_layer,
       [=](Victim& v) { return v.run(v.attend_entry({good}, AttendMethod::dense, 16, 2)); }},
      {"attend to heads across the end", status::kv_bad_head,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens - 1, 3, 2)})); }},
      {"attend to no heads", status::kv_bad_head,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens - 1, 0, 0)})); }},
      {"attend at a token that is not there", status::kv_bad_token,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens, 0, 4)})); }},
      {"attend at an older token", status::kv_bad_token,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens - 2, 0, 4)})); }},
      {"attend that appends with a gap", status::kv_bad_token,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens + 1, 0, 4, true)})); }},
      {"attend that appends what is there", status::kv_bad_token,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, kTokens - 1, 0, 4, true)})); }},
      {"attend to an empty head at token 2^32 - 1", status::kv_bad_token,
       [](Victim& v) { return v.run(v.attend_entry({heads_of(1, 0xFFFF'FFFF, 0, 4)}, AttendMethod::dense, 16, 0)); }},
      {"attend that appends to heads which another descriptor attends to as they were", status::kv_bad_token,
       [](Victim& v) {
         return v.run(v.attend_entry({heads_of(1, kTokens, 0, 4, true), heads_of(1, kTokens - 1, 2, 1)}));
       }},
      {"attend that appends to a head twice", status::kv_bad_token,
       [](Victim& v) {
         return v.run(v.attend_entry({heads_of(1, kTokens, 1, 3, true), heads_of(1, kTokens, 0, 2, true)}));
       }},
      {"attend with another d", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.attend_entry({good}, AttendMethod::dense, 32)); }},
      {"attend with a wrong NDT", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(altered(v.attend_entry({good}), [](auto& e) { e.cdw10 += 16; })); }},
      {"attend with total_heads too large", status::kv_shape_mismatch,
       [=](Victim& v) {
         v.host.put(v.scratch.address, std::vector{good});
         return v.run(nvme::encode(kNamespace, nvme::KvAttend{LayerId{1}, 1, AttendMethod::dense, 1, 16, 5}));
       }},
      {"attend with an unknown method", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(altered(v.attend_entry({good}), [](auto& e) { e.cdw13 |= 4; })); }},
      {"attend with CDW15", status::invalid_field,
       [=](Victim& v) { return v.run(altered(v.attend_entry({good}), [](auto& e) { e.cdw15 = 1u << 16; })); }},
      {"attend with an unknown flag", status::invalid_field,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.flags = 4; })})); }},
      {"attend with a reserved descriptor field", status::invalid_field,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.reserved_28 = 1; })})); }},
      {"dense with r", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.r = 4; })})); }},
      {"dense with k", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.k = 4; })})); }},
      {"dense with l", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.l = 4; })})); }},
      {"SparF with r = 0", status::kv_bad_parameters,
       [](Victim& v) {
         return v.run(v.attend_entry({sparse_heads_of(1, kTokens - 1, 0, 4, 0, 9, 1)}, AttendMethod::sparf));
       }},
      {"SparF with r > d", status::kv_bad_parameters,
       [](Victim& v) {
         return v.run(v.attend_entry({sparse_heads_of(1, kTokens - 1, 0, 4, 17, 9, 1)}, AttendMethod::sparf));
       }},
      {"SparF with k = 0", status::kv_bad_parameters,
       [](Victim& v) {
         return v.run(v.attend_entry({sparse_heads_of(1, kTokens - 1, 0, 4, 8, 0, 0)}, AttendMethod::sparf));
       }},
      {"SparF with l > k", status::kv_bad_parameters,
       [](Victim& v) {
         return v.run(v.attend_entry({sparse_heads_of(1, kTokens - 1, 0, 4, 8, 9, 10)}, AttendMethod::sparf));
       }},
  });
}

TEST_CASE("bad KV commands: score and fetch") {
  const D good = heads_of(1, kTokens - 1, 0, 4);
  const D rows = heads_of(1, 0, 0, 4);
  run_all({
      {"score of an unknown sequence", status::kv_unknown_sequence,
       [](Victim& v) { return v.run(v.score_entry(heads_of(99, kTokens - 1, 0, 4), 4 * kTokens)); }},
      {"score at a token that is not there", status::kv_bad_token,
       [](Victim& v) { return v.run(v.score_entry(heads_of(1, kTokens, 0, 4), 4 * (kTokens + 1))); }},
      {"score of a range that ends before it begins", status::kv_bad_token,
       [=](Victim& v) {
         return v.run(v.score_entry(changed(good, [](D& d) { d.first_token = kTokens; }), 4 * kTokens));
       }},
      {"score of a range that ends beyond 2^32", status::kv_bad_token,
       [=](Victim& v) {
         return v.run(v.score_entry(changed(good, [](D& d) { d.token = d.first_token = 0xFFFF'FFFF; }), 4));
       }},
      {"score of a range with the total of all tokens", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.score_entry(changed(good, [](D& d) { d.first_token = 1; }), 4 * kTokens)); }},
      {"one list with the total of four", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(altered(v.score_entry(good, 4 * kTokens), [](auto& e) { e.cdw13 |= 0x10; })); }},
      {"score in INT8 by an engine without it", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(altered(v.score_entry(good, 4 * kTokens), [](auto& e) { e.cdw13 |= 1; })); }},
      {"score in INT4 by an engine without it", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(altered(v.score_entry(good, 4 * kTokens), [](auto& e) { e.cdw13 |= 2; })); }},
      {"score with a reserved descriptor field", status::invalid_field,
       [=](Victim& v) { return v.run(v.score_entry(changed(good, [](D& d) { d.reserved_28 = 1; }), 4 * kTokens)); }},
      {"score with a wrong total", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.score_entry(good, 4 * kTokens - 1)); }},
      {"score without scores", status::kv_bad_token, [=](Victim& v) { return v.run(v.score_entry(good, 0)); }},
      {"score with another d", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.score_entry(good, 4 * kTokens, 8)); }},
      {"score at a layer beyond", status::kv_bad_layer,
       [=](Victim& v) { return v.run(v.score_entry(good, 4 * kTokens, 16, 7)); }},
      {"score with the append flag", status::invalid_field,
       [=](Victim& v) { return v.run(v.score_entry(changed(good, [](D& d) { d.flags = 1; }), 4 * kTokens)); }},
      {"score with r", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.score_entry(changed(good, [](D& d) { d.r = 1; }), 4 * kTokens)); }},
      {"score in a mode that no version has", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(altered(v.score_entry(good, 4 * kTokens), [](auto& e) { e.cdw13 |= 3; })); }},

      {"fetch from an unknown sequence", status::kv_unknown_sequence,
       [](Victim& v) {
         return v.run(v.fetch_entry(heads_of(99, 0, 0, 4), {0, 1}));
       }},
      {"fetch of a token that is not there", status::kv_bad_token,
       [=](Victim& v) {
         return v.run(v.fetch_entry(rows, {0, kTokens, 1}));
       }},
      {"fetch of token 2^32 - 1", status::kv_bad_token,
       [=](Victim& v) { return v.run(v.fetch_entry(rows, {0xFFFF'FFFF})); }},
      {"fetch with other head counts in command and descriptor", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.fetch_entry(rows, {0}, 16, 1, 3)); }},
      {"fetch with another d", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(v.fetch_entry(rows, {0}, 32)); }},
      {"fetch with a wrong NDT", status::kv_shape_mismatch,
       [=](Victim& v) { return v.run(altered(v.fetch_entry(rows, {0}), [](auto& e) { e.cdw10 -= 16; })); }},
      {"fetch from heads beyond", status::kv_bad_head,
       [](Victim& v) { return v.run(v.fetch_entry(heads_of(1, 0, 4, 1), {0})); }},
      {"fetch with a first token", status::invalid_field,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.first_token = 5; }), {0})); }},
      {"fetch with a flag", status::invalid_field,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.flags = 1; }), {0})); }},
      {"fetch with k", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.k = 1; }), {0})); }},
      {"fetch with a token in the descriptor", status::kv_bad_token,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.token = 1; }), {0})); }},
  });
}

}  // namespace test_bad_commands

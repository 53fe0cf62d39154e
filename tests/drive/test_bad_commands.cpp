// Commands that a correct host would not send: each gets the status that NVMe or the KV contract names, changes
// nothing, and leaves a drive that works.
#include <catch2/catch.hpp>

#include <functional>

#include "tests/drive/raw_queue.h"

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
using nvme::PhysicalAddress;
using nvme::SubmissionEntry;
namespace status = nvme::status;
namespace nvm_opcode = nvme::nvm_opcode;

namespace {

constexpr std::uint32_t kTokens = 100;

/// A drive that holds sequence 1 (2 layers, 4 heads of d = 16, layer 1 with 100 tokens) and some blocks.
struct Victim {
  DriveHost host;
  RawQueue raw{host};
  nvme::Segment scratch = host.buffer(Bytes::mib(8));  ///< a good buffer for bad commands
  std::vector<Half> good_output;
  std::uint64_t dram_used = 0;

  explicit Victim(const csd_model::DriveConfig& config = tiny_drive()) : host(config) {
    REQUIRE(host.create(1, 2, 4) == status::success);
    REQUIRE(host.append(1, 1, 0, kTokens, 0, 4) == status::success);
    REQUIRE(host.run(host.send_write(2, 3, std::byte{0x33})) == status::success);
    const auto a = host.attend(1, {heads_of(1, kTokens - 1, 0, 4)});
    REQUIRE(host.error(a) < kOutputTolerance);
    good_output = host.output(a);
    dram_used = host.drive().dram().used().value;
  }

  /// The entry with contiguous PRPs for `size` bytes of scratch memory; lists from the driver's own builder.
  nvme::Status run(const SubmissionEntry& entry, Bytes size) { return host.run(entry, {scratch.address, size}); }
  nvme::Status run(const SubmissionEntry& entry) { return run(entry, Bytes{std::uint64_t{entry.cdw10} * 4}); }

  void require_alive() {
    const auto a = host.attend(1, {heads_of(1, kTokens - 1, 0, 4)});
    REQUIRE(a.sent->status == status::success);
    REQUIRE(host.output(a) == good_output);
    const auto s = host.attend(1, {sparse_heads_of(1, kTokens - 1, 0, 4, 8, 40, 10)}, AttendMethod::sparf);
    REQUIRE(s.sent->status == status::success);
    REQUIRE(host.error(s) < kOutputTolerance);
    REQUIRE(host.run(host.send_write(9, 1, std::byte{0x44})) == status::success);
    const SentPtr read = host.send_read(2, 8);
    REQUIRE(host.run(read) == status::success);
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

  SubmissionEntry append_entry(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_token,
                               std::uint32_t tokens, std::uint32_t first_head, std::uint32_t heads,
                               std::uint16_t d = 16) {
    return nvme::encode(kNamespace, DriveHost::append_command(sequence, layer, first_token, tokens, first_head, heads),
                        d);
  }

  /// Writes the descriptors into the scratch buffer; the entry of an attend (or, with `scores`, a score) with them.
  SubmissionEntry attend_entry(const std::vector<nvme::AttendDescriptor>& descriptors,
                               AttendMethod method = AttendMethod::dense, std::uint16_t d = 16,
                               std::uint32_t layer = 1) {
    nvme::KvAttend c{LayerId{layer}, static_cast<std::uint16_t>(descriptors.size()), method, 1, d, 0};
    for (const auto& x : descriptors) c.total_heads += x.head_count;
    if (c.total_heads < c.n) c.total_heads = c.n;
    host.put(scratch.address, descriptors);
    return nvme::encode(kNamespace, c);
  }
  SubmissionEntry score_entry(const nvme::AttendDescriptor& descriptor, std::uint32_t scores, std::uint16_t d = 16,
                              std::uint32_t layer = 1) {
    host.put(scratch.address, std::vector{descriptor});
    return nvme::encode(kNamespace, nvme::KvScore{LayerId{layer}, 1, AttendMethod::dense, 1, d,
                                                  std::max<std::uint32_t>(1, descriptor.head_count), scores});
  }
  SubmissionEntry fetch_entry(const nvme::AttendDescriptor& descriptor, const std::vector<std::uint32_t>& tokens,
                              std::uint16_t d = 16, std::uint32_t layer = 1,
                              std::optional<std::uint16_t> heads = std::nullopt) {
    const nvme::KvFetch c{LayerId{layer}, d, static_cast<std::uint32_t>(tokens.size()),
                          heads.value_or(descriptor.head_count)};
    host.put(scratch.address, std::vector{descriptor});
    host.put(scratch.address + nvme::fetch_layout(c).tokens, tokens);
    return nvme::encode(kNamespace, c);
  }
};

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
       [](Victim& v) { return v.run(SubmissionEntry{.opcode = 0x85, .nsid = 1}); }},
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

TEST_CASE("bad KV commands: sequences, layers, heads, tokens, shapes") {
  const D good = heads_of(1, kTokens - 1, 0, 4);
  run_all({
      {"create of a live sequence", status::kv_sequence_exists,
       [](Victim& v) { return v.run(DriveHost::create_entry(1, 2, 4, 16)); }},
      {"create with an unknown flag", status::invalid_field,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 16, 2)); }},
      {"create without layers", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 0, 4, 16)); }},
      {"create with rows larger than a page", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 1024)); }},
      {"create with rows that do not divide a page", status::kv_bad_parameters,
       [](Victim& v) { return v.run(DriveHost::create_entry(5, 2, 4, 24)); }},
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
       [=](Victim& v) { return v.run(altered(v.attend_entry({good}), [](auto& e) { e.cdw13 |= 2; })); }},
      {"attend with CDW15", status::invalid_field,
       [=](Victim& v) { return v.run(altered(v.attend_entry({good}), [](auto& e) { e.cdw15 = 1; })); }},
      {"attend with an unknown flag", status::invalid_field,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.flags = 2; })})); }},
      {"attend with a reserved descriptor field", status::invalid_field,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.reserved_28 = 1; })})); }},
      {"dense with r", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.r = 4; })})); }},
      {"dense with k", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.attend_entry({changed(good, [](D& d) { d.k = 4; })})); }},
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
      {"score by SparF", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(altered(v.score_entry(good, 4 * kTokens), [](auto& e) { e.cdw13 |= 1; })); }},

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
      {"fetch with a reserved descriptor field", status::invalid_field,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.reserved_24 = 5; }), {0})); }},
      {"fetch with a flag", status::invalid_field,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.flags = 1; }), {0})); }},
      {"fetch with k", status::kv_bad_parameters,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.k = 1; }), {0})); }},
      {"fetch with a token in the descriptor", status::kv_bad_token,
       [=](Victim& v) { return v.run(v.fetch_entry(changed(rows, [](D& d) { d.token = 1; }), {0})); }},
  });
}

TEST_CASE("bad doorbells are counted and change nothing") {
  Victim v;
  const auto& stats = v.host.drive().controller().core().stats();
  REQUIRE(stats.invalid_doorbell_value == 0);
  REQUIRE(stats.invalid_doorbell_register == 0);
  const nvme::QueueId id = v.raw.id();
  // A tail at and beyond the size of the queue, and a head that no completion has reached.
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), RawQueue::kDepth);
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), 0xFFFF'FFFF);
  v.raw.ring(nvme::cq_head_doorbell(id, 0), v.raw.tail() + 1);
  DriveHost::settle();
  CHECK(stats.invalid_doorbell_value == 3);
  v.require_alive();

  // Queue 4 is deleted: its doorbells are those of a queue that does not exist, and so are those behind the last.
  REQUIRE(v.host.run(nvme::encode_delete_io_sq(id), {}, 0) == status::success);
  v.raw.ring(nvme::sq_tail_doorbell(id, 0), 1);
  v.raw.ring(nvme::sq_tail_doorbell(nvme::QueueId{200}, 0), 1);
  v.raw.ring(nvme::cq_head_doorbell(nvme::QueueId{5}, 0), 1);
  v.raw.ring(nvme::sq_tail_doorbell(nvme::QueueId{1}, 0) + 2, 1);
  CHECK(v.raw.ring(v.host.drive().controller().core().bar_size().value, 1) != tlm::TLM_OK_RESPONSE);
  DriveHost::settle();
  CHECK(stats.invalid_doorbell_register == 3);
  v.require_alive();
}

TEST_CASE("out of controller DRAM: nothing changes, and what was there still answers the same") {
  auto config = tiny_drive();
  config.kv.tail = ftl::TailPolicy::dram;
  config.dram = Bytes::kib(48);
  Victim v(config);
  REQUIRE(v.run(DriveHost::create_entry(2, 1, 400, 16)) == status::success);
  v.require_alive();
  // 400 heads hold K twice and V once, and the mean: 160 bytes a head and token.
  CHECK(v.run(v.append_entry(2, 0, 0, 1, 0, 400)) == status::kv_out_of_dram);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  CHECK(v.run(v.attend_entry({heads_of(2, 0, 0, 400, true)}, AttendMethod::dense, 16, 0)) == status::kv_out_of_dram);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  // What fits still goes in.
  CHECK(v.run(v.append_entry(2, 0, 0, 1, 0, 10)) == status::success);
  CHECK(v.run(DriveHost::free_entry(2)) == status::success);
  v.require_alive();
}

TEST_CASE("out of flash: nothing changes, and free makes room") {
  auto config = tiny_drive();
  config.geometry.blocks_per_plane = 7;
  config.kv_share = 0;  // one block a plane: 256 pages for the cache
  Victim v(config);
  REQUIRE(v.run(DriveHost::create_entry(2, 1, 8, 16)) == status::success);
  // 8 heads of 640 tokens are 8 * (2 * 20 + 2 * 10) = 480 pages.
  CHECK(v.run(v.append_entry(2, 0, 0, 640, 0, 8)) == status::kv_out_of_flash);
  v.require_alive();
  CHECK(v.host.tokens_of(2) == 0);
  std::uint32_t fitted = 0;
  while (v.run(v.append_entry(2, 0, 32 * fitted, 32, 0, 8)) == status::success) ++fitted;
  CHECK(fitted == 9);  // 16 pages a group, 16 more every second time, beside the 32 of sequence 1
  CHECK(v.host.output(v.host.attend(1, {heads_of(1, kTokens - 1, 0, 4)})) == v.good_output);
  // A block is erased when it is full and none of its pages is wanted: with sequence 1 gone they all are.
  CHECK(v.run(DriveHost::free_entry(2)) == status::success);
  CHECK(v.run(DriveHost::free_entry(1)) == status::success);
  CHECK(v.host.drive().dram().used() == Bytes{});
}

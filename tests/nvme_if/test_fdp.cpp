// Flexible Data Placement as a host sees it: endurance group, features, namespaces, identifiers, events and log pages.
#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "nvme_if/core/wire.h"
#include "nvme_if/spec/fdp.h"
#include "tests/nvme_if/platform.h"

namespace test_fdp {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

constexpr std::uint32_t kAll = 0xFFFF'FFFF;
/// Five reclaim groups take three bits of an identifier: groups 5 to 7 are not there.
const FdpParams kFdp{.reclaim_groups = 5, .handles = 4, .unit = Bytes::mib(64), .placement_handles = {2, 0, 3}};

PlatformParams params(const FdpParams& fdp = kFdp) {
  PlatformParams p;
  p.controller.controller.fdp = fdp;
  return p;
}

struct Placed : EnabledPlatform {
  explicit Placed(const FdpParams& fdp = kFdp) : EnabledPlatform(params(fdp)) { raw.create_queue(1, 8); }
  CompletionEntry run(std::uint16_t queue, SubmissionEntry e) {
    e.prp1 = buffer.value;
    return raw.execute(queue, e);
  }
  template <class T>
  T answer(std::size_t offset = 0) {
    T data;
    std::memcpy(&data, host_at(buffer + Bytes{offset}), sizeof data);
    return data;
  }
  template <class T>
  void give(const T& data) {
    std::memcpy(host_at(buffer), &data, sizeof data);
  }
  template <class T>
  T identify(std::uint8_t cns, std::uint32_t nsid = 0) {
    REQUIRE(run(0, encode_identify(cns, NamespaceId{nsid})).code().ok());
    return answer<T>();
  }
  Status log(std::uint8_t page, std::uint32_t bytes = 4096, std::uint32_t offset = 0, std::uint8_t specific = 0,
             std::uint16_t group = 1) {
    return run(0, {.opcode = admin_opcode::get_log_page,
                   .nsid = kAll,
                   .cdw10 = page | std::uint32_t{specific} << 8 | (bytes / 4 - 1) << 16,
                   .cdw11 = std::uint32_t{group} << 16,
                   .cdw12 = offset})
        .code();
  }
  CompletionEntry write(std::uint8_t type, std::uint16_t identifier) {
    SubmissionEntry e = encode_block_io(nvm_opcode::write, NamespaceId{1}, Lba{0}, 1);
    e.cdw12 |= encode_directive_type(type);
    e.cdw13 = std::uint32_t{identifier} << 16;
    handler.hold = true;
    raw.put(1, [&] {
      e.prp1 = buffer.value;
      return e;
    }());
    raw.ring_sq(1);
    run_a_while();
    seen = {};
    if (!handler.held.empty()) seen = *handler.held.front()->as<BlockWrite>();
    handler.release();
    run_a_while();
    const auto done = raw.reap(1);
    raw.ring_cq(1);
    REQUIRE(done.size() == 1);
    return done[0];
  }
  Status keep_events(std::uint16_t placement_handle, const std::vector<std::uint8_t>& types, bool keep = true) {
    std::memcpy(host_at(buffer), types.data(), types.size());
    return run(0, {.opcode = admin_opcode::set_features,
                   .nsid = 1,
                   .cdw10 = feature::fdp_events,
                   .cdw11 = placement_handle | static_cast<std::uint32_t>(types.size()) << 16,
                   .cdw12 = keep ? 1u : 0u})
        .code();
  }
  std::vector<FdpEvent> events(bool of_host) {
    REQUIRE(log(log_page::fdp_events, 4096, 0, of_host ? 1 : 0).ok());
    std::vector<FdpEvent> all(answer<FdpEvents>().events);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = answer<FdpEvent>(64 * (i + 1));
    return all;
  }
  Status configure(bool on, std::uint8_t configuration = 0, std::uint16_t group = 1) {
    return run(0, {.opcode = admin_opcode::set_features,
                   .cdw10 = feature::fdp,
                   .cdw11 = group,
                   .cdw12 = fdp_config(on, configuration)})
        .code();
  }
  CompletionEntry config() { return run(0, {.opcode = admin_opcode::get_features, .cdw10 = feature::fdp, .cdw11 = 1}); }
  Status delete_namespace(std::uint32_t nsid = 1) {
    return run(0, {.opcode = admin_opcode::namespace_management, .nsid = nsid, .cdw10 = 1}).code();
  }
  CompletionEntry create_namespace(const NamespaceToCreate& wanted) {
    give(wanted);
    return run(0, {.opcode = admin_opcode::namespace_management});
  }
  Status attach(bool on, std::uint16_t id = 0) {
    give(std::array<std::uint16_t, 2048>{1, id});
    return run(0, {.opcode = admin_opcode::namespace_attachment, .nsid = 1, .cdw10 = on ? 0u : 1u}).code();
  }
  static NamespaceToCreate wanted(std::uint64_t blocks, std::vector<std::uint16_t> handles) {
    NamespaceToCreate w;
    w.nsze = w.ncap = blocks;
    w.endgid = 1;
    w.placement_handles = static_cast<std::uint16_t>(handles.size());
    std::ranges::copy(handles, w.handles.begin());
    return w;
  }

  PhysicalAddress buffer = raw.page();
  BlockWrite seen;  ///< the last write, as the firmware gets it
};

}  // namespace

TEST_CASE("Identify, VS and the pages of what is supported tell the same story") {
  Placed p;
  CHECK(p.raw.read32(reg::vs) == kVersion_2_0);
  const auto controller = p.identify<IdentifyController>(cns::identify_controller);
  CHECK(controller.ver == kVersion_2_0);
  CHECK(controller.ctratt == (1u << 4 | 1u << 19));
  CHECK(controller.endgidmax == 1);
  CHECK(controller.oacs == (1u << 3 | 1u << 5));
  CHECK(controller.lpa == 0x26);
  CHECK(p.identify<IdentifyNamespace>(cns::identify_namespace, 1).endgid == 1);
  CHECK(p.identify<IndependentNamespace>(cns::independent_namespace, 1).endgid == 1);
  CHECK(p.identify<std::array<std::uint16_t, 2048>>(cns::endurance_groups)[1] == 1);

  // Every page that is said to be there is there, and no other.
  REQUIRE(p.log(log_page::supported_log_pages, 1024).ok());
  const auto pages = p.answer<std::array<std::uint32_t, 256>>();
  for (std::uint32_t page = 0; page < 256; ++page) {
    INFO("page " << page);
    CHECK(p.log(static_cast<std::uint8_t>(page)).ok() == ((pages[page] & 1) != 0));
  }
  // The same of the features.
  REQUIRE(p.log(log_page::features_supported, 1024).ok());
  const auto features = p.answer<std::array<std::uint32_t, 256>>();
  for (std::uint32_t fid = 0; fid < 256; ++fid) {
    INFO("feature " << fid);
    const std::uint32_t of_group = fid == feature::fdp ? 1 : fid == feature::fdp_events ? 5u << 16 : 0;
    const Status got =
        p.run(0, {.opcode = admin_opcode::get_features, .nsid = 1, .cdw10 = fid, .cdw11 = of_group}).code();
    CHECK(got.ok() == ((features[fid] & 1) != 0));
  }
  // And of the commands: only those that are not there are invalid_opcode.
  REQUIRE(p.log(log_page::commands_supported).ok());
  const auto commands = p.answer<std::array<std::uint32_t, 1024>>();
  for (std::uint32_t opcode = 0; opcode < 256; ++opcode) {
    if (opcode == admin_opcode::async_event_request) continue;
    INFO("opcode " << opcode);
    const Status admin = p.run(0, {.opcode = static_cast<std::uint8_t>(opcode), .nsid = 7, .cdw10 = 0xEE}).code();
    CHECK((admin != status::invalid_opcode) == ((commands[opcode] & 1) != 0));
    const Status io = p.run(1, {.opcode = static_cast<std::uint8_t>(opcode), .nsid = 7}).code();
    CHECK((io != status::invalid_opcode) == ((commands[256 + opcode] & 1) != 0));
  }
}

TEST_CASE("a drive without Flexible Data Placement says nothing of it") {
  EnabledPlatform p;
  p.raw.create_queue(1, 8);
  const PhysicalAddress page = p.raw.page();
  CHECK(p.raw.read32(reg::vs) == kVersion_1_4);
  for (const std::uint8_t log : {log_page::fdp_configurations, log_page::fdp_statistics, log_page::endurance_group})
    CHECK(p.raw.admin({.opcode = admin_opcode::get_log_page, .prp1 = page.value, .cdw10 = log, .cdw11 = 1u << 16}) ==
          status::invalid_log_page);
  for (const std::uint8_t fid : {feature::fdp, feature::fdp_events})
    CHECK(p.raw.admin({.opcode = admin_opcode::get_features, .nsid = 1, .cdw10 = fid, .cdw11 = 1}) ==
          status::invalid_field);
  for (const std::uint8_t opcode : {admin_opcode::namespace_management, admin_opcode::directive_receive})
    CHECK(p.raw.admin({.opcode = opcode, .nsid = 1, .prp1 = page.value}) == status::invalid_opcode);
  for (const std::uint8_t opcode : {nvm_opcode::io_management_receive, nvm_opcode::io_management_send})
    CHECK(p.raw.execute(1, {.opcode = opcode, .nsid = 1, .prp1 = page.value, .cdw10 = 1}).code() ==
          status::invalid_opcode);
}

TEST_CASE("the configuration: groups, handles with their type, and the unit") {
  FdpParams fdp = kFdp;
  fdp.persistently_isolated = GENERATE(false, true);
  Placed p(fdp);
  REQUIRE(p.log(log_page::fdp_configurations).ok());
  const auto header = p.answer<FdpConfigurations>();
  CHECK(header.configurations == 0);
  CHECK(header.size == 16 + 80);
  const auto config = p.answer<FdpConfigurationDescriptor>(16);
  CHECK(config.size == 80);  // 64 and four handles
  CHECK(config.attributes == (3 | kFdpValid));
  CHECK(config.reclaim_groups == 5);
  CHECK(config.handles == 4);
  CHECK(config.most_identifiers == 19);
  CHECK(config.namespaces == 1);
  CHECK(config.unit_bytes == 64 << 20);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(p.answer<ReclaimUnitHandleDescriptor>(80 + 4 * i).type == (fdp.persistently_isolated ? 2 : 1));
  // A host reads long pages in pieces.
  REQUIRE(p.log(log_page::fdp_configurations, 64, 16).ok());
  CHECK(p.answer<FdpConfigurationDescriptor>().unit_bytes == 64 << 20);
  CHECK(p.log(log_page::fdp_configurations, 64, 0, 0, 2) == status::invalid_field);  // no such group
}

TEST_CASE("identifiers: the reclaim group in the upper bits, a placement handle below") {
  Placed p;
  const auto lands = [&](std::uint8_t type, std::uint32_t identifier) {
    REQUIRE(p.write(type, static_cast<std::uint16_t>(identifier)).code().ok());
    return std::pair(p.seen.handle, p.seen.reclaim_group);
  };
  using Place = std::pair<std::uint16_t, std::uint16_t>;
  CHECK(lands(2, 0) == Place{2, 0});
  CHECK(lands(2, 1) == Place{0, 0});
  CHECK(lands(2, 4u << 13 | 2) == Place{3, 4});
  // By placement handle 0, in a group of the drive's choice: without a directive, and with an identifier that is not
  // there.
  const Place by_default{2, kAnyReclaimGroup};
  CHECK(lands(0, 1) == by_default);
  CHECK(lands(2, 3) == by_default);
  CHECK(lands(2, 5u << 13) == by_default);
  // Streams and others are no directives of this drive.
  CHECK(p.write(1, 0).code() == status::invalid_field);
  CHECK(p.write(3, 0).code() == status::invalid_field);
}

TEST_CASE("an invalid identifier is an event of the default handle, if the host wants to know") {
  Placed p;
  REQUIRE(p.write(2, 0x7FFF).code().ok());
  CHECK(p.events(true).empty());
  REQUIRE(p.keep_events(0, {3}).ok());
  REQUIRE(p.write(2, 0x7FFF).code().ok());
  REQUIRE(p.write(2, 1).code().ok());
  const auto events = p.events(true);
  REQUIRE(events.size() == 1);
  CHECK(events[0].type == FdpEventType::invalid_identifier);
  CHECK(events[0].flags == 7);
  CHECK(events[0].identifier == 0x7FFF);
  CHECK(events[0].nsid == 1);
  CHECK(events[0].handle == 2);
  CHECK(std::uint64_t{events[0].timestamp} > 0);  // a copy: the field is not aligned
  CHECK(p.events(false).empty());
  // The log keeps the newest.
  for (int i = 0; i < 70; ++i) REQUIRE(p.write(2, static_cast<std::uint16_t>(0x7000 + i)).code().ok());
  REQUIRE(p.events(true).size() == 62 + 1);
  CHECK(p.answer<FdpEvent>(64 * 62).identifier == 0x7000 + 68);
  REQUIRE(p.keep_events(0, {3}, false).ok());
  REQUIRE(p.write(2, 0x7ABC).code().ok());
  REQUIRE(p.log(log_page::fdp_events, 128, 63 * 64, 1).ok());
  CHECK(p.answer<FdpEvent>().identifier == 0x7000 + 69);
}

TEST_CASE("events are kept by placement handle and type") {
  Placed p;
  const auto asked = [&](std::uint16_t placement_handle, std::uint8_t most) {
    return p.run(0, {.opcode = admin_opcode::get_features,
                     .nsid = 1,
                     .cdw10 = feature::fdp_events,
                     .cdw11 = placement_handle | std::uint32_t{most} << 16});
  };
  REQUIRE(p.keep_events(1, {0x00, 0x80}).ok());
  CHECK(asked(1, 255).dw0 == 5);
  std::map<int, int> kept;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto event = p.answer<FdpEventDescriptor>(2 * i);
    kept[static_cast<int>(event.type)] = event.attributes;
  }
  CHECK(kept == std::map<int, int>{{0x00, 1}, {0x02, 0}, {0x03, 0}, {0x80, 1}, {0x81, 0}});
  CHECK(asked(1, 2).dw0 == 2);
  REQUIRE(asked(0, 255).code().ok());
  for (std::size_t i = 0; i < 5; ++i) CHECK(p.answer<FdpEventDescriptor>(2 * i).attributes == 0);
  CHECK(asked(3, 255).code() == status::invalid_field);
  CHECK(p.keep_events(3, {0x00}) == status::invalid_field);
  CHECK(p.keep_events(0, {0x00, 0x01}) == status::invalid_field);  // units have no time limit
  REQUIRE(asked(0, 1).code().ok());
  CHECK(p.answer<FdpEventDescriptor>().attributes == 0);
}

TEST_CASE("what handles are used for, and what was written") {
  Placed p;
  REQUIRE(p.log(log_page::reclaim_unit_handle_usage).ok());
  CHECK(p.answer<ReclaimUnitHandleUsage>().handles == 4);
  std::vector<int> used;
  for (std::size_t i = 0; i < 4; ++i) used.push_back(p.answer<ReclaimUnitHandleUse>(8 + 8 * i).attributes);
  CHECK(used == std::vector{1, 0, 1, 1});
  REQUIRE(p.log(log_page::fdp_statistics).ok());
  CHECK(p.answer<FdpStatistics>().media_written.value == 3000);
  REQUIRE(p.log(log_page::endurance_group).ok());
  CHECK(p.answer<EnduranceGroupLog>().capacity.value == 8192 * 4096);
  CHECK(p.log(log_page::fdp_statistics, 64, 0, 0, 0) == status::invalid_field);
}

TEST_CASE("placement changes only in an endurance group without a namespace") {
  Placed p;
  CHECK(p.config().dw0 == fdp_config(true, 0));
  CHECK(p.configure(false) == status::command_sequence_error);
  CHECK(p.config().dw0 == fdp_config(true, 0));
  REQUIRE(p.delete_namespace().ok());
  CHECK(p.delete_namespace() == status::invalid_field);
  CHECK(p.write(0, 0).code() == status::invalid_field);
  CHECK(p.identify<std::array<std::uint32_t, 1024>>(cns::active_namespaces)[0] == 0);
  CHECK(p.configure(true, 1) == status::invalid_field);     // no such configuration
  CHECK(p.configure(true, 0, 2) == status::invalid_field);  // no such group
  REQUIRE(p.configure(false).ok());
  CHECK(p.config().dw0 == 0);
  CHECK(p.log(log_page::fdp_configurations).ok());
  for (const std::uint8_t page : {log_page::reclaim_unit_handle_usage, log_page::fdp_statistics, log_page::fdp_events})
    CHECK(p.log(page) == status::fdp_disabled);

  // Without placement, writes must not name any.
  const std::vector<std::uint16_t> handles{1, 3};
  REQUIRE(p.create_namespace(Placed::wanted(100, {})).dw0 == 1);
  CHECK(p.write(0, 0).code() == status::invalid_field);  // not attached
  CHECK(p.attach(true, 1) == status::controller_list_invalid);
  REQUIRE(p.attach(true).ok());
  CHECK(p.attach(true) == status::namespace_attached);
  CHECK(p.write(0, 0).code().ok());
  CHECK(p.write(2, 0).code() == status::invalid_field);
  CHECK(p.run(1, encode_unit_status(NamespaceId{1}, Bytes::kib(4))).code() == status::fdp_disabled);
  CHECK(p.keep_events(0, {3}) == status::fdp_disabled);
  CHECK(p.identify<IdentifyNamespace>(cns::identify_namespace, 1).nsze == 100);

  // With it, the namespace lists its handles.
  REQUIRE(p.delete_namespace(kAll).ok());
  REQUIRE(p.configure(true).ok());
  CHECK(p.create_namespace(Placed::wanted(100, {1, 1})).code() == status::invalid_placement_list);
  CHECK(p.create_namespace(Placed::wanted(100, {4})).code() == status::invalid_placement_list);
  CHECK(p.create_namespace(Placed::wanted(8193, handles)).code() == status::namespace_too_large);
  REQUIRE(p.create_namespace(Placed::wanted(8192, handles)).code().ok());
  CHECK(p.create_namespace(Placed::wanted(1, handles)).code() == status::no_namespace_identifier);
  REQUIRE(p.attach(true).ok());
  REQUIRE(p.write(2, 1).code().ok());
  CHECK(p.seen.handle == 3);
  REQUIRE(p.attach(false).ok());
  CHECK(p.identify<std::array<std::uint32_t, 1024>>(cns::active_namespaces)[0] == 0);
  CHECK(p.identify<std::array<std::uint32_t, 1024>>(cns::allocated_namespaces)[0] == 1);

  // Where the host names none, the drive chooses one.
  REQUIRE(p.delete_namespace().ok());
  REQUIRE(p.create_namespace(Placed::wanted(8192, {})).code().ok());
  REQUIRE(p.log(log_page::reclaim_unit_handle_usage).ok());
  CHECK(p.answer<ReclaimUnitHandleUse>(8).attributes == 2);
  CHECK(p.answer<ReclaimUnitHandleUse>(16).attributes == 0);
}

TEST_CASE("what the host has set survives a reset") {
  Placed p;
  REQUIRE(p.keep_events(0, {3}).ok());
  REQUIRE(p.delete_namespace().ok());
  REQUIRE(p.configure(false).ok());
  p.raw.write32(reg::cc, 0);
  run_a_while();
  p.raw.enable();
  CHECK(p.config().dw0 == 0);
  CHECK(p.identify<std::array<std::uint32_t, 1024>>(cns::active_namespaces)[0] == 0);
}

TEST_CASE("after a loss of power the handles of a drive that was written go on with other units") {
  EnduranceGroup group(kFdp);
  REQUIRE(group.keep_events(1, std::array{FdpEventType::reset_changed_handles}, true).ok());
  const auto events = [&] {
    const auto page = group.log(log_page::fdp_events, true, false).value();
    return from_bytes<FdpEvents>(page).events;
  };
  group.note_power_on();
  CHECK(events() == 0);
  BlockWrite write;
  REQUIRE(group.place(encode_block_io(nvm_opcode::write, NamespaceId{1}, Lba{0}, 1), write).ok());
  group.note_power_on();
  CHECK(events() == 1);
  const auto page = group.log(log_page::fdp_events, true, false).value();
  const auto event = from_bytes<FdpEvent>(std::span(page).subspan(64));
  CHECK(event.type == FdpEventType::reset_changed_handles);
  CHECK(event.handle == 0);
  CHECK(event.identifier == 1);
  group.note_power_on();
  CHECK(events() == 1);
}

TEST_CASE("directives: Data Placement is enabled with the feature, and not by a command") {
  Placed p;
  const auto parameters = [&] {
    REQUIRE(p.run(0, {.opcode = admin_opcode::directive_receive, .nsid = 1, .cdw10 = 1023, .cdw11 = 1}).code().ok());
    return std::array{p.answer<std::uint8_t>(0), p.answer<std::uint8_t>(32), p.answer<std::uint8_t>(64)};
  };
  CHECK(parameters() == std::array<std::uint8_t, 3>{5, 5, 5});
  CHECK(p.run(0, {.opcode = admin_opcode::directive_send, .nsid = 1, .cdw11 = 1, .cdw12 = 2 << 8 | 1}).code() ==
        status::invalid_field);
  REQUIRE(p.delete_namespace().ok());
  REQUIRE(p.configure(false).ok());
  REQUIRE(p.create_namespace(Placed::wanted(10, {})).code().ok());
  REQUIRE(p.attach(true).ok());
  CHECK(parameters() == std::array<std::uint8_t, 3>{5, 1, 5});
}

TEST_CASE("handles and groups that identifiers cannot name are refused") {
  const auto params = [](std::uint32_t groups, std::uint16_t handles, std::vector<std::uint16_t> list) {
    FdpParams fdp = kFdp;
    fdp.reclaim_groups = groups;
    fdp.handles = handles;
    fdp.placement_handles = std::move(list);
    return fdp;
  };
  for (const FdpParams& bad : {params(1, 0, {}), params(1, 129, {}), params(0, 1, {}), params(1u << 15, 3, {}),
                               params(1, 2, {0, 2}), params(1, 2, {1, 1})})
    CHECK_THROWS_AS(EnduranceGroup(bad), UserError);
  CHECK(EnduranceGroup(params(1u << 15, 2, {})).target(0xFFFF)->reclaim_group == 0x7FFF);
}

}  // namespace test_fdp

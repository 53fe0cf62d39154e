// Operations that reach the flash while many plans of the block FTL run at a time are those that NAND allows.
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>

#include "base/rng.h"
#include "csd_model/firmware/plan_runner.h"
#include "nfc/sysc/fast_flash.h"
#include "tests/support/sysc_fixture.h"

namespace test_plan_runner {

using namespace csdsim;

namespace {

constexpr FlashGeometry kGeometry{.channels = 2,
                                  .dies_per_channel = 1,
                                  .planes_per_die = 2,
                                  .blocks_per_plane = 12,
                                  .pages_per_block = 8,
                                  .page_size = Bytes::kib(4)};

/// Passes flash batches on and checks them against the rules of NAND: the pages of a block are programmed in order
/// after its erase, and read only once they are programmed.
class NandRules : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<NandRules> up{"up"};
  tlm_utils::simple_initiator_socket<NandRules> down{"down"};

  explicit NandRules(const sc_core::sc_module_name& name) : sc_module(name) {
    up.register_nb_transport_fw(this, &NandRules::forward);
    down.register_nb_transport_bw(this, &NandRules::backward);
  }

  std::array<std::uint64_t, 3> ops{};  ///< by PageOpKind
  std::uint64_t bytes = 0;             ///< programmed
  std::uint64_t out_of_order = 0;
  std::uint64_t unwritten_reads = 0;

 private:
  tlm::tlm_sync_enum forward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay) {
    if (phase == tlm::BEGIN_REQ)
      for (const PageOp& op : payload.get_extension<nfc::FlashBatch>()->ops) check(op);
    return down->nb_transport_fw(payload, phase, delay);
  }
  tlm::tlm_sync_enum backward(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay) {
    return up->nb_transport_bw(payload, phase, delay);
  }
  void check(const PageOp& op) {
    ++ops[static_cast<std::size_t>(op.kind)];
    std::uint32_t& written = written_[kGeometry.block_of(op.ppa)];
    const std::uint32_t page = kGeometry.page_in_block(op.ppa);
    if (op.kind == PageOpKind::erase) {
      written = 0;
    } else if (op.kind == PageOpKind::program) {
      // A program ends in the last page of its word line that it has; padding leaves the others out.
      out_of_order += page < written;
      written = page + 1;
      bytes += op.channel_bytes;
    } else {
      unwritten_reads += page >= written;
    }
  }

  std::map<BlockId, std::uint32_t> written_;
};

/// The units of a word line are one program for each of `planes` planes; one that is left open is none, and one that is
/// padded has fewer.
void check_packing(const NandRules& rules, const ftl::BlockFtlStats& s, std::uint32_t line, std::uint32_t planes,
                   Bytes unit, bool pads) {
  const std::uint64_t written = s.host_pages_written + s.gc_pages_moved, lines = written / line;
  CHECK(rules.ops[1] / planes + 2 * kGeometry.planes() >= lines);
  if (!pads) {
    CHECK(rules.ops[1] <= lines * planes);
    CHECK(rules.ops[1] % planes == 0);
    CHECK(rules.ops[2] % planes == 0);
    return;
  }
  CHECK(rules.ops[1] > lines);
  CHECK(rules.ops[1] <= s.host_pages_written + s.gc_pages_moved / line);
  CHECK(rules.bytes <= written * unit.value);
}

/// Every third drive maps units of a quarter of a page, every second programs word lines of two pages; some of them
/// pad, and in some of the others blocks span the two planes of a die.
csd_model::PagePacking packing_of(std::uint64_t seed) {
  csd_model::PagePacking packing{.units = seed % 3 == 0 ? 4U : 1U,
                                 .pages = seed % 4 >= 2 ? 2U : 1U,
                                 .planes = seed % 5 < 2 ? 2U : 1U,
                                 .page = kGeometry.page_size};
  packing.pads = seed % 12 > 6 && packing.line() > 1 && packing.planes == 1;
  return packing;
}

/// The flash as plans address it.
FlashGeometry mapped_by(const csd_model::PagePacking& packing) {
  FlashGeometry mapped = kGeometry;
  mapped.page_size = {kGeometry.page_size.value / packing.units};
  mapped.pages_per_block *= packing.units * packing.planes;
  mapped.planes_per_die /= packing.planes;
  return mapped;
}

/// Reclaim units of the flash `mapped`, which becomes theirs: a block of half of the planes, of all, or two of each.
csd_model::ReclaimLayout make_units(FlashGeometry& mapped, std::uint64_t shape, std::uint32_t units,
                                    std::uint32_t line_pages) {
  const std::array blocks{mapped.planes() / 2, mapped.planes(), 2 * mapped.planes()};
  const std::uint32_t unit = std::max<std::uint32_t>(2, blocks[shape % 3]), over = std::min(unit, mapped.planes());
  FlashGeometry in_pages = mapped;
  in_pages.pages_per_block /= units;
  in_pages.page_size = kGeometry.page_size;
  const std::uint32_t blocks_per_plane = mapped.blocks_per_plane;
  mapped = {.channels = mapped.planes() / over,
            .dies_per_channel = 1,
            .planes_per_die = 1,
            .blocks_per_plane = blocks_per_plane * over / unit,
            .pages_per_block = mapped.pages_per_block * unit,
            .page_size = mapped.page_size};
  return {in_pages, ftl::kChannelDiePlane, unit, blocks_per_plane, line_pages};
}

/// Writes that join word lines or program one page, without plans.
struct Joins {
  ftl::BlockFtl& ftl;
  csd_model::PlanRunner& runner;
  std::uint64_t joined = 0;
  std::uint64_t pages = 0;  ///< those of them that programmed one
  std::uint64_t planned = 0;
  std::uint64_t called_back = 0;

  /// False: the write needs a plan.
  bool write(Bytes offset, Bytes length) {
    auto part = ftl.write_in_line(offset, length, {});
    if (!part) return false;
    ++joined;
    if (part->program) {
      ++pages;
      ++planned;
      for (const ftl::Phase& phase : part->behind) planned += phase.size();
      runner.program(*part->program, part->plane, part->replaced, [this] { ++called_back; });
    } else {
      runner.join_line(part->first, csd_model::PlanRunner::Done([this] { ++called_back; }));
    }
    if (!part->behind.empty()) runner.run(std::move(part->behind), [] {});
    return true;
  }
  /// At least `some` have joined. All are called back, but for up to `open` in word lines that are open; those when
  /// the lines are let go.
  void check(std::uint64_t some, std::uint64_t open) {
    CHECK(joined >= some);
    CHECK(called_back <= joined);
    CHECK(called_back + open >= joined);
    runner.leave_pages_open();
    CHECK(called_back == joined);
  }
};

PageOp op(PageOpKind kind, std::uint32_t block, std::uint32_t page) {
  const auto bytes = static_cast<std::uint32_t>(kGeometry.page_size.value);
  return {.ppa = {std::uint64_t{block} * kGeometry.pages_per_block + page},
          .kind = kind,
          .op_class = OpClass::gc,
          .channel_bytes = kind == PageOpKind::erase ? 0 : bytes};
}

/// Flash that checks the rules of NAND, with a DRAM port in front of it.
struct FlashUnderRules {
  nfc::FastFlash flash;
  NandRules rules{"rules"};
  csd_model::DramPort dram;
  csd_model::FlashIo io{"io", dram};

  explicit FlashUnderRules(const nfc::FlashTiming& timing = {}, std::optional<Bandwidth> dram_bandwidth = {})
      : flash("flash", kGeometry, timing), dram("dram", dram_bandwidth) {
    io.socket.bind(rules.up);
    rules.down.bind(flash.socket);
  }
};

}  // namespace

TEST_CASE("an erase waits for programs on other planes that replace pages of its block, and for no others") {
  using enum PageOpKind;
  const bool replaces = GENERATE(false, true), alone = GENERATE(false, true);
  const std::uint32_t phases = GENERATE(1U, 2U);
  CAPTURE(replaces, alone, phases);
  test::SyscFixture context;
  nfc::FlashTiming timing;
  timing.program_latency = SimTime::microseconds(700);
  timing.erase_latency = SimTime::microseconds(300);
  FlashUnderRules under(timing);
  NandRules& rules = under.rules;
  csd_model::FlashIo& io = under.io;
  csd_model::PlanRunner runner(kGeometry, io, {.page = kGeometry.page_size});
  std::map<char, SimTime> ended;
  const auto run = [&](char plan, std::vector<ftl::Phase> of_plan) {
    runner.run(std::move(of_plan), [&, plan] { ended[plan] = sim_time_now(); });
  };
  // Blocks 0, 12 and 24 are on planes 0, 1 and 2. The newer version of a page of block 0 goes to plane 1.
  if (alone) {
    const std::optional<BlockId> replaced = replaces ? std::optional(BlockId{0}) : std::nullopt;
    runner.program(op(program, 12, 0), PlaneId{1}, replaced, [&] { ended['p'] = sim_time_now(); });
  } else {
    if (replaces) runner.note_replaced({12 * kGeometry.pages_per_block}, {0});
    run('p', {{op(program, 12, 0)}});
  }
  std::vector<ftl::Phase> collection;
  if (phases == 2) collection.push_back({op(program, 1, 0)});
  collection.push_back({op(erase, 0, 0), op(erase, 24, 0)});
  run('e', std::move(collection));
  run('n', {{op(program, 0, 0)}});
  run('o', {{op(program, 24, 0)}});
  // It is on its way when the erase has been planned.
  runner.note_replaced({13 * kGeometry.pages_per_block}, {1});
  run('l', {{op(program, 13, 0)}});
  sc_core::sc_start();
  REQUIRE(ended.size() == 5);
  CHECK(rules.out_of_order == 0);
  const SimTime programmed = ended['p'], before = phases == 2 ? SimTime::microseconds(700) : SimTime{};
  const SimTime bus = SimTime::microseconds(100);  // more than all commands and data take
  const SimTime begun = replaces ? std::max(programmed, before) : before;
  CHECK(ended['e'] >= begun + timing.erase_latency);
  CHECK(ended['e'] < begun + timing.erase_latency + bus);
  CHECK(ended['n'] >= begun + timing.erase_latency + timing.program_latency);
  CHECK(ended['n'] < begun + timing.erase_latency + timing.program_latency + bus);
  // The other block of the same phase has nothing to wait for.
  CHECK(ended['o'] < before + timing.erase_latency + timing.program_latency + bus);
}

TEST_CASE("a page is read from DRAM if an earlier plan programs it, and from flash if only a later one does") {
  using enum PageOpKind;
  const bool later = GENERATE(false, true);
  CAPTURE(later);
  test::SyscFixture context;
  FlashUnderRules under;
  NandRules& rules = under.rules;
  csd_model::FlashIo& io = under.io;
  csd_model::PlanRunner runner(kGeometry, io, {.page = kGeometry.page_size});
  // All on one plane. Block 0 has a page that is moved to block 1; the block is erased and written again. These plans
  // wait behind one of two programs, so that the last one has been planned when the first of them reads.
  int ended = 0;
  const auto run = [&](std::vector<ftl::Phase> phases) { runner.run(std::move(phases), [&] { ++ended; }); };
  if (later) {
    run({{op(program, 0, 0)}});
    sc_core::sc_start();
    REQUIRE(rules.ops[1] == 1);
  }
  run({{op(program, 1, 0)}, {op(program, 1, 1)}});
  if (!later) run({{op(program, 0, 0)}});
  run({{op(read, 0, 0)}, {op(program, 1, 2)}, {op(erase, 0, 0)}});
  run({{op(program, 0, 0)}});
  sc_core::sc_start();
  CHECK(ended == 4);
  CHECK(rules.ops[0] == (later ? 1 : 0));
  CHECK(runner.buffer_hits() == (later ? 0 : 1));
  CHECK(rules.out_of_order == 0);
  CHECK(rules.unwritten_reads == 0);
}

TEST_CASE("plans in flight together reach the planes in order; every plan ends; nothing is lost") {
  const std::uint64_t seed = GENERATE(range(1, 25));
  INFO("seed " << seed);
  test::SyscFixture context;
  nfc::FlashTiming timing;
  timing.word_line_pages = 2;
  // With a slow DRAM in front of the flash, too.
  FlashUnderRules under(timing, seed % 2 == 0 ? std::optional(Bandwidth{200'000'000}) : std::nullopt);
  NandRules& rules = under.rules;
  csd_model::FlashIo& io = under.io;
  const csd_model::PagePacking packing = packing_of(seed);
  const auto [units, pages, planes, page, reads_whole, pads] = packing;
  const std::uint32_t line = packing.line();
  FlashGeometry mapped = mapped_by(packing);
  std::optional<csd_model::ReclaimLayout> layout;
  if (seed > 12) layout = make_units(mapped, seed, units, pages * planes);
  const std::uint32_t unit = layout ? layout->blocks() : 1;
  CAPTURE(units, pages, planes, unit);
  ftl::BlockManager blocks(mapped, {.block_namespace = mapped.blocks_per_plane, .kv_namespace = 0});
  ftl::BackingStore store(mapped, ftl::DataMode::timing);
  ftl::BlockFtl ftl({.units_per_program = line, .pads = pads}, blocks, store);
  csd_model::PlanRunner runner(mapped, io, packing, layout);

  Rng rng(seed);
  std::uint64_t left = 3000;
  std::uint64_t ended = 0;
  std::uint64_t planned = 0;
  std::uint64_t longest = 0;
  Joins joins{ftl, runner};
  const std::function<void()> next = [&] {
    while (left > 0) {
      --left;
      // Requests of half pages: partly covered pages are read and merged.
      const Bytes length{2048 * (1 + rng.below(seed % 2 == 0 ? 4 : 24))};
      const Bytes offset{2048 * rng.below((ftl.capacity() - length).value / 2048 + 1)};
      const std::uint64_t dice = rng.below(10);
      if (dice < 6 && (seed % 3 == 0 || line == 1) && joins.write(offset, length)) continue;
      ftl::IoPlan plan = dice < 6   ? ftl.write(offset, length)
                         : dice < 9 ? ftl.read(offset, length)
                                    : ftl.trim(offset, length);
      REQUIRE(plan.status == ftl::IoStatus::ok);
      for (const ftl::Phase& phase : plan.phases) planned += phase.size();
      longest = std::max<std::uint64_t>(longest, plan.phases.size());
      if (plan.phases.empty()) {
        ++ended;
        continue;
      }
      // What follows a plan must be submitted before the next plan is made.
      std::vector<ftl::Phase> behind = plan.take_behind();
      enum class State : std::uint8_t { submitting, done, waiting };
      const auto state = std::make_shared<State>(State::submitting);
      runner.run(std::move(plan.phases), [&, state] {
        ++ended;
        if (*state == State::waiting) return next();
        *state = State::done;
      });
      if (!behind.empty()) runner.run(std::move(behind), [] {});
      if (std::exchange(*state, State::waiting) == State::submitting) return;
    }
  };
  for (int i = 0; i < 20; ++i) next();
  sc_core::sc_start();

  CHECK(ended + joins.joined == 3000);
  CHECK(longest > 4);
  CHECK(rules.ops[2] > 100);
  CHECK(rules.out_of_order == 0);
  CHECK(rules.unwritten_reads == 0);
  const std::uint64_t run = rules.ops[0] + rules.ops[1] + rules.ops[2] + runner.buffer_hits();
  if (line == 1 && unit == 1) CHECK(run == planned + joins.planned);
  CHECK((joins.pages > 20) == (line == 1));
  if (line > 1) {
    check_packing(rules, ftl.stats(), line, planes, mapped.page_size, pads);
    if (planes == 1 && unit == 1) CHECK(run < planned);
  }
  CHECK(io.batches_in_flight() == 0);
  joins.check(seed % 3 == 0 && line > 1 && !pads ? 50 : 0, std::uint64_t{kGeometry.planes()} * line);
}

TEST_CASE("units that join a word line are in DRAM until another plan fills it, and are called back then") {
  using enum PageOpKind;
  test::SyscFixture context;
  FlashUnderRules under;
  NandRules& rules = under.rules;
  csd_model::FlashIo& io = under.io;
  const csd_model::PagePacking packing{.units = 4, .page = kGeometry.page_size};
  csd_model::PlanRunner runner(mapped_by(packing), io, packing);
  const auto unit = [](PageOpKind kind, std::uint64_t at) {
    return PageOp{.ppa = {at}, .kind = kind, .op_class = OpClass::host, .channel_bytes = 1024};
  };
  std::string order;
  runner.on_written([&] { order += 'w'; },
                    [&](const csd_model::BufferedParts& parts) {
                      order += std::string(parts.count, 'p') + std::to_string(parts.size.value) +
                               std::to_string(parts.group) + ' ';
                    });
  runner.join_line({0}, csd_model::PlanRunner::Done([&] { order += 'a'; }));
  runner.join_line({1}, csd_model::PlanRunner::Done([&] { order += 'b'; }));
  CHECK(order == "ww");
  ftl::Phase reads{unit(read, 1)};
  runner.resolve(reads);
  CHECK(reads.empty());
  CHECK(runner.in_dram({1}));
  CHECK(rules.ops[1] == 0);
  runner.run(
      {{unit(program, 2), unit(program, 3)}}, [&] { order += 'c'; }, csd_model::PlanRunner::Until::programs);
  sc_core::sc_start();
  CHECK(rules.ops[1] == 1);
  CHECK(order == "wwcabw");
  CHECK_FALSE(runner.in_dram({1}));

  // Parts of the write buffer come back together where they followed each other, and are of one size and one group.
  order.clear();
  const Bytes size{1};
  runner.join_line({8}, csd_model::BufferedParts{size, 4, 2});
  runner.join_line({10}, csd_model::BufferedParts{size, 4, 1});
  runner.leave_pages_open();
  CHECK(order == "wwppp14 ");
  order.clear();
  runner.join_line({12}, csd_model::BufferedParts{size, 4, 1});
  runner.join_line({13}, csd_model::BufferedParts{size, 5, 1});
  runner.join_line({14}, csd_model::BufferedParts{Bytes{2}, 5, 1});
  runner.leave_pages_open();
  CHECK(order == "wwwp14 p15 p25 ");
  order.clear();
  runner.join_line({16}, csd_model::BufferedParts{size, 4, 1});
  runner.join_line({17}, csd_model::PlanRunner::Done([&] { order += 'e'; }));
  runner.join_line({18}, csd_model::BufferedParts{size, 4, 1});
  runner.leave_pages_open();
  CHECK(order == "wwwp14 ep14 ");

  // A plan that is held back starts first: it is older.
  runner.hold({{op(program, 20, 0)}}, [&] { order += 'h'; });
  runner.join_line({4}, csd_model::PlanRunner::Done([&] { order += 'd'; }));
  CHECK_FALSE(runner.holds({20 * kGeometry.pages_per_block}));
}

}  // namespace test_plan_runner

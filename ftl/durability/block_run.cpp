#include "ftl/durability/block_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace csdsim::ftl::durability {
namespace {

BlockManagerConfig manager_config(const Setup& setup) { return {.gc = setup.gc, .spare_blocks = setup.spare_blocks}; }

bool erases(const std::vector<FlashOp>& begun, BlockId block, const FlashGeometry& g) {
  return std::ranges::any_of(
      begun, [&](const FlashOp& op) { return op.kind == PageOpKind::erase && g.block_of(op.units[0]) == block; });
}

}  // namespace

BlockRun::BlockRun(const Case& c, bool with_history)
    : setup_(c.setup),
      tells_(with_history),
      store_(setup_.geometry, DataMode::carried),
      queue_(setup_.geometry, setup_.config),
      faults_(setup_.seed, setup_.failures_per_mille) {
  store_.keep_until_erased();
  switch_on();
  oracle_.assign(ftl_->capacity().value / unit().value, UnitOracle(unit().value));
}

void BlockRun::switch_on() {
  ftl_.reset();
  blocks_.emplace(setup_.geometry, BlockQuota{setup_.geometry.blocks_per_plane - setup_.spare_blocks, 0},
                  manager_config(setup_));
  ftl_.emplace(setup_.config, *blocks_, store_, setup_.failures_per_mille > 0 ? &faults_ : nullptr);
  if (is_volatile())
    ftl_->on_replaced([this](PhysicalPageAddress to, PhysicalPageAddress old) { queue_.note_replaced(to, old); });
}

void BlockRun::fill() {
  const auto writes = static_cast<std::uint64_t>(setup_.filled * static_cast<double>(units()));
  const bool told = std::exchange(tells_, false);
  for (std::uint64_t i = 0; i < writes; ++i) {
    const std::uint64_t at = i < units() ? i : counter_random(setup_.seed, i) % units();
    step({Step::Kind::write, {static_cast<std::uint32_t>(at), 0, 0}});
    while (!queue_.idle()) complete(queue_.ready().front()->number);
  }
  flush();
  while (!queue_.idle()) complete(queue_.ready().front()->number);
  tells_ = told;
}

void BlockRun::step(const Step& step) {
  switch (step.kind) {
    case Step::Kind::write:
      return write(step, false);
    case Step::Kind::fua_write:
      return write(step, true);
    case Step::Kind::trim:
      return trim(step);
    case Step::Kind::read:
      return read(step);
    case Step::Kind::flush:
      tell(step, "");
      ++coverage_.commands;
      return flush();
    case Step::Kind::complete:
      return complete(step);
    case Step::Kind::background:
      return background(step);
    case Step::Kind::cut:
      return cut(step);
  }
}

void BlockRun::tell(const Step& step, const std::string& what) {
  if (tells_) history_.push_back(fmt::format("{}{}", kStepNames[static_cast<std::size_t>(step.kind)], what));
}

std::uint64_t BlockRun::length(const Step& step) const {
  return 1 + step.n[1] % std::min<std::uint64_t>(5, units() - address(step));
}

void BlockRun::run(IoPlan plan) {
  queue_.add(plan.phases);
  check_map();
}

void BlockRun::write(const Step& step, bool fua) {
  const std::uint64_t first = address(step), count = length(step), size = unit().value;
  // A part of the first unit stays as it is.
  const std::uint64_t kept = step.n[2] % 4 == 1 && count == 1 ? 1 + step.n[2] / 4 % (size - 1) : 0;
  std::vector<std::byte> data;
  std::vector<UnitBytes> contents;
  ++serial_;
  for (std::uint64_t i = 0; i < count; ++i) {
    UnitBytes bytes = bytes_of(first + i, serial_, size);
    if (i == 0) std::copy_n(oracle_[first].current().begin(), kept, bytes.begin());
    data.insert(data.end(), bytes.begin() + static_cast<std::ptrdiff_t>(i == 0 ? kept : 0), bytes.end());
    contents.push_back(std::move(bytes));
  }
  if (tells_) tell(step, fmt::format(" of units {} to {}{}", first, first + count - 1, kept > 0 ? ", in part" : ""));
  ++coverage_.commands;
  IoPlan plan = ftl_->write(Bytes{first * size + kept}, Bytes{data.size()}, data);
  const IoStatus status = plan.status;
  run(std::move(plan));
  note_written(first, count, std::move(contents), status);
  if (!fua || !is_volatile() || status != IoStatus::ok) return;
  std::vector<PhysicalPageAddress> pages;
  Waiting waiting;
  for (std::uint64_t unit = first; unit < first + count; ++unit) {
    pages.push_back(ftl_->lookup(LogicalPage{unit}));
    waiting.durable.emplace_back(unit, oracle_[unit].version());
  }
  run(ftl_->fill_lines(pages));
  waiting.programs = queue_.programs_of(pages);
  wait_for(std::move(waiting));
}

/// The units of a write that come before its failure have their new content.
void BlockRun::note_written(std::uint64_t first, std::uint64_t count, std::vector<UnitBytes> contents,
                            IoStatus status) {
  if (status != IoStatus::ok && status != IoStatus::read_only)
    throw Broken{fmt::format("a write within the capacity ends with status {}", static_cast<int>(status))};
  if (status == IoStatus::read_only && setup_.failures_per_mille == 0) throw Broken{"the drive is read-only"};
  for (std::uint64_t i = 0; i < count; ++i) {
    UnitOracle& unit = oracle_[first + i];
    if (status != IoStatus::ok && read_unit(first + i) != contents[i]) continue;
    unit.write(std::move(contents[i]));
    if (!is_volatile()) unit.make_durable(unit.version());
  }
}

void BlockRun::trim(const Step& step) {
  const std::uint64_t first = address(step), count = length(step);
  if (tells_) tell(step, fmt::format(" of units {} to {}", first, first + count - 1));
  ++coverage_.commands;
  IoPlan plan = ftl_->trim(unit() * first, unit() * count);
  const IoStatus status = plan.status;
  run(std::move(plan));
  if (status == IoStatus::read_only && setup_.failures_per_mille > 0) return;
  if (status != IoStatus::ok) throw Broken{fmt::format("a trim ends with status {}", static_cast<int>(status))};
  for (std::uint64_t i = first; i < first + count; ++i) {
    oracle_[i].write(UnitBytes(unit().value));
    if (!is_volatile()) oracle_[i].make_durable(oracle_[i].version());
  }
}

UnitBytes BlockRun::read_unit(std::uint64_t at) {
  UnitBytes bytes(unit().value);
  Phase ops;
  if (ftl_->read(unit() * at, unit(), bytes, ops) != IoStatus::ok)
    throw Broken{fmt::format("unit {} cannot be read", at)};
  return bytes;
}

void BlockRun::read(const Step& step) {
  const std::uint64_t first = address(step), count = length(step);
  if (tells_) tell(step, fmt::format(" of units {} to {}", first, first + count - 1));
  ++coverage_.commands;
  run(ftl_->find(unit() * first, unit() * count));
  for (std::uint64_t i = first; i < first + count; ++i)
    if (read_unit(i) != oracle_[i].current()) throw Broken{fmt::format("unit {} is not what was written last", i)};
}

void BlockRun::flush() {
  if (!is_volatile()) return;
  run(ftl_->fill_lines(queue_.open_lines()));
  Waiting waiting{.programs = queue_.programs(), .durable = {}, .trims = ftl_->trims()};
  for (std::uint64_t unit = 0; unit < units(); ++unit) waiting.durable.emplace_back(unit, oracle_[unit].version());
  wait_for(std::move(waiting));
}

void BlockRun::wait_for(Waiting waiting) {
  if (!waiting.programs.empty()) {
    waiting_.push_back(std::move(waiting));
    return;
  }
  for (const auto& [unit, version] : waiting.durable) oracle_[unit].make_durable(version);
  if (waiting.trims) ftl_->trims_saved(*waiting.trims);
}

void BlockRun::complete(std::uint64_t number) {
  ++coverage_.completions;
  for (const FlashOp* op : queue_.pending())
    if (op->number == number && op->kind == PageOpKind::erase)
      store_.finish_erase(setup_.geometry.block_of(op->units[0]));
  queue_.complete(number);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto current = at++;
    if (std::erase(current->programs, number) == 0 || !current->programs.empty()) continue;
    Waiting done = std::move(*current);
    waiting_.erase(current);
    wait_for(std::move(done));
  }
}

void BlockRun::complete(const Step& step) {
  const std::vector<const FlashOp*> ready = queue_.ready();
  if (ready.empty()) return;
  const FlashOp& op = *ready[step.n[0] % ready.size()];
  constexpr std::array kKinds{"read", "program", "erase"};
  if (tells_) {
    std::string of;
    for (const PhysicalPageAddress unit : op.units) of += fmt::format(" {}", unit.value);
    tell(step, fmt::format(": {} on plane {}, physical units{}", kKinds[static_cast<std::size_t>(op.kind)],
                           op.plane.value, of));
  }
  complete(op.number);
}

void BlockRun::background(const Step& step) {
  const PlaneId plane{step.n[0] % setup_.geometry.planes()};
  std::optional<IoPlan> plan = step.n[1] % 2 == 0 ? ftl_->background_step(plane) : ftl_->wear_step(plane);
  if (!plan) return;
  if (tells_) tell(step, fmt::format(" work on plane {}", plane.value));
  run(std::move(*plan));
}

/// What has become of the operations that may be under way. Returns those that had begun and not ended.
std::vector<FlashOp> BlockRun::decide_fates(std::uint32_t fates) {
  std::vector<FlashOp> begun;
  std::vector<std::uint64_t> done;
  for (const FlashOp* op : queue_.ready()) {
    const std::uint32_t fate = fates % 3;
    fates /= 3;
    if (fate == 0 || op->kind == PageOpKind::read) continue;
    if (fate == 1) {
      begun.push_back(*op);
    } else {
      done.push_back(op->number);
    }
  }
  coverage_.torn += static_cast<std::uint64_t>(std::ranges::count(begun, PageOpKind::program, &FlashOp::kind));
  coverage_.half_erased += static_cast<std::uint64_t>(std::ranges::count(begun, PageOpKind::erase, &FlashOp::kind));
  // No command hears of them any more.
  waiting_.clear();
  for (const std::uint64_t number : done) complete(number);
  return begun;
}

/// In a block that is still to be erased, only pages from before the erase count.
PowerLoss BlockRun::spoiled_by(const std::vector<FlashOp>& begun) const {
  const FlashGeometry& g = setup_.geometry;
  PowerLoss loss;
  std::set<BlockId> erased_later;
  std::set<std::uint64_t> torn;
  for (const FlashOp& op : begun) torn.insert(op.number);
  for (const FlashOp* op : queue_.pending()) {
    const BlockId block = g.block_of(op->units[0]);
    if (op->kind == PageOpKind::erase) erased_later.insert(block);
    if (op->kind != PageOpKind::program || erased_later.contains(block)) continue;
    auto& pages = torn.contains(op->number) ? loss.torn : loss.unprogrammed;
    pages.insert(pages.end(), op->units.begin(), op->units.end());
  }
  for (const PhysicalPageAddress unit : queue_.open_units())
    if (!erased_later.contains(g.block_of(unit))) loss.unprogrammed.push_back(unit);
  for (const BlockId block : erased_later)
    if (erases(begun, block, g)) loss.half_erased.push_back(block);
  return loss;
}

PowerCut BlockRun::power_cut() const {
  PowerCut cut{.capacitors = setup_.capacitors, .in_dram = queue_.open_units(), .unerased = {}};
  for (const FlashOp* op : queue_.pending()) {
    if (op->kind == PageOpKind::program) cut.in_dram.insert(cut.in_dram.end(), op->units.begin(), op->units.end());
    if (op->kind == PageOpKind::erase) cut.unerased.push_back(setup_.geometry.block_of(op->units[0]));
  }
  return cut;
}

void BlockRun::cut(const Step& step) {
  tell(step, "");
  ++coverage_.cuts;
  coverage_.collected += ftl_->stats().gc_erases;
  coverage_.bad_blocks += blocks_->grown_bad_blocks();
  const std::vector<const FlashOp*> pending = queue_.pending();
  if (!pending.empty() && pending.front()->number <= recovering_) ++coverage_.cuts_in_recovery;
  const std::vector<FlashOp> begun = decide_fates(step.n[0]);
  const PowerCut cut = power_cut();
  coverage_.undone_erases += cut.unerased.size();
  const PowerLoss loss = spoiled_by(begun);
  const BlockDump dump = ftl_->power_loss(cut);
  store_.lose_power(loss);
  queue_.lose_power(begun);
  recover(dump);
}

void BlockRun::recover(const BlockDump& dump) {
  switch_on();
  BlockRecovery found = ftl_->recover(dump);
  run(std::move(found.plan));
  recovering_ = queue_.idle() ? 0 : queue_.pending().back()->number;
  coverage_.found += found.pages;
  coverage_.stale += found.stale_pages;
  coverage_.trimmed += found.trimmed_pages;
  coverage_.saved += found.saved_pages;
  coverage_.map_pages += found.map_pages_written;
  if (found.unwritten_pages > 0 && !blocks_->read_only())
    throw Broken{fmt::format("{} units find no room in the recovery", found.unwritten_pages)};
  if (found.saved_pages > units())
    throw Broken{fmt::format("a recovery writes {} pages of the dump, of {} units", found.saved_pages, units())};
  check_after_recovery();
}

void BlockRun::check_after_recovery() {
  for (std::uint64_t at = 0; at < units(); ++at) {
    UnitOracle& unit = oracle_[at];
    const auto age = unit.age_of(read_unit(at));
    if (!age)
      throw Broken{
          fmt::format("after the recovery unit {} holds neither its last durable version nor a newer one", at)};
    if (*age > 0) ++coverage_.older_versions;
    unit.settle(*age);
  }
  check_map_pages();
  if (store_.integrity_errors() > 0) throw Broken{to_string(store_.kept_integrity_errors().front())};
}

/// Every unit and translation page that is mapped has a valid page of its own, and no other page is valid.
void BlockRun::check_map() {
  std::vector<bool> used(setup_.geometry.pages());
  std::uint64_t mapped = 0;
  for (std::uint64_t unit = 0; unit < units() + map_pages(); ++unit) {
    const PhysicalPageAddress ppa = ftl_->lookup(LogicalPage{unit});
    if (!ppa.valid()) continue;
    if (used[ppa.value]) throw Broken{fmt::format("physical unit {} belongs to two units", ppa.value)};
    if (!blocks_->valid(ppa)) throw Broken{fmt::format("unit {} is mapped to a page that is not valid", unit)};
    used[ppa.value] = true;
    ++mapped;
  }
  if (mapped != blocks_->valid_pages(Namespace::block)) throw Broken{"a page is valid that no unit is mapped to"};
}

/// After a recovery every stored translation page holds the entries of the map.
void BlockRun::check_map_pages() {
  for (std::uint64_t at = 0; at < map_pages(); ++at) {
    const PhysicalPageAddress ppa = ftl_->lookup(LogicalPage{units() + at});
    const std::uint64_t entries = unit().value / kMapEntryBytes;
    for (std::uint64_t i = 0; i < entries && at * entries + i < units(); ++i) {
      const std::uint64_t mapped = ftl_->lookup(LogicalPage{at * entries + i}).value;
      const bool same = ppa.valid()
                            ? std::memcmp(store_.read(ppa).data() + i * kMapEntryBytes, &mapped, kMapEntryBytes) == 0
                            : !PhysicalPageAddress{mapped}.valid();
      if (!same)
        throw Broken{
            fmt::format("after the recovery a translation page has not the place of unit {}", at * entries + i)};
    }
  }
}

void BlockRun::go_on_without_faults() {
  const auto drain = [&] {
    while (!queue_.idle()) complete(queue_.ready().front()->number);
  };
  drain();
  tells_ = false;
  for (int round = 0; round < 2; ++round)
    for (std::uint32_t unit = 0; unit < units(); ++unit) {
      step({Step::Kind::write, {unit, 0, 0}});
      if (unit % 8 == 7) drain();
    }
  flush();
  drain();
  if (!waiting_.empty()) throw Broken{"a command does not complete although nothing is under way"};
  for (std::uint32_t unit = 0; unit < units(); ++unit) step({Step::Kind::read, {unit, 0, 0}});
  cut({Step::Kind::cut, {}});
  for (std::uint64_t unit = 0; unit < units(); ++unit)
    if (oracle_[unit].version() == 0) throw Broken{fmt::format("unit {} was never written", unit)};
  drain();
  if (store_.integrity_errors() > 0) throw Broken{to_string(store_.kept_integrity_errors().front())};
}

CutCoverage BlockRun::coverage() const {
  CutCoverage c = coverage_;
  if (blocks_->read_only()) ++c.read_only;
  return c;
}

}  // namespace csdsim::ftl::durability

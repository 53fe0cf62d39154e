#include "ftl/durability/flash_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace csdsim::ftl::durability {

void FlashQueue::add(const std::vector<Phase>& phases) {
  Plan plan;
  for (const Phase& phase : phases) {
    Ops ops;
    pack(phase, ops);
    if (!ops.empty()) plan.phases.push_back(std::move(ops));
  }
  if (!plan.phases.empty()) plans_.push_back(std::move(plan));
}

/// Turns the programs of units into those of word lines.
void FlashQueue::pack(const Phase& phase, Ops& ops) {
  for (const PageOp& op : phase) {
    if (!geometry_.contains(op.ppa)) throw Broken{fmt::format("unit {} does not exist", op.ppa.value)};
    const std::uint64_t line = line_of(op.ppa);
    if (op.kind != PageOpKind::program) {
      ops.push_back({op.kind, geometry_.plane_of(op.ppa), {op.ppa}, ++planned_, {}});
    } else if (pads_ && op.op_class == OpClass::host) {
      const bool same = !ops.empty() && ops.back().kind == PageOpKind::program && line_of(ops.back().units[0]) == line;
      if (same) {
        ops.back().units.push_back(op.ppa);
        take_replaced(ops.back(), op.ppa);
      } else {
        add_program(line, {op.ppa}, ops);
      }
    } else {
      std::vector<PhysicalPageAddress>& units = open_[line];
      units.push_back(op.ppa);
      if ((op.ppa.value + 1) % line_ == 0) add_program(line, std::move(open_.extract(line).mapped()), ops);
    }
  }
}

void FlashQueue::add_program(std::uint64_t line, std::vector<PhysicalPageAddress> units, Ops& ops) {
  FlashOp& op = ops.emplace_back(
      FlashOp{PageOpKind::program, geometry_.plane_of({line * line_}), std::move(units), ++planned_, {}});
  for (const PhysicalPageAddress unit : op.units) take_replaced(op, unit);
}

void FlashQueue::take_replaced(FlashOp& program, PhysicalPageAddress unit) {
  const auto old = replaced_.extract(unit.value);
  if (!old.empty()) program.replaces.push_back(old.mapped());
}

std::vector<const FlashOp*> FlashQueue::ready() const {
  std::vector<const FlashOp*> ready;
  std::vector<bool> busy(geometry_.planes());  // an earlier operation is to come there
  std::set<BlockId> replaced;                  // by programs of earlier plans
  for (const Plan& plan : plans_) {
    for (const FlashOp& op : plan.phases.front()) {
      const bool waits = op.kind == PageOpKind::erase && replaced.contains(geometry_.block_of(op.units[0]));
      if (!busy[op.plane.value] && !waits) ready.push_back(&op);
      busy[op.plane.value] = true;
    }
    for (const Ops& ops : plan.phases) {
      for (const FlashOp& op : ops) {
        busy[op.plane.value] = true;
        replaced.insert(op.replaces.begin(), op.replaces.end());
      }
    }
  }
  return ready;
}

void FlashQueue::run(const FlashOp& op) {
  const std::uint64_t line = line_of(op.units[0]), in_block = geometry_.pages_per_block / line_;
  switch (op.kind) {
    case PageOpKind::read:
      if (!programmed_[line]) throw Broken{fmt::format("unit {} is read while it is erased", op.units[0].value)};
      break;
    case PageOpKind::program:
      if (programmed_[line]) throw Broken{fmt::format("word line {} is programmed twice", line)};
      if (line % in_block != 0 && !programmed_[line - 1])
        throw Broken{fmt::format("word line {} is programmed before the one in front of it", line)};
      programmed_[line] = true;
      break;
    case PageOpKind::erase:
      for (std::uint64_t i = 0; i < in_block; ++i) programmed_[line + i] = false;
      break;
  }
}

void FlashQueue::complete(std::uint64_t number) {
  for (auto plan = plans_.begin(); plan != plans_.end(); ++plan) {
    Ops& ops = plan->phases.front();
    const auto op = std::ranges::find(ops, number, &FlashOp::number);
    if (op == ops.end()) continue;
    const FlashOp done = *op;
    ops.erase(op);
    if (ops.empty()) plan->phases.pop_front();
    if (plan->phases.empty()) plans_.erase(plan);
    // What is still in DRAM is read there.
    if (done.kind != PageOpKind::read || !in_dram(done.units[0])) run(done);
    return;
  }
  throw Broken{fmt::format("operation {} is not under way", number)};
}

bool FlashQueue::in_dram(PhysicalPageAddress page) const {
  bool found = open_.contains(line_of(page));
  visit([&](const FlashOp& op) {
    found = found || (op.kind == PageOpKind::program && std::ranges::find(op.units, page) != op.units.end());
  });
  return found;
}

std::vector<std::uint64_t> FlashQueue::programs_of(const std::vector<PhysicalPageAddress>& pages) const {
  std::set<std::uint64_t> wanted, found;
  for (const PhysicalPageAddress page : pages) wanted.insert(page.value);
  visit([&](const FlashOp& op) {
    if (op.kind != PageOpKind::program) return;
    for (const PhysicalPageAddress unit : op.units)
      if (wanted.contains(unit.value)) found.insert(op.number);
  });
  return {found.begin(), found.end()};
}

std::vector<std::uint64_t> FlashQueue::programs() const {
  std::vector<std::uint64_t> numbers;
  visit([&](const FlashOp& op) {
    if (op.kind == PageOpKind::program) numbers.push_back(op.number);
  });
  return numbers;
}

std::vector<PhysicalPageAddress> FlashQueue::open_lines() const {
  std::vector<PhysicalPageAddress> pages;
  for (const auto& [line, units] : open_) pages.push_back(units.front());
  return pages;
}

std::vector<const FlashOp*> FlashQueue::pending() const {
  std::vector<const FlashOp*> ops;
  visit([&](const FlashOp& op) { ops.push_back(&op); });
  return ops;
}

std::vector<PhysicalPageAddress> FlashQueue::open_units() const {
  std::vector<PhysicalPageAddress> units;
  for (const auto& [line, of_line] : open_) units.insert(units.end(), of_line.begin(), of_line.end());
  return units;
}

void FlashQueue::lose_power(const std::vector<FlashOp>& begun) {
  for (const FlashOp& op : begun) {
    const std::uint64_t line = line_of(op.units[0]);
    if (op.kind == PageOpKind::program) run(op);
    if (op.kind == PageOpKind::erase)
      std::fill_n(programmed_.begin() + static_cast<std::ptrdiff_t>(line), geometry_.pages_per_block / line_, true);
  }
  plans_.clear();
  open_.clear();
  replaced_.clear();
}

}  // namespace csdsim::ftl::durability

#include "csd_model/firmware/plan_runner.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>
#include <utility>

namespace csdsim::csd_model {

using ftl::Phase;

namespace {

bool changes_flash(const std::vector<Phase>& phases) {
  return std::ranges::any_of(phases, [](const Phase& phase) {
    return std::ranges::any_of(phase, [](const PageOp& op) { return op.kind != PageOpKind::read; });
  });
}

/// Operation of phase `phase` of a plan that is in line which goes to the flash without waiting for its turn: a page
/// of the host keeps its content until an operation of a later plan reaches its plane.
bool goes_ahead(std::size_t phase, const PageOp& op) {
  return phase == 0 && op.kind == PageOpKind::read && op.op_class == OpClass::host;
}

}  // namespace

void PlanRunner::run(std::vector<Phase> phases, Done done, Until until) {
  if (!held_.empty() && changes_flash(phases)) release();
  begin(prepare(std::move(phases), std::move(done), until));
}

void PlanRunner::hold(std::vector<Phase> phases, Done done, Until until) {
  for (const Phase& phase : phases)
    for (const PageOp& op : phase)
      if (op.kind == PageOpKind::program) held_pages_.insert(op.ppa.value);
  held_.push_back(prepare(std::move(phases), std::move(done), until));
}

void PlanRunner::release() {
  if (held_.empty()) return;
  held_pages_.clear();
  for (const RunPtr& run : std::exchange(held_, {})) begin(run);
}

PlanRunner::RunPtr PlanRunner::prepare(std::vector<Phase> phases, Done done, Until until) {
  const auto run = std::make_shared<Run>();
  run->number = ++planned_;
  run->phases = std::move(phases);
  run->done = std::move(done);
  run->writes = until == Until::programs;
  std::vector<std::uint64_t> begun_before;
  if (packs_) begun_before = pack_plan(*run, until);
  for (const Phase& phase : run->phases)
    for (const PageOp& op : phase)
      if (op.kind == PageOpKind::program && std::erase(begun_before, line_of(op.ppa)) == 0)
        expect_program(line_of(op.ppa), run->number);
  if (load_ != nullptr) add_load(*run);
  return run;
}

void PlanRunner::add_load(Run& run) {
  for (const Phase& phase : run.phases)
    for (const PageOp& op : phase) {
      const PlaneId plane = plane_of(op);
      const SimTime work = load_->times().of(op);
      if (!run.load.empty() && run.load.back().first == plane)
        run.load.back().second += work;
      else
        run.load.emplace_back(plane, work);
    }
  for (const auto& [plane, work] : run.load) load_->add(plane, work);
}

void PlanRunner::end(const RunPtr& run) {
  for (const auto& [plane, work] : run->load) load_->remove(plane, work);
  run->done();
  if (run->writes && --writing_ == 0 && written_) written_();
}

/// Turns operations on units into those on the pages that hold them. `packed` is null where nothing is programmed.
void PlanRunner::pack(Phase& ops, Packed* packed) {
  Phase pages;
  for (PageOp op : ops) {
    const bool last = (op.ppa.value + 1) % packing_.line() == 0;
    op.ppa.value /= packing_.units;
    if (op.kind == PageOpKind::read) {
      const auto page = static_cast<std::uint32_t>(packing_.page.value);
      if (!pages.empty() && pages.back().kind == PageOpKind::read && pages.back().ppa == op.ppa) {
        pages.back().channel_bytes = std::min(page, pages.back().channel_bytes + op.channel_bytes);
        continue;
      }
      if (packing_.reads_whole) op.channel_bytes = page;
    } else if (op.kind == PageOpKind::program) {
      const std::uint64_t line = line_of(op.ppa);
      if (packing_.pads && op.op_class == OpClass::host) {
        if (!pages.empty() && pages.back().kind == PageOpKind::program && line_of(pages.back().ppa) == line) {
          pages.back().ppa = op.ppa;
          pages.back().channel_bytes += op.channel_bytes;
          continue;
        }
      } else if (last) {
        packed->filled.push_back(line);
        op.channel_bytes = static_cast<std::uint32_t>(packing_.page.value * packing_.line_pages());
      } else {
        packed->begun.push_back(line);
        if (op.op_class == OpClass::host) packed->host.push_back(line);
        continue;
      }
    }
    pages.push_back(op);
  }
  ops = std::move(pages);
}

/// Turns operations on blocks that span the planes of a die into those of its planes.
void PlanRunner::spread(Phase& ops) const {
  const std::uint32_t planes = packing_.planes, line = packing_.line_pages(), in_block = geometry_.pages_per_block;
  const auto address = [&](std::uint64_t block, std::uint32_t plane, std::uint64_t page) {
    const std::uint64_t die = block / geometry_.blocks_per_plane, in_plane = block % geometry_.blocks_per_plane;
    return PhysicalPageAddress{((die * planes + plane) * geometry_.blocks_per_plane + in_plane) * (in_block / planes) +
                               page};
  };
  Phase of_planes;
  of_planes.reserve(ops.size());
  for (PageOp op : ops) {
    const std::uint64_t block = op.ppa.value / in_block, page = op.ppa.value % in_block;
    const std::uint64_t in_line = page % line, row = page / line * packing_.pages + in_line / planes;
    if (op.kind == PageOpKind::read) {
      op.ppa = address(block, static_cast<std::uint32_t>(in_line % planes), row);
      of_planes.push_back(op);
      continue;
    }
    if (op.kind == PageOpKind::program) op.channel_bytes /= planes;
    for (std::uint32_t plane = 0; plane < planes; ++plane) {
      op.ppa = address(block, plane, row);
      of_planes.push_back(op);
    }
  }
  ops = std::move(of_planes);
}

/// Notes that `plan` begins a program of the word line.
void PlanRunner::expect_program(std::uint64_t line, std::uint64_t plan) {
  const auto [entry, is_first] = programming_.try_emplace(line, Programs{plan, {}});
  if (!is_first) entry->second.later.push_back(plan);
}

/// The next program of the word line has completed.
void PlanRunner::programmed(std::uint64_t line) {
  const auto entry = programming_.find(line);
  std::vector<std::uint64_t>& later = entry->second.later;
  if (!later.empty()) {
    entry->second.next = later.front();
    later.erase(later.begin());
    return;
  }
  programming_.erase(entry);
  let_go_.erase(line);
  if (awaited_.empty()) return;
  const auto waiting = awaited_.extract(line);
  if (waiting.empty()) return;
  for (const Done& done : waiting.mapped()) done();
}

/// Packs the phases of a plan and keeps account of the word lines that are open: they are in DRAM, and who waits for
/// one is called when the plan that programs it is done. Returns the word lines that the plan programs and that were
/// open: their programs are expected already.
std::vector<std::uint64_t> PlanRunner::pack_plan(Run& run, Until until) {
  Packed packed;
  for (Phase& phase : run.phases) pack(phase, &packed);
  std::erase_if(run.phases, [](const Phase& phase) { return phase.empty(); });
  for (const std::uint64_t page : packed.begun)
    if (open_.try_emplace(page).second) expect_program(page, run.number);
  std::vector<Done> waiting;
  std::vector<std::uint64_t> closed;
  for (const std::uint64_t page : packed.filled) {
    const auto open = open_.find(page);
    if (open == open_.end()) continue;  // the units before its last were there when the simulation began
    std::ranges::move(open->second, std::back_inserter(waiting));
    open_.erase(open);
    closed.push_back(page);
  }
  if (until == Until::programs) wait_for_pages(run, std::move(packed.host));
  if (waiting.empty()) return closed;
  run.done = [done = std::move(run.done), waiting = std::move(waiting)] {
    done();
    for (const Done& other : waiting) other();
  };
  return closed;
}

/// The plan is done only when those of `pages` that are still open are programmed as well.
void PlanRunner::wait_for_pages(Run& run, std::vector<std::uint64_t> pages) {
  std::ranges::sort(pages);
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  std::erase_if(pages, [this](std::uint64_t page) { return !open_.contains(page); });
  if (pages.empty()) return;
  run.done = [left = std::make_shared<std::size_t>(1 + pages.size()), done = std::move(run.done)] {
    if (--*left == 0) done();
  };
  for (const std::uint64_t page : pages) open_.at(page).push_back(run.done);
}

bool PlanRunner::leave_pages_open() {
  std::vector<Done> waiting;
  for (auto& [page, of_page] : open_) {
    if (!of_page.empty()) let_go_.insert(page);
    std::ranges::move(of_page, std::back_inserter(waiting));
    of_page.clear();
  }
  for (const Done& done : waiting) done();
  return !waiting.empty();
}

template <class Lines>
std::vector<PhysicalPageAddress> PlanRunner::first_units(const Lines& lines) const {
  std::vector<PhysicalPageAddress> pages;
  for (const std::uint64_t line : lines) pages.push_back({line * packing_.line()});
  std::ranges::sort(pages);
  return pages;
}

std::vector<PhysicalPageAddress> PlanRunner::open_lines() const { return first_units(std::views::keys(open_)); }
std::vector<PhysicalPageAddress> PlanRunner::lines_let_go() const { return first_units(let_go_); }

void PlanRunner::when_programmed(std::span<const PhysicalPageAddress> pages, Done done) {
  std::vector<std::uint64_t> lines;
  for (const PhysicalPageAddress page : pages) {
    const std::uint64_t line = page.value / packing_.line();
    if (programming_.contains(line) && !open_.contains(line)) lines.push_back(line);
  }
  std::ranges::sort(lines);
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  if (lines.empty()) return done();
  const auto programmed = [left = std::make_shared<std::size_t>(lines.size()), done = std::move(done)] {
    if (--*left == 0) done();
  };
  for (const std::uint64_t line : lines) awaited_[line].push_back(programmed);
}

void PlanRunner::begin(const RunPtr& run) {
  if (run->writes) ++writing_;
  if (must_queue(run->phases)) queue(run);
  start_phase(run);
}

/// Plans of one phase that only reads, or on planes without a waiting plan, go to the flash at once. Those of several
/// phases keep their order even where they only read, as a move into open word lines does: a later plan may erase the
/// block before the last phase.
bool PlanRunner::must_queue(const std::vector<Phase>& phases) const {
  if (phases.size() > 1) return true;
  if (lines_.empty() || !changes_flash(phases)) return false;
  return std::ranges::any_of(phases.front(), [&](const PageOp& op) { return lines_.contains(plane_of(op)); });
}

void PlanRunner::queue(const RunPtr& run) {
  run->in_line = true;
  for (std::size_t i = 0; i < run->phases.size(); ++i) {
    std::set<PlaneId> planes;
    for (const PageOp& op : run->phases[i])
      if (!goes_ahead(i, op)) planes.insert(plane_of(op));
    for (const PlaneId plane : planes) ++run->visits[plane];
  }
  for (const auto& [plane, count] : run->visits) lines_[plane].push_back(run);
}

void PlanRunner::start_phase(const RunPtr& run) {
  if (run->phase == run->phases.size()) return end(run);
  const Phase& phase = run->phases[run->phase];
  Phase ready;
  std::set<PlaneId> planes;
  for (const PageOp& op : phase) {
    const PlaneId plane = plane_of(op);
    const bool in_line = run->in_line && !goes_ahead(run->phase, op);
    if (in_line && lines_.at(plane).front() != run) {
      run->waiting[plane].push_back(op);
    } else {
      ready.push_back(op);
      if (in_line) planes.insert(plane);
    }
  }
  run->parts = static_cast<std::uint32_t>(1 + run->waiting.size());
  submit(run, std::move(ready));
  for (const PlaneId plane : planes) visited(run, plane);
}

/// Removes those reads of `plan` whose page an earlier plan still has to program: such a page is in DRAM.
void PlanRunner::leave_out_buffered(Phase& ops, std::uint64_t plan) {
  if (programming_.empty()) return;
  buffer_hits_ += std::erase_if(ops, [this, plan](const PageOp& op) {
    if (op.kind != PageOpKind::read) return false;
    const auto programs = programming_.find(line_of(op.ppa));
    return programs != programming_.end() && programs->second.next < plan;
  });
}

void PlanRunner::submit(const RunPtr& run, Phase ops) {
  leave_out_buffered(ops, run->number);
  if (ops.empty()) return part_done(run);
  std::vector<PhysicalPageAddress> programs;
  for (const PageOp& op : ops)
    if (op.kind == PageOpKind::program) programs.push_back(op.ppa);
  if (packing_.planes > 1) spread(ops);
  flash_.submit(ops, [this, run, programs = std::move(programs)] {
    for (const PhysicalPageAddress ppa : programs) programmed(line_of(ppa));
    part_done(run);
  });
}

/// `run` has submitted the operations of one of its phases for `plane`. After its last one, the next plan follows.
void PlanRunner::visited(RunPtr run, PlaneId plane) {
  while (--run->visits.at(plane) == 0) {
    const auto line = lines_.find(plane);
    line->second.pop_front();
    if (line->second.empty()) {
      lines_.erase(line);
      return;
    }
    run = line->second.front();
    const auto waiting = run->waiting.find(plane);
    if (waiting == run->waiting.end()) return;
    Phase ops = std::move(waiting->second);
    run->waiting.erase(waiting);
    submit(run, std::move(ops));
  }
}

void PlanRunner::part_done(const RunPtr& run) {
  if (--run->parts > 0) return;
  ++run->phase;
  start_phase(run);
}

}  // namespace csdsim::csd_model

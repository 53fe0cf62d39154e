#include "csd_model/firmware/plan_runner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "simulation/sim_time.h"

namespace csdsim::csd_model {

using ftl::Phase;

namespace {

bool changes_flash(const std::vector<Phase>& phases) {
  return std::ranges::any_of(phases, [](const Phase& phase) {
    return std::ranges::any_of(phase, [](const PageOp& op) { return op.kind != PageOpKind::read; });
  });
}

/// Whether a plan does nothing but write units of the host in one word line of so many units, not the last one.
bool is_part_of_line(const std::vector<Phase>& phases, std::uint64_t units) {
  if (phases.size() != 1) return false;
  const std::uint64_t begin = phases[0][0].ppa.value / units * units, last = begin + units - 1;
  return std::ranges::all_of(phases[0], [&](const PageOp& op) {
    return op.kind == PageOpKind::program && op.op_class == OpClass::host && op.ppa.value >= begin &&
           op.ppa.value < last;
  });
}

/// Operation of phase `phase` of a plan that is in line which goes to the flash without waiting for its turn: a page
/// of the host keeps its content until an operation of a later plan reaches its plane. So do other pages; but only
/// where plans go over several planes (`units`) would their reads hold up more than the plane that they work on.
bool goes_ahead(std::size_t phase, const PageOp& op, bool units) {
  return phase == 0 && op.kind == PageOpKind::read && (units || op.op_class == OpClass::host);
}

/// The first unit of each of these word lines of so many units.
std::vector<PhysicalPageAddress> first_units(const std::vector<std::uint64_t>& lines, std::uint64_t units) {
  std::vector<PhysicalPageAddress> pages;
  for (const std::uint64_t line : lines) pages.push_back({line * units});
  return pages;
}

void call(const std::vector<OpenLines::Waiter>& waiting, const Callback<void(const BufferedParts&)>& programmed) {
  for (const OpenLines::Waiter& waiter : waiting) waiter.done ? waiter.done() : programmed(waiter.parts);
}

}  // namespace

void PlanRunner::run(std::vector<Phase> phases, Done done, Until until) {
  if (!held_.empty() && changes_flash(phases)) release();
  if (packs_ && !packing_.pads && !follows_replacements_ && until == Until::programs &&
      is_part_of_line(phases, packing_.line()))
    return join_line(phases[0][0].ppa, std::move(done));
  begin(prepare(std::move(phases), std::move(done), until));
}

void PlanRunner::join_line(PhysicalPageAddress unit, OpenLines::Waiter waiter) {
  release();
  const std::uint64_t line = unit.value / packing_.line(), first = planned_ + 1;
  planned_ += std::max<std::uint32_t>(1, waiter.parts.count);
  if (open_.begin(line, std::move(waiter))) pending_.expect(line, first);
  if (writing_ == 0 && written_) written_();
}

void PlanRunner::program(const PageOp& page, PlaneId plane, std::optional<BlockId> replaced, Done done) {
  release();
  follows_replacements_ = follows_replacements_ || replaced;
  if (packs_ || layout_ || ledger_ != nullptr || (!lines_.empty() && lines_.contains(plane))) {
    const RunPtr run = prepare({{page}}, std::move(done), Until::programs);
    if (replaced) pending_.note_replaced(line_of(page.ppa), *replaced);
    return begin(run);
  }
  pending_.expect(page.ppa.value, ++planned_);
  if (replaced) pending_.note_replaced(page.ppa.value, *replaced);
  if (load_ != nullptr) load_->add(plane, load_->times().program);
  ++writing_;
  const std::uint32_t slot = pages_.take();
  PageProgram& program = pages_[slot];
  program.line = page.ppa.value;
  program.plane = plane;
  program.done = std::move(done);
  flash_.submit({&page, 1}, pages_done_, slot);
}

void PlanRunner::PagesDone::flash_done(std::uint64_t page, const FlashStages& stages) {
  const PageProgram of = runner.pages_.release(page);
  runner.flash_.finish(stages, [&] {
    runner.programmed(of.line);
    if (runner.load_ != nullptr) runner.load_->remove(of.plane, runner.load_->times().program);
    of.done();
    if (--runner.writing_ == 0 && runner.written_) runner.written_();
  });
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
  const RunPtr planned = std::make_shared<Run>();
  Run& run = *planned;
  run.number = ++planned_;
  run.phases = std::move(phases);
  run.done = std::move(done);
  run.writes = until == Until::programs;
  std::vector<std::uint64_t> begun_before;
  if (packs_) begun_before = pack_plan(run, until);
  for (const Phase& phase : run.phases)
    for (const PageOp& op : phase)
      if (op.kind == PageOpKind::program && std::erase(begun_before, line_of(op.ppa)) == 0)
        pending_.expect(line_of(op.ppa), run.number);
  if (follows_replacements_) find_replacing(run);
  if (layout_) layout_->split_erases(run.phases);
  if (load_ != nullptr) add_load(run);
  if (ledger_ != nullptr) tell_planned(run);
  return planned;
}

/// The word line that is programmed, or the block that is erased.
std::uint64_t PlanRunner::place_of(const PageOp& op) const {
  return op.kind == PageOpKind::program ? line_of(op.ppa) : geometry_.block_of(op.ppa).value;
}

void PlanRunner::tell_planned(const Run& run) {
  for (const Phase& phase : run.phases) {
    std::uint64_t erased = FlashLedger::kReserved;
    for (const PageOp& op : phase) {
      if (op.kind == PageOpKind::read) continue;
      const std::uint64_t place = place_of(op);
      if (op.kind == PageOpKind::program) {
        ledger_->planned(op.kind, place);
      } else if (std::exchange(erased, place) != place) {
        ledger_->planned(op.kind, place, layout_ ? layout_->blocks() : 1);
      }
    }
  }
}

/// A program or an erase goes to the flash, on its plane or on all planes of a die.
void PlanRunner::tell_given(const PageOp& op, PlaneId plane, std::uint64_t place) {
  std::vector<std::pair<std::uint32_t, OpClass>> parts;
  for (std::uint32_t i = 0; i < packing_.planes; ++i)
    parts.emplace_back(plane.value * packing_.planes + i, op.op_class);
  ledger_->given(op.kind, place, parts);
}

void PlanRunner::program_reserved(PlaneId plane, Done done) {
  // This geometry has as many pages in a plane as all planes of a die together.
  const std::uint64_t first = std::uint64_t{plane.value} * in_flash_.pages_per_plane();
  Phase ops{{.ppa = {first},
             .kind = PageOpKind::program,
             .op_class = OpClass::map,
             .channel_bytes = static_cast<std::uint32_t>(packing_.page.value * packing_.line_pages())}};
  if (ledger_ != nullptr) {
    ledger_->planned(PageOpKind::program, FlashLedger::kReserved);
    tell_given(ops[0], plane, FlashLedger::kReserved);
  }
  if (packing_.planes > 1) spread(ops);
  flash_.submit(ops, [this, done = std::move(done)] {
    if (ledger_ != nullptr) ledger_->done(PageOpKind::program, FlashLedger::kReserved);
    done();
  });
}

FlashLedger::Found PlanRunner::lose_power() {
  FlashLedger::Found found = ledger_->lose_power(sim_time_now(), open_.open());
  open_.forget();
  lines_.clear();
  pending_.forget();
  pages_ = {};
  replaced_.clear();
  held_.clear();
  held_pages_.clear();
  writing_ = 0;
  return found;
}

void PlanRunner::add_load(Run& run) {
  for (const Phase& phase : run.phases)
    for (const PageOp& op : phase) {
      const PlaneId plane = geometry_.plane_of(op.ppa);
      const SimTime work = load_->times().of(op);
      if (!run.load.empty() && run.load.back().first == plane)
        run.load.back().second += work;
      else
        run.load.emplace_back(plane, work);
    }
  for (const auto& [plane, work] : run.load) load_->add(plane, work);
}

void PlanRunner::end(Run& run) {
  for (const auto& [plane, work] : run.load) load_->remove(plane, work);
  run.done();
  call(run.fills, parts_programmed_);
  if (run.writes && --writing_ == 0 && written_) written_();
}

/// Turns reads of units into those of the pages that hold them.
void PlanRunner::pack_reads(Phase& reads) const {
  const auto page = static_cast<std::uint32_t>(packing_.page.value);
  std::size_t count = 0;
  for (PageOp& op : reads) {
    op.ppa.value = by_units_.quotient(op.ppa.value);
    if (count > 0 && reads[count - 1].ppa == op.ppa) {
      reads[count - 1].channel_bytes = std::min(page, reads[count - 1].channel_bytes + op.channel_bytes);
      continue;
    }
    if (packing_.reads_whole) op.channel_bytes = page;
    reads[count++] = op;
  }
  reads.resize(count);
}

/// Turns operations on units into those on the pages that hold them.
void PlanRunner::pack(Phase& ops, Packed& packed) {
  Phase& pages = packing_ops_;
  pages.clear();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    PageOp op = ops[i];
    const std::uint64_t unit = op.ppa.value, last_of_line = unit - unit % packing_.line() + packing_.line() - 1;
    const bool last = unit == last_of_line;
    op.ppa.value /= packing_.units;
    if (op.kind == PageOpKind::read) {
      // Large units are collected by the request that changes their pages: what it has just moved is in DRAM.
      const auto has = [&](const std::vector<std::uint64_t>& lines) {
        return std::ranges::find(lines, line_of(op.ppa)) != lines.end();
      };
      if (layout_ && has(packed.begun) && !has(packed.filled)) {
        ++buffer_hits_;
        continue;
      }
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
        packed.filled.push_back(line);
        op.channel_bytes = static_cast<std::uint32_t>(packing_.page.value * packing_.line_pages());
      } else {
        packed.begun.push_back(line);
        if (op.op_class == OpClass::host) packed.host.push_back(line);
        // So are the units that follow in the word line.
        while (i + 1 < ops.size() && ops[i + 1].kind == op.kind && ops[i + 1].op_class == op.op_class &&
               ops[i + 1].ppa.value > unit && ops[i + 1].ppa.value < last_of_line)
          ++i;
        continue;
      }
    }
    pages.push_back(op);
  }
  ops.assign(pages.begin(), pages.end());
}

/// Turns operations on reclaim units into those on their blocks, and operations on blocks that span the planes of a die
/// into those of its planes.
void PlanRunner::spread(Phase& ops) const {
  if (layout_)
    for (PageOp& op : ops) op.ppa = layout_->in_flash(op.ppa);
  if (!die_blocks_) return;
  const auto is_read = [](const PageOp& op) { return op.kind == PageOpKind::read; };
  if (std::ranges::all_of(ops, is_read)) {
    for (PageOp& op : ops) op.ppa = die_blocks_->page(op.ppa);
    return;
  }
  Phase of_planes;
  of_planes.reserve(ops.size());
  for (PageOp op : ops) {
    if (op.kind == PageOpKind::program) op.channel_bytes /= packing_.planes;
    const PhysicalPageAddress spanning = op.ppa;
    for (std::uint32_t plane = 0; plane < (is_read(op) ? 1 : packing_.planes); ++plane) {
      op.ppa = is_read(op) ? die_blocks_->page(spanning) : die_blocks_->page(spanning, plane);
      of_planes.push_back(op);
    }
  }
  ops = std::move(of_planes);
}

/// Notes which blocks have older versions of what the plan programs, and finds the programs that its erases wait for.
/// Those that the plan itself runs come in earlier phases. A word line that stays open has nothing that an erase needs:
/// the FTL fills the others before it.
void PlanRunner::find_replacing(Run& run) {
  // The collection behind a request is a plan of its own: what replaces pages then is expected only by the next plan.
  std::erase_if(replaced_, [this](const auto& pair) {
    const auto& [to, old] = pair;
    const std::uint64_t line = to.value / packing_.line();
    if (layout_ && !pending_.contains(line)) return false;
    pending_.note_replaced(line, geometry_.block_of({old.value / packing_.units}));
    return true;
  });
  for (const Phase& phase : run.phases)
    for (const PageOp& op : phase) {
      if (op.kind != PageOpKind::erase) continue;
      std::vector<std::uint64_t> lines = pending_.replacing(geometry_.block_of(op.ppa), run.number);
      std::erase_if(lines, [this](std::uint64_t line) { return open_.contains(line); });
      if (!lines.empty()) run.replacing[geometry_.block_of(op.ppa)] = std::move(lines);
    }
}

/// The next program of the word line has completed.
void PlanRunner::programmed(std::uint64_t line) {
  const std::vector<Done> due = pending_.complete(line);
  if (packs_ && !pending_.contains(line)) open_.programmed(line);
  for (const Done& done : due) done();
}

/// The word lines that the erases among `ops` wait for.
std::vector<std::uint64_t> PlanRunner::awaited_by(const Run& run, std::span<const PageOp> ops) const {
  std::vector<std::uint64_t> lines;
  for (const PageOp& op : ops) {
    if (op.kind != PageOpKind::erase) continue;
    const auto replacing = run.replacing.find(geometry_.block_of(op.ppa));
    if (replacing == run.replacing.end()) continue;
    std::ranges::copy_if(replacing->second, std::back_inserter(lines),
                         [&](std::uint64_t line) { return pending_.contains(line, run.number); });
  }
  return lines;
}

/// Packs the phases of a plan and keeps account of the word lines that are open: they are in DRAM, and who waits for
/// one is called when the plan that programs it is done. Returns the word lines that the plan programs and that were
/// open: their programs are expected already.
std::vector<std::uint64_t> PlanRunner::pack_plan(Run& run, Until until) {
  Packed& packed = packed_;
  packed.begun.clear();
  packed.host.clear();
  packed.filled.clear();
  for (Phase& phase : run.phases) pack(phase, packed);
  std::erase_if(run.phases, [](const Phase& phase) { return phase.empty(); });
  for (const std::uint64_t page : packed.begun)
    if (open_.begin(page)) pending_.expect(page, run.number);
  std::vector<std::uint64_t> closed;
  for (const std::uint64_t page : packed.filled)
    // A line that is not open was begun before the simulation.
    if (open_.close(page, run.fills)) closed.push_back(page);
  if (until == Until::programs && !packed.host.empty()) run.done = open_.wait(packed.host, std::move(run.done));
  return closed;
}

bool PlanRunner::leave_pages_open() {
  const std::vector<OpenLines::Waiter> waiting = open_.let_go();
  call(waiting, parts_programmed_);
  return !waiting.empty();
}

std::vector<PhysicalPageAddress> PlanRunner::lines_let_go() const {
  return first_units(open_.lines_let_go(), packing_.line());
}

std::vector<PhysicalPageAddress> PlanRunner::open_lines() const { return first_units(open_.open(), packing_.line()); }

void PlanRunner::when_programmed(std::span<const PhysicalPageAddress> pages, Done done) {
  std::vector<std::uint64_t> lines;
  for (const PhysicalPageAddress page : pages) {
    const std::uint64_t line = page.value / packing_.line();
    if (pending_.contains(line) && !open_.contains(line)) lines.push_back(line);
  }
  std::ranges::sort(lines);
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  if (lines.empty()) return done();
  pending_.await(lines, std::numeric_limits<std::uint64_t>::max(), std::move(done));
}

void PlanRunner::begin(const RunPtr& run) {
  if (run->writes) ++writing_;
  if (run->phases.empty()) return end(*run);  // all that it writes is in word lines that others fill
  if (must_queue(*run)) queue(run);
  start_phase(run);
}

/// Plans of one phase that only reads, or on planes without a waiting plan, go to the flash at once. Those of several
/// phases keep their order even where they only read, as a move into open word lines does: a later plan may erase the
/// block before the last phase. So do those with an erase that waits.
bool PlanRunner::must_queue(const Run& run) const {
  if (run.phases.size() > 1 || !run.replacing.empty()) return true;
  if (lines_.empty() || !changes_flash(run.phases)) return false;
  return std::ranges::any_of(run.phases.front(), [&](const PageOp& op) { return lines_.contains(plane_of(op)); });
}

void PlanRunner::queue(const RunPtr& run) {
  run->in_line = true;
  for (std::size_t i = 0; i < run->phases.size(); ++i) {
    std::set<PlaneId> planes;
    for (const PageOp& op : run->phases[i])
      if (!goes_ahead(i, op, layout_.has_value())) planes.insert(plane_of(op));
    for (const PlaneId plane : planes) ++run->visits[plane];
  }
  for (const auto& [plane, count] : run->visits) lines_[plane].push_back(run);
}

void PlanRunner::start_phase(const RunPtr& run) {
  if (run->phase == run->phases.size()) return end(*run);
  if (!run->in_line) {  // as with most writes, no operation has to wait for its turn
    run->parts = 1;
    return submit(run, std::move(run->phases[run->phase]));
  }
  const Phase& phase = run->phases[run->phase];
  Phase ready;
  std::set<PlaneId> planes, erasing;
  for (const PageOp& op : phase)
    if (!awaited_by(*run, {&op, 1}).empty()) erasing.insert(plane_of(op));
  for (const PageOp& op : phase) {
    const PlaneId plane = plane_of(op);
    const bool in_line = !goes_ahead(run->phase, op, layout_.has_value());
    if (in_line && (lines_.at(plane).front() != run || erasing.contains(plane))) {
      run->waiting[plane].push_back(op);
    } else {
      ready.push_back(op);
      if (in_line) planes.insert(plane);
    }
  }
  run->parts = static_cast<std::uint32_t>(1 + run->waiting.size());
  for (const PlaneId plane : erasing)
    if (lines_.at(plane).front() == run) wait_to_erase(run, plane);
  submit(run, std::move(ready));
  for (const PlaneId plane : planes) visited(run, plane);
}

/// If the operations of `run` on the plane, whose turn it is, have an erase that has to wait, they go on when it need
/// not wait any more. Returns whether they wait.
bool PlanRunner::wait_to_erase(const RunPtr& run, PlaneId plane) {
  const std::vector<std::uint64_t> lines = awaited_by(*run, run->waiting.at(plane));
  if (lines.empty()) return false;
  pending_.await(lines, run->number, [this, run, plane] { take_turn(run, plane); });
  return true;
}

/// Submits what `run` has waiting for the plane.
void PlanRunner::take_turn(const RunPtr& run, PlaneId plane) {
  const auto waiting = run->waiting.find(plane);
  Phase ops = std::move(waiting->second);
  run->waiting.erase(waiting);
  submit(run, std::move(ops));
  visited(run, plane);
}

void PlanRunner::leave_out_buffered(Phase& ops, std::uint64_t plan) {
  if (pending_.empty()) return;
  buffer_hits_ += std::erase_if(ops, [this, plan](const PageOp& op) {
    if (op.kind != PageOpKind::read) return false;
    return pending_.contains(line_of(op.ppa), plan);
  });
}

void PlanRunner::submit(const RunPtr& run, Phase ops) {
  leave_out_buffered(ops, run->number);
  if (ops.empty()) return part_done(run);
  boost::container::small_vector<std::pair<PageOpKind, std::uint64_t>, 4> changes;
  for (const PageOp& op : ops)
    if (op.kind == PageOpKind::program || (ledger_ != nullptr && op.kind == PageOpKind::erase))
      changes.emplace_back(op.kind, place_of(op));
  if (ledger_ != nullptr)
    for (const PageOp& op : ops)
      if (op.kind != PageOpKind::read) tell_given(op, plane_of(op), place_of(op));
  if (spreads_) spread(ops);
  if (ledger_ == nullptr && changes.size() == 1)  // as nearly all
    return flash_.submit(ops, [this, run, line = changes[0].second] {
      programmed(line);
      part_done(run);
    });
  flash_.submit(ops, [this, run, changes = std::vector(changes.begin(), changes.end())] {
    if (ledger_ != nullptr)
      for (const auto& [kind, place] : changes) ledger_->done(kind, place);
    for (const auto& [kind, place] : changes)
      if (kind == PageOpKind::program) programmed(place);
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
    if (waiting == run->waiting.end() || wait_to_erase(run, plane)) return;
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

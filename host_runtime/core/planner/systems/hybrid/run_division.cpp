#include "host_runtime/core/planner/systems/hybrid/run_division.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace csdsim::host {

namespace {

/// Shares of the prompt, then those of the tokens that join in each piece of the run. None is negative, so that no part
/// ever gives tokens away.
using Course = std::vector<Division>;

/// Ends of the pieces of a run, in decode steps: those of `solved`, cut into up to eight that have a group each.
std::vector<std::uint32_t> ends_of_pieces(const TokenShares& solved, std::uint32_t steps) {
  std::vector<std::uint32_t> given, ends;
  for (const TokenShares::Later& later : solved.later) given.push_back(later.steps);
  if (given.empty()) given.push_back(steps);
  constexpr std::uint32_t kMost = 8;
  const auto pieces = static_cast<std::uint32_t>(given.size());
  std::uint32_t from = 0;
  for (const std::uint32_t end : given) {
    const std::uint32_t cuts = std::clamp(std::min(kMost / pieces, (end - from) / solved.group), 1U, kMost);
    for (std::uint32_t cut = 1; cut <= cuts; ++cut) ends.push_back(from + (end - from) * cut / cuts);
    from = end;
  }
  return ends;
}

/// Searches the course that makes the run fastest.
class RunSearch {
 public:
  RunSearch(const GrowingRun& run, const GivenShares& given, const TokenShares& solved)
      : run_(run),
        given_(given),
        group_(solved.group),
        at_end_(run.inputs_after(run.steps)),
        ends_(ends_of_pieces(solved, run.steps)),
        best_shares_(solved),
        least_(run_time(run, solved)) {
    for (const TokenPart part : kEachPart)
      if (!given[part_index(part)]) open_.push_back(part_index(part));
    best_ = course_of(solved);
  }

  /// Shares that stay.
  void probe_staying(const Division& division) { probe(Course(ends_.size() + 1, division)); }

  void exchange() {
    for (double share = 1.0 / 16; share >= kLeast; share /= 2)
      for (bool better = true; better;) {
        const double before = least_;
        const Course from = best_;
        for (const std::size_t source : open_)
          for (const std::size_t target : open_)
            if (source != target) probe_exchanges(from, source, target, share);
        better = least_ < before;
      }
  }

  /// Gives the drives as many tokens of the prompt as fill whole pages: one page less or more than now, up to two more.
  void probe_page_borders() {
    const std::size_t drives = part_index(TokenPart::drives);
    if (given_[drives] || run_.page_tokens == 0) return;
    const double of_share = double(run_.prompt) / at_end_.rates.drives;  // tokens of a drive
    const Course from = best_;
    const double now = from[0][drives], pages = std::floor(now * of_share / run_.page_tokens);
    for (const double border : {pages - 1, pages, pages + 1, pages + 2}) {
      // One token below a higher border, so that no drive begins the next page.
      const double share = (border * run_.page_tokens - (border > pages ? 1 : 0)) / of_share;
      if (share < 0) continue;
      for (const std::size_t part : open_) {
        if (share < now) probe_moved(from, 0, from.size(), drives, part, now - share);
        if (share > now && from[0][part] >= share - now) probe_moved(from, 0, from.size(), part, drives, share - now);
      }
    }
  }

  const TokenShares& best() const { return best_shares_; }

 private:
  /// The course that `shares` describes, piece by piece.
  Course course_of(const TokenShares& shares) const {
    Course course{Division{}};
    for (const TokenPart part : kEachPart) course[0][part_index(part)] = shares[part].value();
    Division before = tokens_after(shares, 0);
    std::uint32_t from = 0;
    for (const std::uint32_t end : ends_) {
      const Division after = tokens_after(shares, end);
      Division& joined = course.emplace_back();
      for (std::size_t part = 0; part < kTokenParts; ++part)
        joined[part] = std::max(0.0, after[part] - before[part]) / (end - from);
      before = after, from = end;
    }
    return course;
  }

  TokenShares shares_of(const Course& course) const {
    TokenShares shares = rounded(course[0], given_, group_);
    shares.prompt = run_.prompt;
    Division tokens = tokens_after(shares, 0);
    std::uint32_t from = 0;
    for (std::size_t piece = 0; piece < ends_.size(); ++piece) {
      TokenShares::Later& later = shares.later.emplace_back(ends_[piece]);
      for (std::size_t part = 0; part < kTokenParts; ++part) {
        tokens[part] += course[piece + 1][part] * (ends_[piece] - from);
        later.share[part] = tokens[part] / (double(run_.prompt) + ends_[piece]);
      }
      from = ends_[piece];
    }
    return shares;
  }

  void probe(const Course& course) {
    const TokenShares shares = shares_of(course);
    if (!fits(at_end_, shares.later.back().share)) return;
    if (const double time = run_time(run_, shares); time < least_ * (1 - kBetter))
      least_ = time, best_ = course, best_shares_ = shares;
  }

  /// Moves a share in the items [first, end) of the course: 0 is the prompt, then come the pieces.
  void probe_moved(Course course, std::size_t first, std::size_t end, std::size_t source, std::size_t target,
                   double share) {
    double most = 0;
    for (std::size_t i = first; i < end; ++i) {
      most = std::max(most, course[i][source]);
      course[i] = moved(course[i], source, target, share);
    }
    if (most > 0) probe(course);
  }

  void probe_exchanges(const Course& from, std::size_t source, std::size_t target, double share) {
    probe_moved(from, 0, 1, source, target, share);
    probe_moved(from, 0, from.size(), source, target, share);
    // Larger shares of new tokens: they join in groups, so that small shares would change nothing.
    const double of_new = 16 * share;
    std::uint32_t begin = 0;
    for (std::size_t piece = 0; piece < ends_.size(); ++piece) {
      if (of_new * (ends_[piece] - begin) * 2 >= group_)
        probe_moved(from, piece + 1, piece + 2, source, target, of_new);
      begin = ends_[piece];
    }
  }

  static constexpr double kLeast = 1.0 / 1024, kBetter = 1e-4;
  const GrowingRun& run_;
  const GivenShares& given_;
  std::uint32_t group_;
  DivisionInputs at_end_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::size_t> open_;
  Course best_;
  TokenShares best_shares_;
  double least_;
};

}  // namespace

TokenShares rounded(const Division& division, const GivenShares& given, std::uint32_t group) {
  constexpr std::uint64_t kWhole = 1'000'000'000'000;
  TokenShares shares{.share = {}, .group = group};
  std::uint64_t left = kWhole;
  std::optional<TokenPart> last;
  for (const TokenPart part : kEachPart)
    if (!given[part_index(part)]) last = part;
  for (const TokenPart part : kEachPart) {
    if (last == part) continue;
    const double share = given[part_index(part)] ? given[part_index(part)]->value()
                                                 : std::round(division[part_index(part)] / kLeastShare) * kLeastShare;
    const std::uint64_t units = std::min(left, static_cast<std::uint64_t>(std::llround(share * double(kWhole))));
    shares[part] = Ratio::of(units, kWhole);
    left -= units;
  }
  // What rounding leaves over goes to the largest share.
  Ratio& rest = last ? shares[*last] : *std::ranges::max_element(shares.share);
  rest = Ratio::of(left + rest.round_of(kWhole), kWhole);
  return shares;
}

LayerTimes layer_times_after(const GrowingRun& run, const KvDivision& division, std::uint32_t steps, double newest,
                             double writes) {
  DivisionInputs inputs = run.inputs_after(steps);
  inputs.cached = double(run.prompt) + steps;
  inputs.newest = newest;
  Division parts{};
  for (const TokenPart part : kEachPart)
    parts[part_index(part)] = division.tokens(part, run.prompt, steps) / inputs.cached;
  std::uint32_t fullest = 0;
  for (std::uint32_t drive = 0; drive < inputs.rates.drives; ++drive)
    fullest = std::max(fullest, division.tokens(DriveIndex{drive}, run.prompt, steps));
  inputs.fullest_drive = fullest;
  inputs.drive_writes = writes;
  return layer_times(inputs, parts);
}

double run_time(const GrowingRun& run, const TokenShares& shares) {
  const KvDivision division(shares, 1, run.inputs_after(0).rates.drives);
  const std::uint32_t intervals = (run.steps + shares.group - 1) / shares.group;
  constexpr std::uint32_t kPoints = 32;
  const std::uint32_t points = std::min(intervals, kPoints);
  double seconds = 0;
  for (std::uint32_t point = 0; point < points; ++point) {
    const auto steps_until = [&](std::uint32_t p) {
      return static_cast<std::uint32_t>(
          std::min<std::uint64_t>(run.steps, std::uint64_t{intervals} * p / points * shares.group));
    };
    const std::uint32_t from = steps_until(point), until = steps_until(point + 1);
    const std::uint32_t at = from + (until - from - 1) / shares.group / 2 * shares.group;
    const double newest = (std::min(shares.group, until - from) - 1) / 2.0;
    const double written =
        division.tokens(TokenPart::drives, run.prompt, until) - division.tokens(TokenPart::drives, run.prompt, from);
    const double writes = written / shares.group / (until - from);
    seconds += (until - from) * layer_times_after(run, division, at, newest, writes).layer;
  }
  return seconds;
}

TokenShares fastest_shares(const GrowingRun& run, const GivenShares& given, const TokenShares& solved,
                           const std::vector<Division>& divisions) {
  RunSearch search(run, given, solved);
  for (const Division& division : divisions) search.probe_staying(division);
  search.exchange();
  search.probe_page_borders();
  search.exchange();
  return search.best();
}

}  // namespace csdsim::host

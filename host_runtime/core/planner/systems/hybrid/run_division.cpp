#include "host_runtime/core/planner/systems/hybrid/run_division.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace csdsim::host {

namespace {

/// Searches the shares that, kept for the whole run, make it fastest.
class StayingShares {
 public:
  StayingShares(const GrowingRun& run, const GivenShares& given, std::uint32_t group)
      : run_(run), given_(given), group_(group), at_end_(run.inputs_after(run.steps)) {
    for (const TokenPart part : kEachPart)
      if (!given[part_index(part)]) open_.push_back(part_index(part));
  }

  void probe(const Division& division) {
    if (std::ranges::any_of(open_, [&](std::size_t part) { return division[part] < 0; })) return;
    if (!fits(at_end_, division)) return;
    if (const double time = run_time(run_, rounded(division, given_, group_)); time < least_ * (1 - kBetter))
      least_ = time, best_ = division;
  }

  void probe_moved(const Division& from, std::size_t source, std::size_t target, double share) {
    if (source != target && from[source] > 0) probe(moved(from, source, target, share));
  }

  /// Gives the drives as many tokens as fill whole pages: one page less or more than now, up to two more.
  void probe_page_borders() {
    const std::size_t drives = part_index(TokenPart::drives);
    if (given_[drives] || run_.page_tokens == 0) return;
    const double of_share = double(run_.prompt) / at_end_.rates.drives;  // tokens of a drive
    const Division from = best_;
    const double pages = std::floor(from[drives] * of_share / run_.page_tokens);
    for (const double border : {pages - 1, pages, pages + 1, pages + 2}) {
      // One token below a higher border, so that no drive begins the next page.
      const double share = (border * run_.page_tokens - (border > pages ? 1 : 0)) / of_share;
      for (const std::size_t part : open_) {
        if (share < from[drives]) probe_moved(from, drives, part, from[drives] - share);
        if (share > from[drives] && from[part] >= share - from[drives])
          probe_moved(from, part, drives, share - from[drives]);
      }
    }
  }

  void exchange() {
    for (double share = 1.0 / 16; share >= kLeast; share /= 2)
      for (bool better = true; better;) {
        const double before = least_;
        const Division from = best_;
        for (const std::size_t source : open_)
          for (const std::size_t target : open_) probe_moved(from, source, target, share);
        better = least_ < before;
      }
  }

  bool found() const { return least_ < std::numeric_limits<double>::infinity(); }
  double least() const { return least_; }
  const Division& best() const { return best_; }

 private:
  static constexpr double kLeast = 1.0 / 1024, kBetter = 1e-4;
  const GrowingRun& run_;
  const GivenShares& given_;
  std::uint32_t group_;
  DivisionInputs at_end_;
  std::vector<std::size_t> open_;
  Division best_{};
  double least_ = std::numeric_limits<double>::infinity();
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

double run_time(const GrowingRun& run, const TokenShares& shares) {
  DivisionInputs inputs = run.inputs_after(0);
  const KvDivision division(shares, 1, inputs.rates.drives);
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
    inputs.cached = double(run.prompt) + at;
    inputs.newest = (std::min(shares.group, until - from) - 1) / 2.0;
    Division parts{};
    for (const TokenPart part : kEachPart)
      parts[part_index(part)] = division.tokens(part, run.prompt, at) / inputs.cached;
    std::uint32_t fullest = 0;
    for (std::uint32_t drive = 0; drive < inputs.rates.drives; ++drive)
      fullest = std::max(fullest, division.tokens(DriveIndex{drive}, run.prompt, at));
    inputs.fullest_drive = fullest;
    const double written =
        division.tokens(TokenPart::drives, run.prompt, until) - division.tokens(TokenPart::drives, run.prompt, from);
    inputs.drive_writes = written / shares.group / (until - from);
    seconds += (until - from) * layer_times(inputs, parts).layer;
  }
  return seconds;
}

TokenShares fastest_shares(const GrowingRun& run, const GivenShares& given, const TokenShares& solved,
                           const std::vector<Division>& divisions) {
  StayingShares search(run, given, solved.group);
  for (const Division& division : divisions) search.probe(division);
  if (!search.found()) return solved;
  search.exchange();
  search.probe_page_borders();
  search.exchange();
  if (run_time(run, solved) <= search.least()) return solved;
  return rounded(search.best(), given, solved.group);
}

}  // namespace csdsim::host

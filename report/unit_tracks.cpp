#include "report/unit_tracks.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::report {
namespace {

/// Windows that may still get bytes.
constexpr std::int64_t kOpenWindows = 16;
constexpr std::uint64_t kValuesPerLength = 4'000;

}  // namespace

std::uint32_t TraceLanes::take(SimTime start, SimTime end) {
  const auto free = std::ranges::find_if(free_at_, [&](SimTime at) { return at <= start; });
  if (free != free_at_.end()) {
    *free = end;
    return static_cast<std::uint32_t>(free - free_at_.begin());
  }
  free_at_.push_back(end);
  return static_cast<std::uint32_t>(free_at_.size() - 1);
}

void RateCounter::add(SimTime start, SimTime end, std::uint64_t bytes) {
  if (written_ >= kValuesPerLength) {
    finish();
    window_ = window_ * 2;
    next_ = (next_ + 1) / 2;
    written_ = 0;
  }
  const std::int64_t first = start.ps / window_.ps, last = std::max(first, (end.ps - 1) / window_.ps);
  const auto duration = static_cast<double>((end - start).ps);
  for (std::int64_t w = first; w <= last; ++w) {
    const double share =
        first == last
            ? 1
            : static_cast<double>(std::min(end.ps, (w + 1) * window_.ps) - std::max(start.ps, w * window_.ps)) /
                  duration;
    windows_[std::max(w, next_)] += share * static_cast<double>(bytes);
    if (w - next_ > kOpenWindows) write_before(w - kOpenWindows);
  }
}

void RateCounter::finish() {
  if (!windows_.empty()) write_before(windows_.rbegin()->first + 1);
  if (last_ != 0) sink_.counter(track_, name_, window_ * next_, 0);
  last_ = 0;
}

void RateCounter::write_before(std::int64_t end) {
  const auto value = [&](std::int64_t window, double bytes) {
    if (bytes == last_) return;
    sink_.counter(track_, name_, SimTime{window * window_.ps}, bytes / window_.seconds());
    last_ = bytes;
    ++written_;
  };
  while (!windows_.empty() && windows_.begin()->first < end) {
    const auto [window, bytes] = *windows_.begin();
    windows_.erase(windows_.begin());
    if (window > next_) value(next_, 0);  // nothing moved in between
    value(window, bytes);
    next_ = window + 1;
  }
}

UnitTracks::UnitTracks(TraceSink& sink, std::uint32_t process, Style style)
    : sink_(sink), process_(process), style_(std::move(style)) {}

TraceTrack UnitTracks::track(std::uint32_t unit, std::uint32_t lane) {
  const auto [at, fresh] = tracks_.try_emplace({unit, lane});
  if (fresh) {
    const std::string name = style_.name(unit);
    at->second = sink_.track(process_, lane == 0 ? name : fmt::format("{} ({})", name, lane + 1),
                             style_.place ? style_.place(unit) : 0, true);
  }
  return at->second;
}

void UnitTracks::work(std::uint32_t unit, std::string_view what, SimTime start, SimTime end, std::uint64_t amount) {
  const TraceTrack on = track(unit, style_.overlaps ? lanes_[unit].take(start, end) : 0);
  if (style_.async)
    sink_.async(on, style_.name(unit), what, start, end, {{style_.amount, amount}});
  else if (style_.amount.empty() || amount == 0)
    sink_.complete(on, what, start, end - start);
  else
    sink_.complete(on, what, start, end - start, {{style_.amount, amount}});
  if (style_.rate.empty() || amount == 0 || end <= start) return;
  const std::uint32_t counted = style_.rate_by_unit ? unit : 0;
  auto rate = rates_.find(counted);
  if (rate == rates_.end())
    rate = rates_
               .try_emplace(counted, sink_, on,
                            style_.rate_by_unit ? fmt::format("{} {}", style_.name(unit), style_.rate) : style_.rate)
               .first;
  rate->second.add(start, end, amount);
}

void UnitTracks::level(std::uint32_t unit, std::uint64_t value, SimTime at) {
  sink_.counter({process_, 0, true}, style_.level(unit), at, static_cast<double>(value));
}

void UnitTracks::finish() {
  for (auto& [unit, rate] : rates_) rate.finish();
}

}  // namespace csdsim::report

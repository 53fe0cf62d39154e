#include "launch/point_runner.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "launch/interrupts.h"
#include "report/files.h"

namespace csdsim::launch {

using nlohmann::ordered_json;

namespace {

/// Exit status of a point whose values are the user's mistake (RunPoint).
constexpr int kUserError = 2;

/// Hash of the executable file.
std::uint64_t program_hash() { return fnv1a64(report::read_file("/proc/self/exe")); }

std::unique_ptr<PointPlaces> places_of(const PointRunnerOptions& options, const std::vector<Point>& points) {
  const HearProgress hear = [&](const PointProgress& p) {
    if (options.point_progress) options.point_progress(points.at(p.index).name, p);
  };
  if (options.ranks != nullptr) return std::make_unique<PointRanks>(*options.ranks, digest_of(points), hear);
  return std::make_unique<PointProcesses>(options.run, options.jobs, hear);
}

}  // namespace

PointRunner::PointRunner(std::vector<Point> points, PointRunnerOptions options)
    : points_(std::move(points)),
      options_(std::move(options)),
      program_hash_(program_hash()),
      places_(places_of(options_, points_)),
      store_(options_.directory),
      failures_(points_.size()),
      ended_(points_.size()) {
  if (const std::size_t runs = store_.runs(); runs > 0 && !options_.resume && !options_.overwrite)
    throw UserError(
        fmt::format("{}: holds the results of {} {}: --resume keeps what is still right, --overwrite "
                    "deletes them, --out DIR writes elsewhere",
                    options_.directory.string(), runs, runs == 1 ? "point" : "points"));
  std::vector<StoredPoint> stored;
  for (std::size_t i = 0; i < points_.size(); ++i) stored.push_back({points_[i].name, points_[i].axes, key(i)});
  store_.begin(stored, options_.resume);
}

int PointRunner::run() {
  start_ = std::chrono::steady_clock::now();
  if (options_.choose) {
    for (auto chosen = options_.choose(rows_); !chosen.empty() && interrupt() == 0; chosen = options_.choose(rows_))
      run_points(chosen);
  } else {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < points_.size(); ++i)
      if (options_.shard.has(i)) all.push_back(i);
    run_points(all);
  }
  std::ranges::sort(rows_, {}, &SweepRow::index);
  store_.write_results(rows_);
  return exit_status_of(rows_);
}

void PointRunner::run_points(const std::vector<std::size_t>& indices) {
  std::vector<std::size_t> order;
  same_as_.clear();
  for (const std::size_t i : indices) {
    const auto [same, is_new] = first_.try_emplace(key(i), i);
    if (is_new) {
      order.push_back(i);
    } else if (std::ranges::find(order, same->second) != order.end()) {
      same_as_[same->second].push_back(i);
    } else {
      follow(i, same->second);
    }
  }
  for (const std::size_t i : order) {
    if (interrupt() != 0) break;
    if (const std::string& refusal = points_[i].refusal; !refusal.empty()) {
      fail(i, kUserError, "does not fit", refusal + "\n");
      continue;
    }
    using enum SweepStore::Stored;
    const SweepStore::Stored stored = store_.find(key(i));
    if (stored == yes) {
      finish(i, "kept");
      continue;
    }
    if (stored == damaged) note(i, "the stored result is damaged: the point runs again");
    while (running_ >= places_->count()) reap();
    if (interrupt() == 0) start(i);
  }
  while (running_ > 0) reap();
  for (const std::size_t i : indices) {
    if (!ended_[i]) continue;
    const auto& [why, exit_status] = failures_[i];
    rows_.push_back({.index = i,
                     .name = points_[i].name,
                     .axes = points_[i].axes,
                     .result = {},
                     .error = why,
                     .exit_status = exit_status});
    if (!why.empty()) continue;
    const std::size_t first = first_.at(key(i));
    if (first != i) rows_.back().same_as = points_[first].name;
    const auto read = read_.find(first);
    rows_.back().result = read == read_.end() ? store_.result(key(i), options_.parts) : read->second;
  }
}

void PointRunner::finish(std::size_t index, const std::string& what, const std::string& said) {
  ++finished_;
  ended_[index] = true;
  note(index, what, said);
  for (const std::size_t same : same_as_[index]) follow(same, index);
}

void PointRunner::follow(std::size_t index, std::size_t other) {
  if (!ended_[other]) return;
  failures_[index] = failures_[other];
  ended_[index] = true;
  ++finished_;
  note(index, fmt::format("same as {}", points_[other].name));
}

std::size_t PointRunner::points_to_run() const {
  if (options_.choose) return options_.most_chosen;
  const std::size_t whole = points_.size() / options_.shard.count;
  return whole + (points_.size() % options_.shard.count > options_.shard.index ? 1 : 0);
}

void PointRunner::start(std::size_t index) {
  places_->start(index, options_.directory / "points" / points_[index].name);
  ++running_;
}

void PointRunner::reap() {
  const EndedPoint point = places_->wait();
  --running_;
  if (interrupt() != 0 && WIFSIGNALED(point.wait_status)) return;
  ++ran_;
  if (!WIFEXITED(point.wait_status) || WEXITSTATUS(point.wait_status) != 0) {
    fail(point);
    return;
  }
  std::string result = report::read_file(point.directory / "result.json");
  ResultParts parts = options_.parts;
  if (!parts.empty()) parts.insert("wall");
  ordered_json read = parts_of(result, parts.empty() ? ResultParts{"wall"} : parts, point.directory.string());
  const double seconds = read["wall"]["wall_s"];
  store_.put(key(point.index), std::move(result), seconds);
  // Whole documents stay on disk: each process is a copy of this one, which should have little memory meanwhile.
  if (!parts.empty()) read_.emplace(point.index, std::move(read));
  finish(point.index, fmt::format("{:.1f} s", seconds));
}

void PointRunner::fail(const EndedPoint& point) {
  const int status = point.wait_status;
  fail(point.index, WIFEXITED(status) ? WEXITSTATUS(status) : 1,
       WIFEXITED(status) ? "failed" : fmt::format("died of signal {}", WTERMSIG(status)),
       report::read_file(messages_of(point.directory)));
}

void PointRunner::fail(std::size_t index, int exit_status, const std::string& what, const std::string& said) {
  failures_[index] = {said.empty() ? what : said.substr(0, said.find_last_not_of('\n') + 1), exit_status};
  finish(index, what, said);
}

void PointRunner::note(std::size_t index, std::string what, std::string said) const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(ran_) / seconds : 0;
  const std::size_t total = points_to_run();
  options_.progress({.finished = finished_,
                     .total = total,
                     .name = points_[index].name,
                     .what = std::move(what),
                     .said = std::move(said),
                     .points_per_s = rate,
                     .left_s = rate > 0 ? static_cast<double>(total - finished_) / rate : 0});
}

std::string PointRunner::key(std::size_t index) const {
  return fmt::format("{:016x}{:016x}", points_[index].fingerprint, program_hash_);
}

int exit_status_of(const std::vector<SweepRow>& rows) {
  int status = 0;
  for (const SweepRow& row : rows)
    if (!row.error.empty()) status = status == 0 ? row.exit_status : std::min(status, row.exit_status);
  return status;
}

std::uint64_t digest_of(const std::vector<Point>& points) {
  std::string text = fmt::format("{:x}", program_hash());
  for (const Point& point : points) text += fmt::format(" {} {:x}", point.name, point.fingerprint);
  return fnv1a64(text);
}

}  // namespace csdsim::launch

#include "launch/point_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>

#include "base/error.h"
#include "base/rng.h"
#include "report/files.h"

namespace csdsim::launch {

using nlohmann::ordered_json;

namespace {

/// The file with a point's stderr.
std::filesystem::path messages(const std::filesystem::path& out) { return out / "stderr.txt"; }

}  // namespace

PointRunner::PointRunner(std::vector<Point> points, PointRunnerOptions options)
    : points_(std::move(points)),
      options_(std::move(options)),
      store_(options_.directory),
      program_hash_(fnv1a64(report::read_file("/proc/self/exe"))),
      results_(points_.size()),
      errors_(points_.size()) {
  std::vector<StoredPoint> stored;
  for (std::size_t i = 0; i < points_.size(); ++i) stored.push_back({points_[i].name, points_[i].axes, key(i)});
  store_.begin(stored, options_.resume);
}

int PointRunner::run() {
  start_ = std::chrono::steady_clock::now();
  std::map<std::string, std::size_t> first;  // by key: the first point with it
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!options_.shard.has(i)) continue;
    const auto [same, is_new] = first.try_emplace(key(i), i);
    if (!is_new) same_as_[same->second].push_back(i);
  }
  std::vector<std::size_t> order;
  for (const auto& [unused, i] : first) order.push_back(i);
  std::ranges::sort(order);
  for (const std::size_t i : order) {
    if (auto stored = store_.find(key(i))) {
      results_[i] = std::move(*stored);
      finish(i, "kept");
      continue;
    }
    while (running_.size() >= options_.jobs) reap();
    start(i);
  }
  while (!running_.empty()) reap();
  store_.write_results(rows());
  return status_;
}

void PointRunner::finish(std::size_t index, const std::string& what, const std::string& said) {
  ++finished_;
  note(index, what, said);
  for (const std::size_t same : same_as_[index]) {
    results_[same] = results_[index];
    errors_[same] = errors_[index];
    ++finished_;
    note(same, fmt::format("same as {}", points_[index].name));
  }
}

std::vector<SweepRow> PointRunner::rows() const {
  std::vector<SweepRow> rows;
  for (std::size_t i = 0; i < points_.size(); ++i)
    if (options_.shard.has(i))
      rows.push_back(
          {.index = i, .name = points_[i].name, .axes = points_[i].axes, .result = results_[i], .error = errors_[i]});
  return rows;
}

std::size_t PointRunner::points_of_shard() const {
  const std::size_t whole = points_.size() / options_.shard.count;
  return whole + (points_.size() % options_.shard.count > options_.shard.index ? 1 : 0);
}

void PointRunner::start(std::size_t index) {
  const std::filesystem::path out = options_.directory / "points" / points_[index].name;
  report::write_file(messages(out), "");
  std::fflush(nullptr);  // or the copy would write what this process has not written yet
  const pid_t parent = getpid(), pid = fork();
  if (pid == -1)
    throw UserError(fmt::format("sweep: a point cannot be started: {}", std::generic_category().message(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) run_point(index, out);
    ::_exit(1);  // the parent had ended before it could take this process with it
  }
  running_[pid] = {index, out};
}

void PointRunner::run_point(std::size_t index, const std::filesystem::path& out) const {
  int status = 1;
  const int file = open(messages(out).c_str(), O_WRONLY | O_TRUNC);
  if (file == -1 || dup2(file, STDERR_FILENO) == -1) ::_exit(status);
  try {
    status = options_.run(index, out);
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(status);  // without destructors: the database belongs to the parent
}

void PointRunner::reap() {
  int status = 0;
  const pid_t pid = waitpid(-1, &status, 0);
  if (pid == -1 && errno != EINTR)
    throw InternalError(fmt::format("sweep: waiting for a point: {}", std::generic_category().message(errno)));
  const auto entry = running_.find(pid);
  if (entry == running_.end()) return;
  const Running point = entry->second;
  running_.erase(entry);
  ++ran_;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail(point, status);
    return;
  }
  ordered_json& result = results_[point.index];
  result = ordered_json::parse(report::read_file(point.directory / "result.json"));
  store_.put(key(point.index), result);
  finish(point.index, fmt::format("{:.1f} s", result["wall"]["wall_s"].get<double>()));
}

void PointRunner::fail(const Running& point, int status) {
  const int exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  status_ = status_ == 0 ? exit_status : std::min(status_, exit_status);
  const std::string what = WIFEXITED(status) ? "failed" : fmt::format("died of signal {}", WTERMSIG(status));
  const std::string said = report::read_file(messages(point.directory));
  errors_[point.index] = said.empty() ? what : said.substr(0, said.find_last_not_of('\n') + 1);
  finish(point.index, what, said);
}

void PointRunner::note(std::size_t index, std::string what, std::string said) const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(ran_) / seconds : 0;
  const std::size_t total = points_of_shard();
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

}  // namespace csdsim::launch

#include "launch/point_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "report/files.h"

namespace csdsim::launch {
namespace {

using nlohmann::json;

std::string packed(const json& message) {
  const std::vector<std::uint8_t> bytes = json::to_cbor(message);
  return {bytes.begin(), bytes.end()};
}

json unpacked(const std::string& message) { return json::from_cbor(message); }

/// The files of a point as {name: content}.
json files_in(const std::filesystem::path& directory) {
  json files = json::object();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const std::string text = report::read_file(entry.path());
    files[entry.path().filename().string()] = json::binary({text.begin(), text.end()});
  }
  return files;
}

/// A folder that is removed at the end.
struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("csdsim-point-{}", getpid());
  ~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
};

}  // namespace

std::filesystem::path messages_of(const std::filesystem::path& out) { return out / "stderr.txt"; }

void PointProcesses::start(std::size_t index, const std::filesystem::path& out) {
  report::write_file(messages_of(out), "");
  std::fflush(nullptr);  // or the copy would write what this process has not written yet
  const pid_t parent = getpid(), pid = fork();
  if (pid == -1)
    throw UserError(fmt::format("sweep: a point cannot be started: {}", std::generic_category().message(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) run_point(index, out);
    ::_exit(1);  // the parent had ended before it could take this process with it
  }
  running_[pid] = {.index = index, .directory = out};
}

void PointProcesses::run_point(std::size_t index, const std::filesystem::path& out) const {
  int status = 1;
  const int file = open(messages_of(out).c_str(), O_WRONLY | O_TRUNC);
  if (file == -1 || dup2(file, STDERR_FILENO) == -1) ::_exit(status);
  try {
    status = run_(index, out);
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(status);  // without destructors: the database belongs to the parent
}

EndedPoint PointProcesses::wait() {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid == -1 && errno != EINTR)
      throw InternalError(fmt::format("sweep: waiting for a point: {}", std::generic_category().message(errno)));
    const auto entry = running_.find(pid);
    if (entry == running_.end()) continue;
    EndedPoint ended = entry->second;
    running_.erase(entry);
    ended.wait_status = status;
    return ended;
  }
}

PointRanks::PointRanks(Ranks& ranks, std::uint64_t digest) : ranks_(ranks) {
  std::string why;
  for (int other = 1; other < ranks.size(); ++other) {
    const auto [from, message] = ranks.receive();
    const json hello = unpacked(message);
    if (hello.contains("error"))
      why = fmt::format("rank {}: {}", from, hello["error"].get<std::string>());
    else if (idle_.insert(from); hello["digest"] != digest)
      why = fmt::format("rank {} has read other files than rank 0, or is another program", from);
  }
  if (why.empty()) return;
  for (const int rank : idle_) ranks_.send(rank, packed({{"end", true}}));
  throw UserError(why);
}

PointRanks::~PointRanks() {
  for (const int rank : idle_) ranks_.send(rank, packed({{"end", true}}));
}

void PointRanks::start(std::size_t index, const std::filesystem::path& out) {
  const int rank = *idle_.begin();
  idle_.erase(idle_.begin());
  running_[rank] = {.index = index, .directory = out};
  ranks_.send(rank, packed({{"point", index}}));
}

EndedPoint PointRanks::wait() {
  const auto [rank, message] = ranks_.receive();
  const json answer = unpacked(message);
  if (answer.contains("error")) throw UserError(fmt::format("rank {}: {}", rank, answer["error"].get<std::string>()));
  EndedPoint ended = running_.at(rank);
  running_.erase(rank);
  idle_.insert(rank);
  ended.wait_status = answer["wait_status"];
  for (const auto& [name, content] : answer["files"].items()) {
    const json::binary_t& bytes = content.get_binary();
    report::write_file(ended.directory / name, std::string(bytes.begin(), bytes.end()));
  }
  return ended;
}

void serve_points(Ranks& ranks, std::uint64_t digest, const RunPoint& run) {
  ranks.send(0, packed({{"digest", digest}}));
  PointProcesses processes(run, 1);
  for (;;) {
    const json task = unpacked(ranks.receive().second);
    if (task.contains("end")) return;
    const TemporaryFolder folder;
    processes.start(task["point"], folder.path);
    const int wait_status = processes.wait().wait_status;
    ranks.send(0, packed({{"wait_status", wait_status}, {"files", files_in(folder.path)}}));
  }
}

void refuse_to_serve(Ranks& ranks, const std::string& why) { ranks.send(0, packed({{"error", why}})); }

}  // namespace csdsim::launch

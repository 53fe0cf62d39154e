#include "launch/point_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "launch/interrupts.h"
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

/// A task has the path of a folder.
constexpr std::size_t kLongestMessage = 16384;

/// The next message of the other end; nothing if that has ended.
std::optional<json> received(int socket) {
  std::string message(kLongestMessage, '\0');
  ssize_t size = 0;
  do {
    size = recv(socket, message.data(), message.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return std::nullopt;
  return unpacked(message.substr(0, static_cast<std::size_t>(size)));
}

/// Sends a message; false if the other end has ended.
bool sent(int socket, const json& message, int flags = 0) {
  const std::string text = packed(message);
  return send(socket, text.data(), text.size(), MSG_NOSIGNAL | flags) == static_cast<ssize_t>(text.size());
}

json progress_message(std::string_view what, std::uint64_t done, std::uint64_t total) {
  return {{"what", what}, {"done", done}, {"total", total}};
}

/// True if a message is of progress: `hear` gets it.
bool is_progress(const json& message, std::size_t index, const HearProgress& hear) {
  if (!message.contains("what")) return false;
  if (hear) hear({.index = index, .what = message["what"], .done = message["done"], .total = message["total"]});
  return true;
}

/// Sends progress to a socket, once a second.
TellProgress told_to(int socket) {
  using Clock = std::chrono::steady_clock;
  return [socket, last = Clock::now()](std::string_view what, std::uint64_t done, std::uint64_t total) mutable {
    constexpr std::chrono::seconds kPause{1};
    if (const auto now = Clock::now(); now - last >= kPause) {
      last = now;
      sent(socket, progress_message(what, done, total), MSG_DONTWAIT);
    }
  };
}

/// A folder that is removed at the end.
struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("csdsim-point-{}", getpid());
  ~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
};

/// Creates the folder of a point with an empty file for its messages.
void make_messages(const std::filesystem::path& out) {
  report::make_directory(out);
  const int file = open(messages_of(out).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file == -1)
    throw UserError(fmt::format("{}: {}", messages_of(out).string(), std::generic_category().message(errno)));
  close(file);
}

}  // namespace

std::filesystem::path messages_of(const std::filesystem::path& out) { return out / "stderr.txt"; }

PointProcesses::~PointProcesses() {
  for (const Copy& copy : copies_) {
    if (copy.point) kill(copy.pid, SIGKILL);
    close(copy.socket);
  }
  for (const Copy& copy : copies_)
    while (waitpid(copy.pid, nullptr, 0) == -1 && errno == EINTR) {
    }
}

void PointProcesses::start(std::size_t index, const std::filesystem::path& out) {
  make_messages(out);
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].point) continue;
    if (give(copies_[i], index, out)) return;
    end(i--);
  }
  if (!give(copies_[new_copy()], index, out))
    throw UserError("sweep: a point cannot be started: its process has ended");
}

std::size_t PointProcesses::new_copy() {
  const auto refuse = [](int why) {
    throw UserError(fmt::format("sweep: a point cannot be started: {}", std::generic_category().message(why)));
  };
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) refuse(errno);
  std::fflush(nullptr);  // or the copy would write what this process has not written yet
  const pid_t parent = getpid(), pid = fork();
  if (pid == -1) {
    const int why = errno;
    for (const int socket : ends) close(socket);
    refuse(why);
  }
  if (pid == 0) {
    forget_interrupts();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) ::_exit(1);  // the parent had ended before it could take this process with it
    for (const Copy& other : copies_) close(other.socket);
    close(ends[0]);
    serve(ends[1]);
    ::_exit(0);  // without destructors: the database belongs to the parent
  }
  close(ends[1]);
  copies_.push_back({.pid = pid, .socket = ends[0]});
  return copies_.size() - 1;
}

bool PointProcesses::give(Copy& copy, std::size_t index, const std::filesystem::path& out) {
  if (sent(copy.socket, {{"point", index}, {"out", out.string()}})) copy.point = {.index = index, .directory = out};
  return copy.point.has_value();
}

int PointProcesses::end(std::size_t copy) {
  int status = 0;
  const Copy ended = copies_[copy];
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(copy));
  close(ended.socket);
  while (waitpid(ended.pid, &status, 0) == -1)
    if (errno != EINTR)
      throw InternalError(fmt::format("sweep: waiting for a point: {}", std::generic_category().message(errno)));
  return status;
}

void PointProcesses::serve(int socket) const {
  constexpr std::clock_t kShort = CLOCKS_PER_SEC;  // time of this process, so that it lasts as long on a busy machine
  while (const std::optional<json> task = received(socket)) {
    const int status = run_point((*task)["point"], (*task)["out"].get<std::string>(), told_to(socket));
    std::fflush(nullptr);
    const bool leaves = status != 0 || std::clock() > kShort;  // it takes no further point
    if (!sent(socket, {{"status", status}, {"leaves", leaves}}) || leaves) return;
  }
}

int PointProcesses::run_point(std::size_t index, const std::filesystem::path& out, const TellProgress& tell) const {
  const int file = open(messages_of(out).c_str(), O_WRONLY | O_TRUNC);
  if (file == -1 || dup2(file, STDERR_FILENO) == -1) return 1;
  close(file);
  try {
    return run_(index, out, tell);
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
  }
  return 1;
}

std::size_t PointProcesses::next_that_speaks() const {
  std::vector<pollfd> sockets;
  for (const Copy& copy : copies_)
    sockets.push_back({.fd = copy.point ? copy.socket : -1, .events = POLLIN, .revents = 0});
  // A signal that comes just before poll() does not end it, so that poll() returns every second.
  for (int count = 0; count <= 0;) {
    if (interrupt() != 0)
      for (const Copy& copy : copies_)
        if (copy.point) kill(copy.pid, SIGKILL);
    count = poll(sockets.data(), sockets.size(), 1000);
    if (count == -1 && errno != EINTR)
      throw InternalError(fmt::format("sweep: waiting for a point: {}", std::generic_category().message(errno)));
  }
  const auto ready = std::ranges::find_if(sockets, [](const pollfd& socket) { return socket.revents != 0; });
  return static_cast<std::size_t>(ready - sockets.begin());
}

EndedPoint PointProcesses::wait() {
  for (;;) {
    const std::size_t at = next_that_speaks();
    const std::optional<json> said = received(copies_.at(at).socket);
    if (said && is_progress(*said, copies_[at].point->index, hear_)) continue;
    EndedPoint point = *std::exchange(copies_[at].point, std::nullopt);
    if (said) point.wait_status = W_EXITCODE((*said)["status"].get<int>(), 0);
    if (!said)
      point.wait_status = end(at);  // the point has ended its process
    else if ((*said)["leaves"].get<bool>())
      end(at);
    return point;
  }
}

PointRanks::PointRanks(Ranks& ranks, std::uint64_t digest, HearProgress hear) : ranks_(ranks), hear_(std::move(hear)) {
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
  int rank = 0;
  json answer;
  do {
    const auto [from, message] = ranks_.receive();
    rank = from;
    answer = unpacked(message);
  } while (is_progress(answer, running_.contains(rank) ? running_[rank].index : 0, hear_));
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
  PointProcesses processes(
      run, 1, [&ranks](const PointProgress& p) { ranks.send(0, packed(progress_message(p.what, p.done, p.total))); });
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

#include "launch/in_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/error.h"

namespace csdsim::launch {
namespace {

using nlohmann::json;

struct Copy {
  pid_t pid = 0;
  int from = -1;  ///< where its answer comes from
};

void write_all(int to, const std::vector<std::uint8_t>& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(to, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno != EINTR) ::_exit(1);
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
}

std::vector<std::uint8_t> read_all(int from) {
  std::vector<std::uint8_t> bytes;
  std::uint8_t block[4096];
  for (;;) {
    const ssize_t count = ::read(from, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return bytes;
    bytes.insert(bytes.end(), block, block + count);
  }
}

/// What a copy sends: the results of its part, or the message of an exception.
json answer(std::size_t first, std::size_t count, std::size_t jobs,
            const std::function<std::vector<double>(std::size_t)>& run) {
  json results = json::array();
  try {
    for (std::size_t i = first; i < count; i += jobs) results.push_back(run(i));
  } catch (const UserError& error) {
    return {{"user_error", error.what()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
  return results;
}

Copy start(const std::function<json()>& answer_of) {
  int ends[2];
  if (pipe(ends) != 0) throw UserError(fmt::format("no pipe: {}", std::generic_category().message(errno)));
  std::fflush(nullptr);  // or the copy would write what this process has not written yet
  const pid_t parent = getpid(), pid = fork();
  if (pid == -1) throw UserError(fmt::format("no process: {}", std::generic_category().message(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) ::_exit(1);
    write_all(ends[1], json::to_cbor(answer_of()));
    ::_exit(0);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

}  // namespace

std::vector<std::vector<double>> run_in_processes(std::size_t count, std::size_t jobs,
                                                  const std::function<std::vector<double>(std::size_t)>& run) {
  std::vector<std::vector<double>> results(count);
  jobs = std::min(jobs, count);
  if (jobs <= 1) {
    for (std::size_t i = 0; i < count; ++i) results[i] = run(i);
    return results;
  }
  std::vector<Copy> copies;
  for (std::size_t first = 0; first < jobs; ++first)
    copies.push_back(start([&] { return answer(first, count, jobs, run); }));
  std::vector<json> answers;
  std::vector<int> ended;
  for (const Copy& copy : copies) {
    answers.push_back(json::from_cbor(read_all(copy.from), true, false));
    close(copy.from);
    while (waitpid(copy.pid, &ended.emplace_back(), 0) == -1 && errno == EINTR) ended.pop_back();
  }
  for (std::size_t first = 0; first < jobs; ++first) {
    const json& part = answers[first];
    if (part.is_object() && part.contains("user_error")) throw UserError(part["user_error"].get<std::string>());
    if (part.is_object()) throw InternalError(part["error"].get<std::string>());
    if (!part.is_array())
      throw InternalError(WIFSIGNALED(ended[first]) ? fmt::format("a process died of signal {}", WTERMSIG(ended[first]))
                                                    : "a process ended without an answer");
    for (std::size_t i = first; i < count; i += jobs) results[i] = part[i / jobs].get<std::vector<double>>();
  }
  return results;
}

}  // namespace csdsim::launch

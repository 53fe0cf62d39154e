#include "app/point_lines.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "app/standard_output.h"
#include "base/text.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

std::size_t columns_of_terminal() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

PointLines::PointLines(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

void PointLines::update(const std::string& name, const launch::PointProgress& progress) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  Running& point = running_.try_emplace(name, Running{.text = {}, .said = now}).first->second;
  point.text = report::progress_text(name, progress.what, progress.done, progress.total);
  if (!terminal_) {
    constexpr std::chrono::seconds kPause{9};  // points say something every second
    if (now - point.said < kPause) return;
    point.said = now;
    print_message(point.text + "\n");
    return;
  }
  std::vector<std::string> texts;
  for (const auto& [unused, running] : running_) texts.push_back(running.text);
  std::fprintf(stderr, "\r\033[K%s", join(texts, "; ").substr(0, columns_of_terminal() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void PointLines::end(const std::string& name) {
  running_.erase(name);
  clear();
}

void PointLines::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace csdsim::app

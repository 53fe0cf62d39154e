#include "csd_model/firmware/open_lines.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace csdsim::csd_model {

bool OpenLines::begin(std::uint64_t line, Waiter waiter) {
  const auto [open, is_new] = lines_.try_emplace(line);
  std::vector<Waiter>& waiting = open->second;
  if (!waiter.done && !waiting.empty() && !waiting.back().done) {
    BufferedParts& last = waiting.back().parts;
    if (last.size == waiter.parts.size && last.group == waiter.parts.group) {
      last.count += waiter.parts.count;
      return is_new;
    }
  }
  waiting.push_back(std::move(waiter));
  return is_new;
}

bool OpenLines::close(std::uint64_t line, std::vector<Waiter>& waiting) {
  const auto open = lines_.find(line);
  if (open == lines_.end()) return false;
  if (waiting.empty())
    waiting = std::move(open->second);
  else
    std::ranges::move(open->second, std::back_inserter(waiting));
  lines_.erase(open);
  return true;
}

OpenLines::Done OpenLines::wait(std::span<const std::uint64_t> lines, Done done) {
  std::vector<std::uint64_t> open(lines.begin(), lines.end());
  std::ranges::sort(open);
  open.erase(std::unique(open.begin(), open.end()), open.end());
  std::erase_if(open, [this](std::uint64_t line) { return !contains(line); });
  if (open.empty()) return done;
  const std::uint32_t waiting = waiting_.put({1 + open.size(), std::move(done)});
  for (const std::uint64_t line : open) wait(line, part_of(waiting));
  return part_of(waiting);
}

/// To be called for one of the things that `waiting` waits for.
OpenLines::Done OpenLines::part_of(std::uint32_t waiting) {
  return [this, waiting] {
    if (--waiting_[waiting].left > 0) return;
    const Done done = std::move(waiting_.release(waiting).done);
    done();
  };
}

std::vector<OpenLines::Waiter> OpenLines::let_go() {
  std::vector<Waiter> waiting;
  for (auto& [line, of_line] : lines_) {
    if (!of_line.empty()) let_go_.insert(line);
    std::ranges::move(of_line, std::back_inserter(waiting));
    of_line.clear();
  }
  return waiting;
}

std::vector<std::uint64_t> OpenLines::open() const {
  std::vector<std::uint64_t> lines;
  for (const auto& [line, waiting] : lines_) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

std::vector<std::uint64_t> OpenLines::lines_let_go() const {
  std::vector<std::uint64_t> lines(let_go_.begin(), let_go_.end());
  std::ranges::sort(lines);
  return lines;
}

}  // namespace csdsim::csd_model

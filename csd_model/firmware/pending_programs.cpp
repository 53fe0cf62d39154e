#include "csd_model/firmware/pending_programs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace csdsim::csd_model {

void PendingPrograms::expect(std::uint64_t line, std::uint64_t plan) {
  const auto [entry, is_first] = lines_.try_emplace(line);
  if (is_first)
    entry->second.next = plan;
  else
    entry->second.later.push_back(plan);
}

void PendingPrograms::note_replaced(std::uint64_t line, BlockId block) {
  const auto programs = lines_.find(line);
  if (programs == lines_.end()) return;
  Programs& of_line = programs->second;
  if (of_line.replace(block)) return;
  if (of_line.replaces == kNone)
    of_line.replaces = block;
  else
    of_line.replaces_too.push_back(block);
  lines_of_[block].push_back(line);
}

void PendingPrograms::drop(BlockId block, std::uint64_t line) {
  std::vector<std::uint64_t>& lines = lines_of_.find(block)->second;
  *std::ranges::find(lines, line) = lines.back();
  lines.pop_back();
}

std::vector<std::uint64_t> PendingPrograms::replacing(BlockId block, std::uint64_t plan) const {
  std::vector<std::uint64_t> found;
  const auto lines = lines_of_.find(block);
  if (lines == lines_of_.end()) return found;
  std::ranges::copy_if(lines->second, std::back_inserter(found),
                       [&](std::uint64_t line) { return contains(line, plan); });
  std::ranges::sort(found);
  return found;
}

void PendingPrograms::await(const std::vector<std::uint64_t>& lines, std::uint64_t plan, Done done) {
  struct Rest {
    std::size_t left;
    Done done;
  };
  const auto rest = std::make_shared<Rest>(lines.size(), std::move(done));
  for (const std::uint64_t line : lines)
    awaited_[line].push_back({plan, [rest] {
                                if (--rest->left == 0) rest->done();
                              }});
}

std::vector<PendingPrograms::Done> PendingPrograms::complete(std::uint64_t line) {
  const auto entry = lines_.find(line);
  std::vector<std::uint64_t>& later = entry->second.later;
  if (later.empty()) {
    if (entry->second.replaces != kNone) drop(entry->second.replaces, line);
    for (const BlockId block : entry->second.replaces_too) drop(block, line);
    lines_.erase(entry);
  } else {
    entry->second.next = later.front();
    later.erase(later.begin());
  }
  std::vector<Done> due;
  if (awaited_.empty()) return due;
  const auto waiting = awaited_.find(line);
  if (waiting == awaited_.end()) return due;
  std::erase_if(waiting->second, [&](Awaiting& one) {
    if (contains(line, one.plan)) return false;
    due.push_back(std::move(one.done));
    return true;
  });
  if (waiting->second.empty()) awaited_.erase(waiting);
  return due;
}

}  // namespace csdsim::csd_model

#include "csd_model/firmware/pending_programs.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace csdsim::csd_model {

void PendingPrograms::expect(std::uint64_t line, std::uint64_t plan) {
  const std::uint32_t slot = programs_.take(), known = lines_.find_or_insert(line, slot);
  if (known == slot) {
    programs_[slot].next = plan;
  } else {
    programs_.give_back(slot);
    programs_[known].later.push_back(plan);
  }
}

void PendingPrograms::note_replaced(std::uint64_t line, BlockId block) {
  const std::uint32_t programs = lines_.find(line);
  if (programs == kNone) return;
  std::uint32_t& first = programs_[programs].replaces;
  for (std::uint32_t known = first; known != kNone; known = replacing_[known].next)
    if (replaced_[known] == block) return;
  const std::uint32_t slot = replacing_.put({line, first});
  if (slot == replaced_.size()) replaced_.emplace_back();
  replaced_[slot] = block;
  first = slot;
}

std::vector<std::uint64_t> PendingPrograms::replacing(BlockId block, std::uint64_t plan) const {
  std::vector<std::uint64_t> found;
  for (std::size_t slot = 0; slot < replaced_.size(); ++slot)
    if (replaced_[slot] == block && contains(replacing_[slot].line, plan)) found.push_back(replacing_[slot].line);
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
  const std::uint32_t slot = lines_.find(line);
  Programs& of_line = programs_[slot];
  if (of_line.later.empty()) {
    for (std::uint32_t replaced = of_line.replaces; replaced != kNone; replaced = replacing_[replaced].next) {
      replaced_[replaced] = kNoBlock;
      replacing_.give_back(replaced);
    }
    of_line.replaces = kNone;
    lines_.erase(line);
    programs_.give_back(slot);
  } else {
    of_line.next = of_line.later.front();
    of_line.later.erase(of_line.later.begin());
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

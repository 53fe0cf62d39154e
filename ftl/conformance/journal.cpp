#include "ftl/conformance/journal.h"

#include <fmt/format.h>

#include <algorithm>

namespace csdsim::ftl::conformance {
namespace {

constexpr std::array<std::string_view, 11> kOperationNames{
    "append", "advance", "create", "complete a job", "complete an erase", "attend",
    "pin",    "unpin",   "fork",   "free",           "power loss"};

}  // namespace

void Journal::begin_case() {
  ++cases_;
  in_case_ = true;
}

void Journal::begin_drive(const Setup& setup) {
  operation_ = 0;
  length_ = 0;
  call_ = nullptr;
  note("drive: " + to_string(setup));
}

void Journal::begin_operation(std::size_t operation, Operation::Kind kind) {
  operation_ = operation;
  kind_ = kind;
  ++operations_;
}

void Journal::note(std::string_view line) {
  if (line.size() + 1 > lines_.size() - length_) return;
  std::ranges::copy(line, lines_.begin() + static_cast<std::ptrdiff_t>(length_));
  lines_[length_ + line.size()] = '\n';
  length_ += line.size() + 1;
}

std::string Journal::text() const {
  const char* const call = call_;
  std::string text = fmt::format("in case {}, operation {} ({}){}\n", cases_.load(), operation_ + 1,
                                 kOperationNames[static_cast<std::size_t>(kind_)],
                                 call == nullptr ? "" : fmt::format(", in {}()", call));
  std::string_view lines(lines_.data(), length_);
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    text += fmt::format("  {}\n", lines.substr(0, end));
    lines.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace csdsim::ftl::conformance

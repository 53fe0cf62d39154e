#include "base/config/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"

namespace csdsim::config {

ConfigError::ConfigError(std::vector<std::string> messages)
    : UserError(join(messages, "\n")), messages_(std::move(messages)) {}

void Diagnostics::error(const Origin& origin, const std::string& message) { errors_.push_back({origin, message}); }
void Diagnostics::note(const Origin& origin, const std::string& message) { notes_.push_back({origin, message}); }

void Diagnostics::add(const Diagnostics& other) {
  errors_.insert(errors_.end(), other.errors_.begin(), other.errors_.end());
  notes_.insert(notes_.end(), other.notes_.begin(), other.notes_.end());
}

std::vector<std::string> Diagnostics::render(std::vector<Message> messages, std::string_view severity) {
  // Messages with a line number come first. Equal ones keep the order in which they were found.
  std::stable_sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) {
    const auto key = [](const Message& m) {
      return std::tuple(m.origin.line == 0, m.origin.line == 0 ? std::string() : m.origin.source, m.origin.line,
                        m.origin.column);
    };
    return key(a) < key(b);
  });
  std::vector<std::string> lines;
  for (const Message& m : messages) {
    std::string line = fmt::format("{}: {}: {}", m.origin.text(), severity, m.text);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> Diagnostics::errors() const { return render(errors_, "error"); }
std::vector<std::string> Diagnostics::notes() const { return render(notes_, "note"); }

void Diagnostics::throw_if_any() const {
  if (!ok()) throw ConfigError(errors());
}

}  // namespace csdsim::config

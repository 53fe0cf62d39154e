#include "report/table.h"

#include <algorithm>
#include <cctype>

namespace csdsim::report {
namespace {

/// Number of columns that UTF-8 text without combining characters takes on the screen.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool looks_numeric(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '-' || cell[0] == '+';
}

}  // namespace

std::string Table::to_text() const {
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> width(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::size_t c = 0; c < std::min(columns, rows_[r].size()); ++c) {
      width[c] = std::max(width[c], display_width(rows_[r][c]));
      if (r > 0 && !looks_numeric(rows_[r][c])) numeric[c] = false;
    }

  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string cell = c < rows_[r].size() ? rows_[r][c] : "";
      const std::string padding(width[c] - display_width(cell), ' ');
      line += (c == 0 ? "" : "  ") + (numeric[c] ? padding + cell : cell + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r == 0) {
      for (std::size_t c = 0; c < columns; ++c) text += (c == 0 ? "" : "  ") + std::string(width[c], '-');
      text += '\n';
    }
  }
  return text;
}

}  // namespace csdsim::report

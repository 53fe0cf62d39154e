// Formats plain text tables with aligned columns.
#pragma once

#include <string>
#include <vector>

namespace csdsim::report {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  /// Adds a row with as many cells as the header; missing cells are empty.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Formats the table: columns separated by two spaces, a rule under the header, numeric columns right-aligned.
  std::string to_text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace csdsim::report

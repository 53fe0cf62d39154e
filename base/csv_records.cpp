#include "base/csv_records.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim {
namespace {

/// What a heading without commas was probably separated by.
std::string separator_hint(std::string_view heading) {
  if (heading.find(',') != heading.npos) return "";
  if (heading.find(';') != heading.npos) return "; columns are separated by commas, not semicolons";
  if (heading.find('\t') != heading.npos) return "; columns are separated by commas, not tabs";
  return "";
}

}  // namespace

CsvRecords::CsvRecords(const std::filesystem::path& file, const FieldNames& names,
                       const std::vector<std::size_t>& required)
    : lines_(file), columns_(names.size()) {
  const std::optional<std::string_view> heading = lines_.next();
  if (!heading) throw UserError(fmt::format("{}: error: is empty; the first line names the columns", file.string()));
  for (const TextField& column : comma_separated(*heading)) {
    const std::optional<std::size_t> field = names.find(column.text);
    if (!field) lines_.fail(line(), column.column, names.unknown("column", column.text) + separator_hint(*heading));
    if (columns_[*field])
      lines_.fail(line(), column.column, fmt::format("a second column for the same: {}", names.name(*field)));
    columns_[*field] = count_++;
  }
  for (const std::size_t field : required)
    if (!columns_[field])
      lines_.fail(line(), 1, fmt::format("no column {}; the first line names the columns", names.name(field)));
}

bool CsvRecords::next() {
  const std::optional<std::string_view> line = lines_.next();
  if (!line) return false;
  values_ = comma_separated(*line);
  if (values_.size() != count_)
    lines_.fail(lines_.line(), values_.back().column, fmt::format("{} values in {} columns", values_.size(), count_));
  return true;
}

LocatedValue CsvRecords::at(std::size_t field) const {
  const TextField& value = values_[*columns_[field]];
  return {value.text, this, value.column};
}

std::optional<LocatedValue> CsvRecords::find(std::size_t field) const {
  if (!has_column(field) || at(field).text.empty()) return std::nullopt;
  return at(field);
}

std::string CsvRecords::position(std::size_t offset) const {
  return fmt::format("{}:{}:{}", lines_.file(), lines_.line(), offset);
}

}  // namespace csdsim

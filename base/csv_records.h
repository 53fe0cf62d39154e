// Comma-separated values whose first line names the columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/field_names.h"
#include "base/located_value.h"
#include "base/text_file.h"

namespace csdsim {

/// Reads records one after another. Columns stand in any order, values as comma_separated() takes them.
class CsvRecords final : public TextSource {
 public:
  /// Reads the first line. Throws UserError, located, for unknown and repeated columns and if a column of `required` is
  /// missing; UserError for a file without a line. `names` has to stay.
  CsvRecords(const std::filesystem::path& file, const FieldNames& names, const std::vector<std::size_t>& required);

  /// Reads the next record. False at the end of the file. Throws UserError, located, for a record that has not as many
  /// values as there are columns.
  bool next();
  std::uint64_t line() const { return lines_.line(); }
  bool has_column(std::size_t field) const { return columns_[field].has_value(); }
  /// A value of the record. Precondition: the column is there. Valid until the next record.
  LocatedValue at(std::size_t field) const;
  /// Nothing where there is no such column or its value is empty.
  std::optional<LocatedValue> find(std::size_t field) const;

  /// Says that the last line may be torn (TextLines::torn_note()); empty if it is not.
  std::string torn_note() const { return lines_.torn_note(); }

  std::string position(std::size_t offset) const override;
  std::string remark() const override { return lines_.torn_remark(); }

 private:
  TextLines lines_;
  std::vector<std::optional<std::size_t>> columns_;  ///< by field
  std::size_t count_ = 0;
  std::vector<TextField> values_;
};

}  // namespace csdsim

// A value that was read from a text file, with its place, for errors that say where it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace csdsim {

/// What knows where the values of a file stand.
class TextSource {
 public:
  virtual ~TextSource() = default;
  /// "FILE:LINE:COLUMN". `offset` is one that the source gave to a value.
  virtual std::string position(std::size_t offset) const = 0;
  /// What every error should add, such as that the text may be torn; empty without.
  virtual std::string remark() const { return ""; }
};

/// The text of a value as it stands in the file; of a JSON string with its quotes. Valid as long as its source is.
struct LocatedValue {
  std::string_view text;
  const TextSource* source = nullptr;
  std::size_t offset = 0;

  /// Throws UserError "FILE:LINE:COLUMN: error: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;
};

/// Throws UserError, located, "WHAT: 'TEXT' is not a whole number from LEAST to MOST".
std::uint64_t whole_number(const LocatedValue& value, std::string_view what, std::uint64_t least, std::uint64_t most);

/// Throws UserError, located, "WHAT: 'TEXT' is not a number from LEAST to MOST".
double real_number(const LocatedValue& value, std::string_view what, double least, double most);

}  // namespace csdsim

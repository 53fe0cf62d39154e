// The fields of a record by the names that files use for them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim {

/// A format's fields, numbered from 0 in the order given; each has one name or several.
class FieldNames {
 public:
  using Names = std::vector<std::string_view>;
  FieldNames(std::initializer_list<Names> fields) : fields_(fields) {}

  std::size_t size() const { return fields_.size(); }
  /// The first name of a field.
  std::string_view name(std::size_t field) const { return fields_[field].front(); }
  std::optional<std::size_t> find(std::string_view name) const;
  /// "unknown WHAT 'NAME' (did you mean X?); known are A, B, C"
  std::string unknown(std::string_view what, std::string_view name) const;

 private:
  std::vector<Names> fields_;
};

}  // namespace csdsim

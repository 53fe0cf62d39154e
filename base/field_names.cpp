#include "base/field_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace csdsim {

std::optional<std::size_t> FieldNames::find(std::string_view name) const {
  for (std::size_t field = 0; field < fields_.size(); ++field)
    if (std::ranges::find(fields_[field], name) != fields_[field].end()) return field;
  return std::nullopt;
}

std::string FieldNames::unknown(std::string_view what, std::string_view name) const {
  std::vector<std::string> known;
  for (const Names& names : fields_) known.insert(known.end(), names.begin(), names.end());
  return fmt::format("unknown {} '{}'{}; known are {}", what, printable(name), did_you_mean(name, known), join(known));
}

}  // namespace csdsim

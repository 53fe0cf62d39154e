#include "host_runtime/checkpoint/config_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::host {

using nlohmann::json;

const json* ConfigFields::find(const char* field) const {
  read_.emplace(field);
  const auto it = config_.find(field);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigFields::counts(const char* field) const {
  const json* const value = find(field);
  return value != nullptr && !(value->is_number() && *value == 0);
}

void ConfigFields::refuse_unread(UnreadKeyGroups harmless, std::string_view reader) {
  const std::vector<std::string> known(read_.begin(), read_.end());
  for (const auto& [key, value] : config_.items())
    if (!read_.contains(key) && !stands_in(harmless, key) && !value.is_null())
      problem(printable(key), fmt::format("{} does not read this key{}; take it out if it has no effect", reader,
                                          did_you_mean(key, known)));
}

void ConfigFields::problem(std::string_view field, const std::string& what) {
  problems_.push_back(fmt::format("{}: {}: {}", where_, field, what));
}

std::uint32_t ConfigFields::count(const char* field, std::optional<std::uint32_t> otherwise, std::uint32_t least) {
  const json* const value = find(field);
  if (value == nullptr) {
    if (!otherwise) problem(field, "is missing (a positive integer is needed)");
    return otherwise.value_or(1);
  }
  if (value->is_number_unsigned() && *value >= least && *value <= kMaxCount) return value->get<std::uint32_t>();
  problem(field,
          fmt::format("expected an integer from {} to {}, found {}", least, kMaxCount, printable(value->dump())));
  return otherwise.value_or(1);
}

float ConfigFields::number(const char* field, double most, std::optional<float> otherwise) {
  const json* const value = find(field);
  if (value == nullptr) {
    if (!otherwise) problem(field, "is missing (a number above 0 is needed)");
    return otherwise.value_or(1);
  }
  // Also false for what overflows to infinity and for what underflows to 0 in fp32.
  if (value->is_number() && value->get<float>() > 0 && value->get<double>() <= most) return value->get<float>();
  problem(field, fmt::format("expected a number above 0 and at most {}, found {}", most, printable(value->dump())));
  return otherwise.value_or(1);
}

bool ConfigFields::boolean(const char* field, bool otherwise) {
  const json* const value = find(field);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  problem(field, fmt::format("expected true or false, found {}", printable(value->dump())));
  return otherwise;
}

std::string ConfigFields::text(const char* field) {
  const json* const value = find(field);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  problem(field, fmt::format("expected a string, found {}", printable(value->dump())));
  return {};
}

void ConfigFields::only(const char* field, const json& implemented, std::string_view why, const json& also) {
  const json* const value = find(field);
  if (value != nullptr && *value != implemented && *value != also) {
    problem(field, fmt::format("expected {}, found {}: {}", implemented.dump(), printable(value->dump()), why));
  }
}

void ConfigFields::none(const char* field, std::string_view why) {
  if (has(field)) problem(field, fmt::format("is given: {}", why));
}

std::optional<ConfigFields> ConfigFields::object(const char* field) {
  const json* const value = find(field);
  if (value == nullptr) return {};
  if (value->is_object()) return ConfigFields(*value, fmt::format("{}: {}", where_, field), problems_);
  problem(field, fmt::format("expected an object, found {}", printable(value->dump())));
  return {};
}

void throw_problems(const std::vector<std::string>& problems) {
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
}

}  // namespace csdsim::host

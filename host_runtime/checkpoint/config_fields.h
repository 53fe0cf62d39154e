// Reads fields of config.json and collects the problems found.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/checkpoint/known_keys.h"

namespace csdsim::host {

/// Larger than any count of a model, and small enough that a product of two counts cannot overflow.
inline constexpr std::uint32_t kMaxCount = 1u << 24;

/// Reads one object of a config. A field that is null counts as absent. Every reader returns a usable value even if the
/// field is wrong, so that one pass finds all problems.
class ConfigFields {
 public:
  /// `where` begins every message; `config` and `problems` must outlive the reader.
  ConfigFields(const nlohmann::json& config, std::string where, std::vector<std::string>& problems)
      : config_(config), where_(std::move(where)), problems_(problems) {}

  bool has(const char* field) const { return find(field) != nullptr; }
  /// Whether the field is there and neither null nor 0, for fields of which transformers takes 0 for absence.
  bool counts(const char* field) const;
  /// Whether the field is there and null, for fields of which null means another thing than absence.
  bool is_null(const char* field) const { return find(field) == nullptr && config_.contains(field); }
  /// A count in [least, kMaxCount]; required where there is no `otherwise`.
  std::uint32_t count(const char* field, std::optional<std::uint32_t> otherwise = {}, std::uint32_t least = 1);
  /// A number above 0, at most `most`; required where there is no `otherwise`.
  float number(const char* field, double most, std::optional<float> otherwise = {});
  bool boolean(const char* field, bool otherwise);
  /// A string, or "".
  std::string text(const char* field);
  /// Reports the field if it is present with a value other than the one that the decoder implements, or than another
  /// name of that one.
  void only(const char* field, const nlohmann::json& implemented, std::string_view why,
            const nlohmann::json& also = nullptr);
  /// Reports the field if it is present.
  void none(const char* field, std::string_view why);
  /// A reader of the object `field`, which is empty if the field is absent.
  std::optional<ConfigFields> object(const char* field);
  const nlohmann::json* find(const char* field) const;

  /// Reports every field that none of these functions was asked for, except the `harmless` ones (known_keys.h).
  void refuse_unread(UnreadKeyGroups harmless, std::string_view reader);

  void problem(std::string_view field, const std::string& what);

 private:
  const nlohmann::json& config_;
  std::string where_;
  std::vector<std::string>& problems_;
  mutable std::set<std::string, std::less<>> read_;
};

/// Throws a UserError with all problems, one per line; nothing without any.
void throw_problems(const std::vector<std::string>& problems);

}  // namespace csdsim::host

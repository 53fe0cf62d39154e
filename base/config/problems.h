// The interface that checks of a configuration use to query origins and to report problems.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace csdsim::config {

/// Collects problems, each with the path of its parameter in the scenario: "system.ratio".
class Problems {
 public:
  virtual ~Problems() = default;

  /// False when one of the values could not be read and therefore cannot be checked.
  virtual bool readable(std::initializer_list<std::string_view> paths) const = 0;
  /// True if the user gave the value, in the scenario file or a stronger layer.
  virtual bool given(std::string_view path) const = 0;
  /// Records an error at the strongest origin of `paths`, unless `ok` is true or one of the values could not be read.
  virtual void require(bool ok, std::initializer_list<std::string_view> paths, const std::string& message) = 0;
  virtual void error_at(std::string_view path, const std::string& message) = 0;
  virtual void note_at(std::string_view path, const std::string& message) = 0;
  /// Reports that `path` has no effect because of `because`: an error if `path` was given in the same or a stronger
  /// layer, otherwise a note.
  virtual void refuse_unused(std::string_view path, std::string_view because, const std::string& why) = 0;
  /// Returns the parameter that was given in the stronger layer; `second` when both were given in the same layer.
  virtual std::string_view stronger(std::string_view first, std::string_view second) const = 0;
};

}  // namespace csdsim::config

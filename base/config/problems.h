// What a check of a configuration may ask and say, without knowing where the values came from.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace csdsim::config {

/// Collects problems, each at the parameter that it belongs to. Paths are those of the scenario: "system.ratio".
class Problems {
 public:
  virtual ~Problems() = default;

  /// False when one of the values could not be read: then nothing can be said about it.
  virtual bool readable(std::initializer_list<std::string_view> paths) const = 0;
  /// Whether the user gave the value himself, in the scenario file or stronger.
  virtual bool given(std::string_view path) const = 0;
  /// Records an error at the strongest of the origins of `paths` unless `ok` or one of them could not be read.
  virtual void require(bool ok, std::initializer_list<std::string_view> paths, const std::string& message) = 0;
  virtual void error_at(std::string_view path, const std::string& message) = 0;
  virtual void note_at(std::string_view path, const std::string& message) = 0;
  /// `path` has no effect because of `because`: an error where it was given at least as strongly, otherwise a note.
  virtual void refuse_unused(std::string_view path, std::string_view because, const std::string& why) = 0;
  /// The one of two parameters that was given more strongly; the second where both were given alike.
  virtual std::string_view stronger(std::string_view first, std::string_view second) const = 0;
};

}  // namespace csdsim::config

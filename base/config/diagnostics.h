// Collects all errors of a configuration, so that the user sees them at once. Messages about unknown keys are made in
// reader.cpp.
#pragma once

#include <string>
#include <vector>

#include "base/config/node.h"
#include "base/error.h"

namespace csdsim::config {

/// All errors of one configuration. what() has one line per error: "file:line:col: error: ...".
class ConfigError : public UserError {
 public:
  explicit ConfigError(std::vector<std::string> messages);
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::vector<std::string> messages_;
};

class Diagnostics {
 public:
  void error(const Origin& origin, const std::string& message);
  /// Records a remark that is not an error.
  void note(const Origin& origin, const std::string& message);

  /// Appends the errors and notes of `other`.
  void add(const Diagnostics& other);

  bool ok() const { return errors_.empty(); }
  /// "file:line:col: error: ...", in the order of the file, those of the command line last, without duplicates.
  std::vector<std::string> errors() const;
  std::vector<std::string> notes() const;
  /// Throws ConfigError when there are errors.
  void throw_if_any() const;

 private:
  struct Message {
    Origin origin;
    std::string text;
  };
  static std::vector<std::string> render(std::vector<Message> messages, std::string_view severity);

  std::vector<Message> errors_;
  std::vector<Message> notes_;
};

}  // namespace csdsim::config

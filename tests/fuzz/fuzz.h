// The common part of the fuzz targets. A target reads one input, which ends in a result or in a UserError; anything
// else (a signal, another exception, an error of a sanitizer) is a bug. Each source is a libFuzzer program
// (CSDSIM_FUZZ), and all targets are in test_fuzz_corpora, which reads the files of tests/fuzz/corpus.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace csdsim::fuzz {

/// A target; those of a program are registered before main().
struct Target {
  using Read = std::function<void(std::string_view input)>;
  Target(std::string_view target_name, Read read_input) : name(target_name), read(std::move(read_input)) {
    all().push_back(this);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  static std::vector<const Target*>& all();
  /// Reads an input; what the target refuses with a UserError is as it should be.
  void run(std::string_view input) const {
    try {
      read(input);
    } catch (const UserError&) {
    }
  }

  std::string_view
      name;  ///< that of its folder in tests/fuzz/corpus, and of its source, fuzz_NAME.cpp, if that has one
  Read read;
};

/// Writes an input into a file of this name, for readers that take files, and returns its path. The folder is this
/// program's own and is removed at its end.
std::filesystem::path as_file(std::string_view input, const std::string& name);

/// Throws InternalError unless `ok`: for what has to hold of inputs that are accepted.
inline void require(bool ok, const char* what) {
  if (!ok) throw InternalError(what);
}

}  // namespace csdsim::fuzz

// Completion for shells and the manual page, made from the description of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace csdsim::app {

/// A script for bash (and zsh with bashcompinit) that completes commands, options, paths after --set, and the names
/// that `list` and `describe` take.
std::string bash_completion(const CLI::App& cli);

/// The manual page in roff.
std::string manual_page(const CLI::App& cli);

}  // namespace csdsim::app

// Completion for shells and the manual page, made from the description of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace csdsim::app {

/// What `csdsim completion` prints: scripts for shells, and "man".
const std::vector<std::string>& completion_forms();

/// Scripts that complete commands, options, paths and their values after --set, presets, papers, and the names that
/// `list` and `describe` take.
std::string bash_completion(const CLI::App& cli);
std::string zsh_completion(const CLI::App& cli);
std::string fish_completion(const CLI::App& cli);

/// The manual page in roff.
std::string manual_page(const CLI::App& cli);

}  // namespace csdsim::app

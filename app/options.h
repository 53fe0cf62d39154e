// What the files with the options of subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "app/commands.h"

namespace csdsim::app {

/// Output formats by their names in --format.
inline const std::map<std::string, Format> formats{
    {"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}};

/// Files and folders to write.
inline const CLI::Validator kNamed([](const std::string& text) { return text.empty() ? "a name is needed" : ""; }, "");

/// Adds sweep, merge, compare, report and reproduce.
void add_exploration(CLI::App& cli, int& status);

}  // namespace csdsim::app

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

/// Numbers of 64 bits: a negative one would be taken for a large one.
inline const CLI::Validator kWholeNumber(
    [](const std::string& text) { return text.starts_with('-') ? "a whole number from 0 on is needed" : ""; }, "");

/// Adds sweep, merge, compare, report, reproduce and calibrate.
void add_exploration(CLI::App& cli, int& status);

}  // namespace csdsim::app

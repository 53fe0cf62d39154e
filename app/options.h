// Helpers that the options of several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"

namespace csdsim::app {

/// Output formats by their names in --format; the first is the default.
using FormatNames = std::vector<std::pair<std::string, Format>>;
inline const FormatNames kFormats{{"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}};
/// Those of commands that print a row per point.
inline const FormatNames kRowFormats{
    {"table", Format::table}, {"json", Format::json}, {"csv", Format::csv}, {"jsonl", Format::json_lines}};
inline const FormatNames kDocumentFormats{{"table", Format::table}, {"json", Format::json}};

/// Adds --format to a command.
void add_format(CLI::App& command, Format& format, const FormatNames& names = kFormats);

/// What a user reads of a mistake on the command line: what is wrong, what was probably meant, and how to get help.
std::string command_line_error(const CLI::App& cli, const CLI::Error& error, int argc, const char* const* argv);

/// Files and folders to write.
inline const CLI::Validator kNamed([](const std::string& text) { return text.empty() ? "a name is needed" : ""; }, "");

/// Numbers of 64 bits. CLI11 takes a negative one for a large one, and one that is too large for another one.
inline const CLI::Validator kWholeNumber(
    [](const std::string& text) -> std::string {
      std::uint64_t value = 0;
      const auto end = text.data() + text.size();
      if (std::from_chars(text.data(), end, value) == std::from_chars_result{end, {}}) return "";
      return "a whole number from 0 to 18446744073709551615 is needed";
    },
    "");

/// Numbers within bounds that CLI11 prints with 300 digits.
inline CLI::Validator finite_number(bool (*fits)(double), const char* needed) {
  return {[fits, needed](const std::string& text) -> std::string {
            double value = 0;
            const auto end = text.data() + text.size();
            const bool read = std::from_chars(text.data(), end, value) == std::from_chars_result{end, {}};
            return read && std::isfinite(value) && fits(value) ? "" : needed;
          },
          ""};
}
inline const CLI::Validator kPositive = finite_number([](double x) { return x > 0; }, "a number above 0 is needed");
inline const CLI::Validator kNotNegative =
    finite_number([](double x) { return x >= 0; }, "a number of at least 0 is needed");

/// Adds sweep, merge, compare, report, reproduce and calibrate.
void add_exploration(CLI::App& cli, int& status);

/// Adds make-trace.
void add_make_trace(CLI::App& cli, int& status);

}  // namespace csdsim::app

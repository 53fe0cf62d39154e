// Options with names, and what users read of mistakes on the command line.
#include <fmt/format.h>

#include <algorithm>

#include "app/options.h"
#include "base/text.h"

namespace csdsim::app {
namespace {

std::vector<std::string> command_names(const CLI::App& cli) {
  std::vector<std::string> names;
  for (const CLI::App* command : cli.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

/// The options of a command: "--out", ...
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

void add_format(CLI::App& command, Format& format, const FormatNames& names) {
  std::vector<std::string> known;
  for (const auto& [name, unused] : names) known.push_back(name);
  const std::string last = known.back();
  const std::string text =
      fmt::format("{} or {}", join(std::vector<std::string>(known.begin(), known.end() - 1)), last);
  const auto number_of = [names, known, text](std::string& given) -> std::string {
    const auto found = std::ranges::find(names, given, &FormatNames::value_type::first);
    if (found == names.end())
      return fmt::format("'{}' is not {}{}", printable(given), text, did_you_mean(given, known));
    given = std::to_string(static_cast<int>(found->second));  // what CLI11 converts to an enumerator
    return "";
  };
  command.add_option("--format", format, text)->transform(CLI::Validator(number_of, ""))->type_name("NAME");
}

std::string command_line_error(const CLI::App& cli, const CLI::Error& error, int argc, const char* const* argv) {
  const auto chosen = cli.get_subcommands();
  if (chosen.empty()) {
    const std::string help = "; csdsim --help lists the commands\n";
    const std::string first = argc > 1 ? argv[1] : "";
    if (first.empty()) return "csdsim: say what to do: csdsim run scenarios/quickstart.yaml" + help;
    const std::vector<std::string> options = option_names(cli);
    if (first.starts_with('-') && std::ranges::find(options, first) == options.end())
      return fmt::format("csdsim: there is no option '{}'{}{}", printable(first), did_you_mean(first, options), help);
    if (first.starts_with('-')) return fmt::format("csdsim: {}{}", error.what(), help);
    return fmt::format("csdsim: there is no command '{}'{}{}", printable(first),
                       did_you_mean(first, command_names(cli)), help);
  }
  const CLI::App& command = *chosen.front();
  std::string said = error.what(), meant;
  if (said.starts_with(command.get_name() + ": ")) said.erase(0, command.get_name().size() + 2);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    const std::vector<std::string> names = option_names(command);
    if (name.starts_with("--") && std::ranges::find(names, name) == names.end()) meant += did_you_mean(name, names);
  }
  if (command.get_name() == "run" && said.find("not expected: -j") != std::string::npos)
    meant += " (run takes one scenario after the other; csdsim sweep -j runs points side by side)";
  return fmt::format("csdsim {}: {}{}\nAll options: csdsim {} --help\n", command.get_name(), said, meant,
                     command.get_name());
}

}  // namespace csdsim::app

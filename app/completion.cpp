#include "app/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/text.h"
#include "experiment/experiments.h"
#include "host_runtime/core/serving/policy_registry.h"
#include "reproduction/papers.h"
#include "scenario/catalog.h"
#include "scenario/schema.h"

namespace csdsim::app {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& cli) {
  return cli.get_subcommands([](const CLI::App*) { return true; });
}

/// "--jobs -j"
std::string option_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    for (const std::string& name : option->get_snames()) words.push_back("-" + name);
  }
  return join(words, " ");
}

std::string names_of(const std::vector<scenario::CatalogItem>& items) {
  std::vector<std::string> names;
  for (const scenario::CatalogItem& item : items) names.push_back(item.name);
  return join(names, " ");
}

/// Words separated by blanks, separated by commas.
std::string commas(std::string words) {
  std::ranges::replace(words, ' ', ',');
  return words;
}

/// A line of text in roff: hyphens of options stay hyphens, and no line is a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-' || c == '\\') out += '\\';
    out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

}  // namespace

namespace {

/// The words that can stand at each place of a command line, separated by blanks.
struct Words {
  std::string commands, settings;
  std::map<std::string, std::string> options;    ///< by command
  std::map<std::string, std::string> values;     ///< by path of a parameter
  std::map<std::string, std::string> of_option;  ///< by option
  std::map<std::string, std::string> first;      ///< by command: what it may be about
  std::map<std::string, std::string> members;    ///< by what `describe` is about
};

/// Adds the values that a schema lists for each path.
void add_values(const nlohmann::ordered_json& schema, const std::string& path,
                std::map<std::string, std::set<std::string>>& values) {
  const auto add = [&](const nlohmann::ordered_json& value) {
    if (value.is_string() && value.get_ref<const std::string&>().find(' ') == std::string::npos)
      values[path].insert(value);
  };
  for (const auto& [key, part] : schema.items()) {
    if (key == "properties") {
      for (const auto& [name, of] : part.items()) add_values(of, path.empty() ? name : path + "." + name, values);
    } else if (key == "const") {
      add(part);
    } else if (key == "enum" || key == "examples") {
      for (const auto& value : part) add(value);
    } else if (key == "type" && part == "boolean") {
      values[path].insert({"true", "false"});
    } else if (part.is_array()) {
      for (const auto& each : part)
        if (each.is_object()) add_values(each, path, values);
    } else if (part.is_object() && key != "if" && key != "items") {
      add_values(part, path, values);
    }
  }
}

std::string joined(const std::set<std::string>& words) { return join({words.begin(), words.end()}, " "); }

Words words_of(const CLI::App& cli) {
  const auto registries = experiment::registries_with({});
  Words words;
  std::vector<std::string> commands, settings, categories = scenario::catalog_categories();
  for (const CLI::App* command : commands_of(cli)) {
    commands.push_back(command->get_name());
    words.options[command->get_name()] = option_words(*command);
  }
  words.commands = join(commands, " ");
  for (const std::string& path : scenario::parameter_paths(registries)) settings.push_back(path + "=");
  words.settings = join(settings, " ");
  std::map<std::string, std::set<std::string>> values;
  add_values(scenario::scenario_schema(registries), "", values);
  for (const auto& [path, of_path] : values)
    if (!path.empty() && !path.starts_with("sweep") && !path.starts_with('$')) words.values[path] = joined(of_path);
  // The categories of `list` are plurals of what `describe` takes: systems, system.
  for (const std::string& category : categories)
    words.members[category.substr(0, category.size() - 1)] = names_of(scenario::catalog(category, registries));
  words.members["metrics"] = join(scenario::metric_names(experiment::all_metrics(*registries)), " ");
  std::vector<std::string> papers, kinds = scenario::describe_kinds(registries);
  for (const reproduction::PaperName& paper : reproduction::builtin_papers()) papers.push_back(paper.name);
  categories.insert(categories.end(), {"papers", "presets", "evictions", "admissions"});
  kinds.emplace_back("metrics");
  words.first = {{"list", join(categories, " ")},           {"describe", join(kinds, " ")},
                 {"datasheet", words.members["device"]},    {"reproduce", join(papers, " ")},
                 {"test-policy", words.members["mapping"]}, {"completion", join(completion_forms(), " ")}};
  words.of_option = {{"--eviction", join(host::builtin_eviction_policies().names(), " ")},
                     {"--admission", join(host::builtin_admission_policies().names(), " ")}};
  return words;
}

/// Branches of a case of a shell, a line each.
std::string branches(const std::map<std::string, std::string>& words) {
  std::string lines;
  for (const auto& [name, of_name] : words) lines += fmt::format("      {}) words=\"{}\" ;;\n", name, of_name);
  return lines;
}

}  // namespace

const std::vector<std::string>& completion_forms() {
  static const std::vector<std::string> kForms{"bash", "zsh", "fish", "man"};
  return kForms;
}

std::string bash_completion(const CLI::App& cli) {
  const Words words = words_of(cli);
  return fmt::format(R"(# Completion of csdsim for bash: source <(csdsim completion bash)
_csdsim() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=""
  # A value after `--set PATH=`, which bash takes for three words and zsh for one.
  local path="" prefix=""
  if [[ $current == ?*=* ]]; then
    path=${{current%%=*}} prefix=$path=
  elif [[ $current == "=" ]]; then
    path=$before current=""
  elif [[ $before == "=" ]] && ((COMP_CWORD > 1)); then
    path=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  if [[ -n $path ]]; then
    case $path in
{}    esac
    COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "${{current#"$prefix"}}"))
    return
  fi
  if ((COMP_CWORD == 1)); then
    words="{}"
  elif [[ $before == --set ]]; then
    words="{}"
    compopt -o nospace 2>/dev/null
  elif [[ $before == --* && $current != -* ]] && case $before in
{}      *) false ;;
    esac; then
    :
  elif [[ $current == -* ]]; then
    case $command in
{}    esac
  elif ((COMP_CWORD == 2)); then
    case $command in
{}    esac
  elif [[ $command == describe ]] && ((COMP_CWORD == 3)); then
    case $before in
{}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _csdsim csdsim
)",
                     branches(words.values), words.commands, words.settings, branches(words.of_option),
                     branches(words.options), branches(words.first), branches(words.members));
}

std::string zsh_completion(const CLI::App& cli) {
  return "#compdef csdsim\n# Completion of csdsim for zsh: source <(csdsim completion zsh)\n"
         "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" +
         bash_completion(cli);
}

std::string fish_completion(const CLI::App& cli) {
  const Words words = words_of(cli);
  std::string settings = words.settings;
  for (const auto& [path, values] : words.values)
    settings += fmt::format(" {}={{{}}}", path, values.find(' ') == std::string::npos ? values + "," : commas(values));
  std::string text = fmt::format(
      "# Completion of csdsim for fish: csdsim completion fish | source\n"
      "complete -c csdsim -n __fish_use_subcommand -f -a '{}'\n"
      "complete -c csdsim -l set -x -a '{}'\n",
      words.commands, settings);
  for (const auto& [option, of_option] : words.of_option)
    text += fmt::format("complete -c csdsim -l {} -x -a '{}'\n", option.substr(2), of_option);
  for (const CLI::App* command : commands_of(cli))
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        if (name != "set" && !words.of_option.contains("--" + name))
          text += fmt::format("complete -c csdsim -n '__fish_seen_subcommand_from {}' -l {}{}\n", command->get_name(),
                              name, option->get_items_expected_max() > 0 ? " -r" : "");
  for (const auto& [command, of_command] : words.first)
    text += fmt::format("complete -c csdsim -n '__fish_seen_subcommand_from {}' -a '{}'\n", command, of_command);
  return text;
}

std::string manual_page(const CLI::App& cli) {
  std::string page = fmt::format(
      ".TH CSDSIM 1\n.SH NAME\ncsdsim \\- simulates computational storage for language models\n.SH SYNOPSIS\n"
      ".B csdsim\n.I command\n[\n.I options\n]\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      roff(cli.get_description()));
  for (const CLI::App* command : commands_of(cli)) {
    page += fmt::format(".SS {}\n{}\n", command->get_name(), roff(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_positional() ? option->get_name(true) : option->get_name(false, true);
      page += fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(option->get_description()));
    }
  }
  return page +
         ".SH EXIT STATUS\n0: success. 1: an error of csdsim, or a check that failed. 2: an error of the user.\n";
}

}  // namespace csdsim::app

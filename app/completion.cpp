#include "app/completion.h"

#include <fmt/format.h>

#include <vector>

#include "base/text.h"
#include "experiment/experiments.h"
#include "host_runtime/core/serving/policies.h"
#include "report/metrics.h"
#include "scenario/catalog.h"

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

std::string bash_completion(const CLI::App& cli) {
  const auto registries = experiment::registries_with({});
  std::vector<std::string> commands, settings, categories = scenario::catalog_categories();
  std::string options;
  for (const CLI::App* command : commands_of(cli)) {
    commands.push_back(command->get_name());
    options += fmt::format("      {}) words=\"{}\" ;;\n", command->get_name(), option_words(*command));
  }
  for (const std::string& path : scenario::parameter_paths(registries)) settings.push_back(path + "=");
  // The categories of `list` are plurals of what `describe` takes: systems, system.
  std::string members;
  for (const std::string& category : categories)
    members += fmt::format("      {}) words=\"{}\" ;;\n", category.substr(0, category.size() - 1),
                           names_of(scenario::catalog(category, registries)));
  std::vector<std::string> metrics;
  for (const report::Metric& metric : report::metrics(registries->systems)) metrics.emplace_back(metric.name);
  members += fmt::format("      metrics) words=\"{}\" ;;\n", join(metrics, " "));
  categories.insert(categories.end(), {"papers", "presets", "evictions", "admissions"});
  std::vector<std::string> kinds = scenario::describe_kinds(registries);
  kinds.emplace_back("metrics");
  return fmt::format(R"(# Completion of csdsim for bash: source <(csdsim completion bash)
# zsh: autoload -U +X bashcompinit && bashcompinit, then the same.
_csdsim() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=""
  if ((COMP_CWORD == 1)); then
    words="{}"
  elif [[ $before == --set ]]; then
    words="{}"
    compopt -o nospace 2>/dev/null
  elif [[ $before == --eviction ]]; then
    words="{}"
  elif [[ $before == --admission ]]; then
    words="{}"
  elif [[ $current == -* ]]; then
    case $command in
{}    esac
  elif [[ $command == list ]] && ((COMP_CWORD == 2)); then
    words="{}"
  elif [[ $command == describe ]] && ((COMP_CWORD == 2)); then
    words="{}"
  elif [[ $command == describe ]] && ((COMP_CWORD == 3)); then
    case $before in
{}    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _csdsim csdsim
)",
                     join(commands, " "), join(settings, " "), join(host::builtin_eviction_policies().names(), " "),
                     join(host::builtin_admission_policies().names(), " "), options, join(categories, " "),
                     join(kinds, " "), members);
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

// csdsim test-policy: tests whether a mapping policy is correct, and measures its cost.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/plugin.h"
#include "experiment/experiments.h"
#include "experiment/mapping_policies/policy_scenario.h"
#include "experiment/mapping_policies/policy_tables.h"
#include "experiment/runner.h"
#include "ftl/conformance/journal.h"
#include "ftl/conformance/search.h"
#include "ftl/plugin/load_plugin.h"
#include "ftl/policies/registry.h"
#include "report/files.h"
#include "report/text.h"

namespace csdsim::app {

using nlohmann::ordered_json;

namespace {

constexpr std::string_view kReference = "instinfer";

/// The workload that policies are measured on when no scenario is given.
constexpr std::string_view kWork = R"(csdsim: 1
name: test-policy
platform:
  device:
    flash: {channels: 8, dies_per_channel: 4, planes_per_die: 2, blocks_per_plane: 16, pages_per_block: 48}
    dram: {capacity: 512 MiB}
workload: {kind: ftl_policies, sequences: 12}
)";

std::map<std::string, std::string> settings_of(const std::vector<std::string>& given) {
  std::map<std::string, std::string> settings;
  for (const std::string& setting : given) {
    const auto equals = setting.find('=');
    if (equals == std::string::npos) throw UserError(fmt::format("--setting {}: write name=value", setting));
    settings[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return settings;
}

ordered_json property_rows(const ftl::conformance::ConformanceReport& report) {
  ordered_json rows = ordered_json::array();
  for (const auto& property : report.properties) {
    const auto at = static_cast<std::size_t>(property.property);
    rows.push_back({{"property", ftl::conformance::kPropertyNames[at]},
                    {"result", property.broken ? "BROKEN" : "holds"},
                    {"what must hold", ftl::conformance::kPropertyMeaning[at]}});
  }
  return rows;
}

std::vector<experiment::PolicyRow> measure(const std::vector<experiment::PolicyVariant>& policies,
                                           const scenario::Scenario& s) {
  const experiment::PolicyStudyConfig config = experiment::policy_study_config(s);
  const auto selection = experiment::policy_selection(s);
  std::vector<experiment::PolicyRow> rows;
  for (const experiment::PolicyVariant& policy : policies) {
    rows.push_back({policy.policy, "token_index", "auto", experiment::study_policy(config, policy, *selection)});
  }
  return rows;
}

int test_here(const TestPolicyArguments& arguments, ftl::conformance::Journal& journal) {
  ftl::PolicyRegistry registry = ftl::PolicyRegistry::with_builtin();
  const std::string name =
      names_library(arguments.policy) ? ftl::load_mapping_plugin(arguments.policy, registry) : arguments.policy;
  const auto settings = settings_of(arguments.settings);
  const auto make = [&](const FlashGeometry& g) { return registry.make(name, {g, settings}); };
  make(FlashGeometry{});  // throws for a wrong name or setting before the suite runs
  const scenario::Loaded work = arguments.scenario ? experiment::load_scenario(*arguments.scenario)
                                                   : experiment::load_scenario_text(kWork, "test-policy", ".");
  experiment::policy_workload_of(work.base.scenario);  // throws for another kind of workload

  const ftl::conformance::ConformanceReport report = ftl::conformance::check_policy(
      make, {.cases = arguments.cases, .seed = arguments.seed}, {.interfere = {}, .journal = &journal});
  const ftl::conformance::Coverage& c = report.coverage;
  ordered_json document;
  document["policy"] = name;
  document["build"] = experiment::build_info();
  document["seed"] = arguments.seed;
  document["passed"] = report.passed();
  document["coverage"] = {
      {"cases", report.cases}, {"operations", c.operations},   {"sequences", c.sequences},       {"forks", c.forks},
      {"pages", c.pages},      {"moved_pages", c.moved_pages}, {"power_losses", c.power_losses}, {"checks", c.checks}};
  document["properties"] = property_rows(report);
  for (const auto& property : report.properties) {
    if (property.broken) document["counterexamples"].push_back(ftl::conformance::to_text(name, *property.broken));
  }
  // The figures of a policy that loses data mean nothing.
  if (report.passed()) {
    std::vector<experiment::PolicyVariant> policies;
    policies.push_back({name, make, {}});
    if (name != kReference) {
      policies.push_back({std::string(kReference),
                          [&](const FlashGeometry& g) {
                            return registry.make(kReference, {g, {}});
                          },
                          {}});
    }
    const auto rows = measure(policies, work.base.scenario);
    document["tables"] = {{"reads", experiment::read_table(rows)}, {"writes", experiment::write_table(rows)}};
    document["selection"] = experiment::policy_selection_text(work.base.scenario);
  }

  std::string text;
  if (arguments.format == Format::json) {
    text = document.dump(2) + "\n";
  } else {
    text = fmt::format(
        "mapping policy {}: {} cases, {} operations, {} sequences, {} pages, {} power losses; seed {}\n\n{}", name,
        report.cases, c.operations, c.sequences, c.pages, c.power_losses, arguments.seed,
        report::rows_text(document["properties"]));
    if (c.sequences == 0)
      text += "\nThe policy took no sequence: nothing was tested.\n";
    else if (c.token_pages == 0)
      text += "\nThe policy wrote no group of tokens (groups_to_write() gave 0): nothing was tested.\n";
    if (document.contains("counterexamples"))
      for (const auto& example : document["counterexamples"]) text += "\n" + example.get<std::string>();
    if (document.contains("tables")) {
      for (const auto& [title, rows] : document["tables"].items())
        text += fmt::format("\n{}\n{}", title, report::rows_text(rows));
      text += fmt::format("\nSelections: {}.\n", document["selection"].get<std::string>());
    }
  }
  if (arguments.out) report::write_file(*arguments.out / "result.json", document.dump(2) + "\n");
  print_result(text);
  return report.passed() ? 0 : 1;
}

/// The process of a test; what fails is told as main tells it.
int test_guarded(const TestPolicyArguments& arguments, ftl::conformance::Journal& journal) {
  const rlimit limit{.rlim_cur = arguments.limit_s, .rlim_max = arguments.limit_s + 1};
  setrlimit(RLIMIT_CPU, &limit);
  try {
    return test_here(arguments, journal);
  } catch (const UserError& error) {
    print_message(fmt::format("{}\n", error.what()));
    return 2;
  } catch (const std::exception& error) {
    print_message(fmt::format("csdsim: internal error: {}\n", error.what()));
  } catch (...) {
    print_message(fmt::format("{}: has thrown what is no std::exception\n", arguments.policy));
  }
  return 1;
}

/// Processor time of another process.
std::chrono::nanoseconds processor_time(pid_t process) {
  clockid_t clock = 0;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// What the test and the process that watches it share.
struct Shared {
  volatile bool ended = false;
  ftl::conformance::Journal journal;
};

/// How long an operation may take; the slowest take milliseconds.
constexpr std::chrono::seconds kOperationLimit{5};

/// Waits for the child. Kills it if an operation does not end: it has used more processor time than that, or none for
/// twice as long; returns why, or an empty text. What the whole test uses is limited by the system.
std::string wait_for(pid_t child, std::chrono::seconds limit, const ftl::conformance::Journal& journal, int& status) {
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds used{}, used_before{};
  Clock::time_point began = Clock::now(), worked = began;
  const std::chrono::seconds longest_wait = std::min(limit, 2 * kOperationLimit);
  std::string why;
  for (std::uint64_t operations = 0; why.empty();) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child || (ended == -1 && errno != EINTR)) return "";
    const Clock::time_point now = Clock::now();
    const std::chrono::nanoseconds time = processor_time(child);
    if (time != used) worked = now;
    used = time;
    if (journal.operations() != operations || !journal.in_case()) {
      operations = journal.operations();
      used_before = used;
    }
    if (now - worked >= longest_wait)
      why = fmt::format("has used no processor time for {} s: it waits", longest_wait.count());
    else if (used - used_before >= kOperationLimit)
      why = fmt::format("has not returned within {} s of processor time", kOperationLimit.count());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  return why;
}

/// How a test has ended that did not return.
std::string end_of(const TestPolicyArguments& arguments, int status) {
  if (WIFEXITED(status)) return fmt::format("has ended the process, with exit status {}", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGXCPU)
    return fmt::format("has not ended within {} s of processor time (--limit)", arguments.limit_s);
  return fmt::format("has crashed: {} (signal {})", strsignal(WTERMSIG(status)), WTERMSIG(status));
}

}  // namespace

int test_policy(const TestPolicyArguments& arguments) {
  // In a process of its own: a policy may crash, end the process, or never return.
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw UserError(fmt::format("test-policy: no memory: {}", std::generic_category().message(errno)));
  Shared& shared = *new (memory) Shared;
  std::fflush(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child == -1) throw UserError(fmt::format("test-policy: no process: {}", std::generic_category().message(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int status = getppid() == parent ? test_guarded(arguments, shared.journal) : 1;
    std::fflush(nullptr);
    shared.ended = true;
    ::_exit(status);
  }
  int status = 0;
  const std::string killed = wait_for(child, std::chrono::seconds(arguments.limit_s), shared.journal, status);
  if (killed.empty() && WIFEXITED(status) && shared.ended) return WEXITSTATUS(status);
  print_message(fmt::format("{}: {}{}\n", arguments.policy, killed.empty() ? end_of(arguments, status) : killed,
                            shared.journal.in_case() ? ", " + shared.journal.text() : ""));
  return 1;
}

}  // namespace csdsim::app

#include <fmt/format.h>

#include "app/commands.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/evaluation/pool_study.h"
#include "report/csv.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

std::vector<Ratio> shares_of(const std::vector<std::string>& texts) {
  std::vector<Ratio> shares;
  for (const std::string& text : texts) shares.push_back(parse_ratio(text));
  return shares;
}

host::PoolPolicy policy_named(const std::string& name) {
  if (name == "naive") return host::PoolPolicy::naive;
  if (name == "hit-table") return host::PoolPolicy::hit_table;
  throw UserError(fmt::format("pools: unknown policy '{}'; exists: naive, hit-table", printable(name)));
}

/// Every combination. A naive pool has no share that it keeps hot, so there is one row for all of these.
std::vector<host::PoolShares> settings_of(const PoolsArguments& arguments) {
  std::vector<host::PoolShares> settings;
  for (const std::string& name : arguments.policies) {
    const host::PoolPolicy policy = policy_named(name);
    for (const Ratio hot : shares_of(arguments.hot)) {
      for (const Ratio pinned : shares_of(arguments.pinned)) {
        if (policy == host::PoolPolicy::naive) {
          settings.push_back({.hot = hot, .pinned = pinned, .policy = policy});
          continue;
        }
        for (const Ratio kept_hot : shares_of(arguments.kept_hot))
          settings.push_back({.hot = hot, .pinned = pinned, .kept_hot = kept_hot, .policy = policy});
      }
    }
  }
  return settings;
}

}  // namespace

int pools(const PoolsArguments& arguments) {
  const std::vector<host::PoolShares> settings = settings_of(arguments);
  ordered_json rows = ordered_json::array();
  for (const std::filesystem::path& path : arguments.recordings) {
    const experiment::RecordedTokenFile file = experiment::read_tokens(path);
    for (ordered_json& row : experiment::pool_rows(file, settings)) rows.push_back(std::move(row));
  }
  print_result(arguments.format == Format::json  ? ordered_json{{"pools", rows}}.dump(2) + "\n"
               : arguments.format == Format::csv ? report::csv_rows(rows)
                                                 : report::rows_text(rows));
  return 0;
}

}  // namespace csdsim::app

#include "experiment/evaluation/pool_study.h"

#include <filesystem>

namespace csdsim::experiment {

using nlohmann::ordered_json;

ordered_json pool_rows(const RecordedTokenFile& file, const std::vector<host::PoolShares>& settings) {
  ordered_json rows = ordered_json::array();
  for (const host::PoolShares& shares : settings) {
    const host::PoolTraffic traffic = host::replay(file.recording, shares);
    const auto of = [](std::uint64_t part, std::uint64_t all) {
      return all == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(part) / static_cast<double>(all));
    };
    const auto of_context = [&](std::uint64_t tokens) { return of(tokens, traffic.context); };
    const bool naive = shares.policy == host::PoolPolicy::naive;
    rows.push_back({{"model", std::filesystem::path(file.origin.model).filename().string()},
                    {"method", file.origin.method},
                    {"setting", file.origin.setting},
                    {"policy", naive ? "naive" : "hit-table"},
                    {"hot", shares.hot.value()},
                    {"pinned", shares.pinned.value()},
                    {"kept_hot", shares.kept_hot.value()},
                    {"context", of(traffic.context, traffic.steps)},
                    {"cold", of_context(traffic.cold)},
                    {"important", of_context(traffic.important)},
                    {"cold_important", of(traffic.cold_important, traffic.important)},
                    {"promoted", of_context(traffic.promoted)},
                    {"demoted", of_context(traffic.demoted)},
                    {"written", of_context(traffic.written)},
                    {"moved", of_context(traffic.promoted + traffic.demoted)},
                    {"moved_of_cold", of(traffic.promoted + traffic.demoted, traffic.cold)}});
  }
  return rows;
}

}  // namespace csdsim::experiment

#include "experiment/evaluation/pool_study.h"

#include <filesystem>

#include "host_runtime/core/features/token_pools/model/token_locality_fit.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

constexpr std::uint64_t kModelSeed = 1;

std::string model_name(const RecordedTokenFile& file) {
  return std::filesystem::path(file.origin.model).filename().string();
}

}  // namespace

ordered_json pool_rows(const RecordedTokenFile& file, const std::vector<host::PoolShares>& settings) {
  ordered_json rows = ordered_json::array();
  for (const host::PoolShares& shares : settings) {
    const host::PoolTraffic traffic = host::replay(file.recording, shares);
    const auto of = [](std::uint64_t part, std::uint64_t all) {
      return all == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(part) / static_cast<double>(all));
    };
    const auto of_context = [&](std::uint64_t tokens) { return of(tokens, traffic.context); };
    const bool naive = shares.policy == host::PoolPolicy::naive;
    rows.push_back({{"model", model_name(file)},
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

ordered_json locality_rows(const RecordedTokenFile& file, const host::PoolShares& pools) {
  const host::TokenLocalityParams params = host::fit_token_locality(file.recording);
  const auto row = [&](const char* source, const host::TokenRecording& recording) {
    const host::PoolTraffic traffic = host::replay(recording, pools);
    ordered_json json{{"model", model_name(file)}, {"setting", file.origin.setting}, {"tokens", source}};
    json.update(statistics_json(host::statistics(recording)));
    json["cold_important"] = static_cast<double>(traffic.cold_important) / static_cast<double>(traffic.important);
    for (const char* constant : {"concentration", "persistence", "drift"}) json[constant] = nullptr;
    return json;
  };
  ordered_json fitted = row("model", host::model_recording(file.recording, params, kModelSeed));
  fitted["concentration"] = params.concentration;
  fitted["persistence"] = params.persistence;
  fitted["drift"] = params.drift;
  return ordered_json::array({row("recorded", file.recording), std::move(fitted)});
}

}  // namespace csdsim::experiment

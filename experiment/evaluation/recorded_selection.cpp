#include "experiment/evaluation/recorded_selection.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "base/error.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();

std::uint32_t number(const nlohmann::json& json, std::uint32_t below) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() >= below)
    throw UserError(fmt::format("{} is not a whole number below {}", json.dump().substr(0, 40), below));
  return json.get<std::uint32_t>();
}

std::vector<std::uint32_t> indices(const nlohmann::json& json, std::uint32_t below) {
  if (!json.is_array() || json.empty()) throw UserError("a list of indices is missing or empty");
  std::vector<std::uint32_t> all;
  for (const nlohmann::json& each : json) {
    all.push_back(number(each, below));
    if (all.size() > 1 && all[all.size() - 2] >= all.back()) throw UserError("indices do not ascend");
  }
  return all;
}

}  // namespace

void SelectionRecorder::add(SequenceId window, LayerId layer, KvHead head, std::uint32_t tokens,
                            const host::HeadSelection& selection) {
  if (selection.components.empty()) return;
  ordered_json selected = ordered_json::array();
  for (const TokenIndex token : selection.tokens) selected.push_back(token.value);
  records_.push_back({window.value, layer.value, head.value, tokens, selection.components, std::move(selected)});
}

ordered_json SelectionRecorder::document(std::uint32_t head_dim, const std::string& setting, const std::string& model,
                                         const std::string& text) const {
  if (records_.empty()) throw UserError("nothing to record: every context was within k, where attention is dense");
  return {{"csdsim_selection", 1}, {"head_dim", head_dim}, {"setting", setting},
          {"model", model},        {"text", text},         {"records", records_}};
}

engine::RecordedSelection read_selection(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  try {
    if (!json.is_object() || !json.contains("csdsim_selection"))
      throw UserError("is no recording of csdsim eval --record");
    if (json["csdsim_selection"] != 1) throw UserError("this build reads recordings of version 1");
    if (!json.contains("head_dim") || !json.contains("records") || !json["records"].is_array() ||
        json["records"].empty())
      throw UserError("head_dim or records are missing");
    const std::uint32_t head_dim = number(json["head_dim"], 65'536);
    if (head_dim == 0) throw UserError("head_dim is 0");
    engine::RecordedSelection selection(head_dim);
    for (const nlohmann::json& record : json["records"]) {
      if (!record.is_array() || record.size() != 6) throw UserError("a record does not have six parts");
      const std::uint32_t tokens = number(record[3], kMax);
      selection.record(
          {SequenceId{number(record[0], kMax)}, LayerId{number(record[1], kMax)}, KvHead{number(record[2], kMax)}},
          tokens, indices(record[4], head_dim), indices(record[5], tokens));
    }
    return selection;
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace csdsim::experiment

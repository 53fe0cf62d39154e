#include "experiment/evaluation/recorded_tokens.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace csdsim::experiment {

using host::TokenRecording;
using nlohmann::ordered_json;

namespace {

constexpr std::uint32_t kMostTokens = 1U << 24;

/// A part of the document and its path in it, for messages.
struct JsonAt {
  const nlohmann::json& json;
  std::string path;

  [[noreturn]] void refuse(const std::string& what) const { throw UserError(fmt::format("{}: {}", path, what)); }
  JsonAt operator[](std::size_t index) const { return {json[index], fmt::format("{}[{}]", path, index)}; }
  JsonAt key(const char* name) const {
    if (!json.contains(name)) refuse(fmt::format("'{}' is missing", name));
    return {json[name], path.empty() ? name : path + "." + name};
  }
  /// The number of elements of a list that is not empty.
  std::size_t size(const char* of_what) const {
    if (!json.is_array() || json.empty()) refuse(fmt::format("is not a list of {}, or is empty", of_what));
    return json.size();
  }
  std::uint32_t number(std::uint32_t below) const {
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() >= below)
      refuse(fmt::format("{} is not a whole number below {}", json.dump().substr(0, 40), below));
    return json.get<std::uint32_t>();
  }
  std::string text() const {
    if (!json.is_string()) refuse("is not a text");
    return json.get<std::string>();
  }
};

TokenRecording::List list_of(const JsonAt& place, std::uint32_t context) {
  TokenRecording::List list;
  for (std::size_t i = 0; i < place.size("positions"); ++i) {
    list.push_back(place[i].number(context));
    if (i > 0 && list[i - 1] >= list[i])
      place[i].refuse(fmt::format("{} follows {}: positions ascend", list[i], list[i - 1]));
  }
  return list;
}

void require_size(const JsonAt& place, std::size_t size, std::size_t expected, const char* of_what) {
  if (size != expected) place.refuse(fmt::format("{} {}, elsewhere {}", size, of_what, expected));
}

TokenRecording recording_of(const JsonAt& document) {
  TokenRecording recording;
  recording.prefill = document.key("prefill").number(kMostTokens);
  const JsonAt windows = document.key("windows");
  for (std::size_t w = 0; w < windows.size("windows"); ++w) {
    auto& window = recording.windows.emplace_back();
    for (std::size_t l = 0; l < windows[w].size("layers"); ++l) {
      auto& layer = window.emplace_back();
      const JsonAt lists = windows[w][l];
      for (std::size_t h = 0; h < lists.size("lists"); ++h) {
        auto& steps = layer.emplace_back();
        for (std::size_t s = 0; s < lists[h].size("steps"); ++s)
          steps.push_back(list_of(lists[h][s], recording.context(s)));
        require_size(lists[h], steps.size(), recording.windows[0][0][0].size(), "steps");
      }
      require_size(lists, layer.size(), recording.windows[0][0].size(), "lists");
    }
    require_size(windows[w], window.size(), recording.windows[0].size(), "layers");
  }
  return recording;
}

RecordedTokenFile file_of(const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("csdsim_tokens"))
    throw UserError("is no recording of tokens (csdsim eval --record with a method that chooses whole tokens)");
  if (json["csdsim_tokens"] != 1) throw UserError("csdsim_tokens: this build reads recordings of version 1");
  const JsonAt document{json, ""};
  return {{.model = document.key("model").text(),
           .text = document.key("text").text(),
           .method = document.key("method").text(),
           .setting = document.key("setting").text()},
          recording_of(document)};
}

}  // namespace

ordered_json statistics_json(const host::TokenStatistics& s) {
  ordered_json json{{"share", s.share}, {"recent", s.recent}};
  for (std::size_t i = 0; i < 3; ++i) json[fmt::format("overlap_{}", host::kOverlapSteps[i])] = s.overlap[i];
  for (std::size_t i = 0; i < 3; ++i) json[fmt::format("hits_{:g}", host::kHitShares[i])] = s.hits[i];
  return json;
}

TokenRecorder::TokenRecorder(std::uint32_t prefill, std::uint32_t windows, std::uint32_t layers, std::uint32_t kv_heads,
                             bool list_per_layer) {
  using Layer = std::vector<TokenRecording::Steps>;
  recording_.prefill = prefill;
  recording_.windows.assign(windows, std::vector<Layer>(layers, Layer(list_per_layer ? 1 : kv_heads)));
}

void TokenRecorder::add(SequenceId window, LayerId layer, KvHead head, const host::HeadSelection& selection) {
  auto& lists = recording_.windows.at(window.value).at(layer.value);
  if (head.value >= lists.size()) return;  // one list serves all heads
  TokenRecording::List& list = lists[head.value].emplace_back();
  for (const TokenIndex token : selection.tokens) list.push_back(token.value);
}

ordered_json token_document(const TokenRecording& recording, const TokenOrigin& origin) {
  if (recording.steps() == 0) throw UserError("nothing to record: no token was decoded");
  ordered_json layers = ordered_json::array();
  for (std::uint32_t layer = 0; layer < recording.layers(); ++layer)
    layers.push_back(statistics_json(host::statistics(recording, LayerId{layer})));
  return {{"csdsim_tokens", 1},
          {"model", origin.model},
          {"text", origin.text},
          {"method", origin.method},
          {"setting", origin.setting},
          {"prefill", recording.prefill},
          {"statistics", {{"mean", statistics_json(host::statistics(recording))}, {"layers", layers}}},
          {"windows", recording.windows}};
}

RecordedTokenFile read_tokens(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  try {
    return file_of(nlohmann::json::parse(file));
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("{}: is not JSON: {}", path.string(), error.what()));
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace csdsim::experiment

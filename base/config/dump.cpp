#include "base/config/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_object.h"
#include "base/text.h"

namespace csdsim::config {
namespace {

nlohmann::ordered_json json_value(const std::string& text, Spelling spelling) {
  if (spelling == Spelling::boolean) return text == "true";
  if (spelling == Spelling::number) {
    std::uint64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || end != text.data() + text.size())
      throw InternalError("a count is not a number: " + text);
    return number;
  }
  return text;
}

}  // namespace

void JsonDump::on_param(Param& param) {
  auto& slot = (*stack_.back())[std::string(param.name)];
  const auto texts = param.texts();
  if (!param.is_list()) {
    slot = json_value(texts.front(), param.spelling());
    return;
  }
  slot = nlohmann::ordered_json::array();
  for (const std::string& text : texts) slot.push_back(json_value(text, param.spelling()));
}

void JsonDump::on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view, Cite) {
  auto& slot = (*stack_.back())[std::string(name)];
  slot = nlohmann::ordered_json::object();
  for (const auto& [key, text] : value) slot[key] = text;
}

void JsonDump::on_preset(std::string_view, std::string& name) {
  if (!name.empty()) (*stack_.back())["preset"] = name;
}

void JsonDump::on_shorthand(std::string_view key, std::string_view, std::string& name, std::string_view) {
  if (!name.empty()) (*stack_.back())[std::string(key)] = name;
}

void JsonDump::on_enter(std::string_view name, std::string_view) {
  auto& slot = (*stack_.back())[std::string(name)];
  slot = object_for(kKeysOfMap);
  stack_.push_back(&slot);
}

bool JsonDump::on_optional_section(std::string_view name, std::string_view none, std::string_view, Cite, bool present) {
  if (!present) (*stack_.back())[std::string(name)] = none;
  return present;
}

std::vector<std::size_t> JsonDump::on_choice(const ChoiceInfo& info) {
  (*stack_.back())["kind"] = info.kinds[info.current];
  return {info.current};
}

nlohmann::ordered_json dump_origins(const Origins& origins) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [path, origin] : origins) {
    json[path] = origin.note.empty() ? origin.text() : fmt::format("{} ({})", origin.text(), origin.note);
  }
  return json;
}

void ParamTable::add(std::string_view name, std::string type, std::string range, std::string value, Cite cite,
                     std::string_view doc) {
  const std::string path = section_.empty() ? std::string(name) : section_ + "." + std::string(name);
  ParamRow row{path, section_,        std::string(name), {}, std::move(type), std::move(range), std::move(value),
               cite, std::string(doc)};
  if (!kinds_.back().empty()) row.kinds = {kinds_.back()};
  const auto same = [&](const ParamRow& other) {
    return other.path == row.path && other.type == row.type && other.range == row.range && other.value == row.value &&
           other.doc == row.doc && other.cite.source == row.cite.source && other.cite.where == row.cite.where;
  };
  const auto alike = std::find_if(rows.begin(), rows.end(), same);
  if (alike == rows.end()) {
    rows.push_back(std::move(row));
  } else {
    alike->kinds.push_back(kinds_.back());
  }
}

void ParamTable::on_param(Param& param) {
  const std::string joined = join(param.texts());
  add(param.name, param.type(), param.range(), param.is_list() ? fmt::format("[{}]", joined) : joined, param.cite,
      param.doc);
}

void ParamTable::on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc,
                            Cite cite) {
  std::vector<std::string> texts;
  for (const auto& [key, text] : value) texts.push_back(fmt::format("{}: {}", key, text));
  add(name, "map of values", "", fmt::format("{{{}}}", join(texts)), cite, doc);
}

void ParamTable::on_preset(std::string_view kind, std::string& name) {
  add("preset", fmt::format("name of a {} preset", kind), "", name.empty() ? "none" : name,
      assumed("a preset is the user's choice"), "Values that stand in for the defaults; every one can be set besides.");
}

void ParamTable::on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) {
  add(key, fmt::format("name of one of the {}s", kind), "", name.empty() ? "none" : name,
      assumed("a preset is the user's choice"), doc);
}

void ParamTable::on_enter(std::string_view name, std::string_view doc) {
  section_ = section_.empty() ? std::string(name) : section_ + "." + std::string(name);
  // Nested parameters belong to the same kinds.
  kinds_.push_back(kinds_.back());
  if (sections.empty() || sections.back().path != section_) sections.push_back({section_, std::string(doc), {}, {}});
}

void ParamTable::on_leave() {
  const auto dot = section_.rfind('.');
  section_ = dot == std::string::npos ? "" : section_.substr(0, dot);
  kinds_.pop_back();
}

bool ParamTable::on_optional_section(std::string_view name, std::string_view none, std::string_view doc, Cite cite,
                                     bool present) {
  add(name, fmt::format("map or {}", none), "", present ? "map" : std::string(none), cite, doc);
  return true;
}

std::vector<std::size_t> ParamTable::on_choice(const ChoiceInfo& info) {
  sections.back().kinds = info.kinds;
  sections.back().kind_docs = info.docs;
  add("kind", fmt::format("one of {}", join(info.kinds)), "", info.kinds[info.current], info.cite, info.doc);
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < info.kinds.size(); ++i) all.push_back(i);
  return all;
}

}  // namespace csdsim::config

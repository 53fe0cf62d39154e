// Writes a described struct as ordered JSON, which the reader can read again (JSON is YAML), or as table rows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/reader.h"
#include "base/json_object.h"
#include "base/param.h"

namespace csdsim::config {

/// Builds nested JSON in the order of describe(). Quantities are text with units, counts and booleans are bare.
class JsonDump final : public ParamVisitor {
 public:
  JsonDump() : json_(object_for(kKeysOfMap)) { stack_.push_back(&json_); }

  /// Takes a copy, as visiting needs a mutable struct.
  template <class S>
  static nlohmann::ordered_json of(S value) {
    JsonDump dump;
    describe(dump, value);
    return dump.take();
  }

  /// What has been described.
  nlohmann::ordered_json take() { return std::move(json_); }

 protected:
  void on_param(Param& param) override;
  void on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc,
                  Cite cite) override;
  void on_preset(std::string_view kind, std::string& name) override;
  void on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) override;
  void on_enter(std::string_view name, std::string_view doc) override;
  void on_leave() override { stack_.pop_back(); }
  bool on_optional_section(std::string_view name, std::string_view none, std::string_view doc, Cite cite,
                           bool present) override;
  std::vector<std::size_t> on_choice(const ChoiceInfo& info) override;

 private:
  static constexpr std::size_t kKeysOfMap = 32;  ///< more than most maps have

  nlohmann::ordered_json json_;
  std::vector<nlohmann::ordered_json*> stack_;
};

/// Flat map from path to "file:line:col", "--set a.b=v", "preset NAME (source: where)" or "default (source: where)".
nlohmann::ordered_json dump_origins(const Origins& origins);

/// Description of one parameter.
struct ParamRow {
  std::string path;     ///< "platform.device.flash.channels"
  std::string section;  ///< "platform.device.flash", "" at the top
  std::string name;
  /// Kinds of the surrounding choice that have this parameter with the same description; empty outside a choice.
  std::vector<std::string> kinds;
  std::string type;
  std::string range;
  std::string value;  ///< the default
  Cite cite;
  std::string doc;
};

/// A map of parameters, with its kinds if it is a choice.
struct SectionRow {
  std::string path;
  std::string doc;
  std::vector<std::string> kinds;
  std::vector<std::string> kind_docs;
};

/// Collects every parameter, of all kinds of every choice.
class ParamTable final : public ParamVisitor {
 public:
  template <class S>
  static ParamTable of(S value = {}) {
    ParamTable table;
    describe(table, value);
    return table;
  }

  std::vector<ParamRow> rows;
  std::vector<SectionRow> sections;

 protected:
  void on_param(Param& param) override;
  void on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc,
                  Cite cite) override;
  void on_preset(std::string_view kind, std::string& name) override;
  void on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) override;
  void on_enter(std::string_view name, std::string_view doc) override;
  void on_leave() override;
  bool on_optional_section(std::string_view name, std::string_view none, std::string_view doc, Cite cite,
                           bool present) override;
  std::vector<std::size_t> on_choice(const ChoiceInfo& info) override;
  void on_kind(std::string_view kind) override { kinds_.back() = kind; }

 private:
  void add(std::string_view name, std::string type, std::string range, std::string value, Cite cite,
           std::string_view doc);
  std::string section_;
  std::vector<std::string> kinds_{""};
};

}  // namespace csdsim::config

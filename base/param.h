// One declaration a parameter. A parameter struct has a function
//
//   void describe(ParamVisitor& v, FlashConfig& p) {
//     v.param("read_latency", p.read_latency, {SimTime::nanoseconds(1), SimTime::milliseconds(10)},
//             "tR: array read into the page buffer.", assumed("typical TLC"));
//   }
//
// found by argument-dependent lookup. Readers, `csdsim describe`, the documentation and the dump of the effective
// configuration are visitors: nothing about a parameter is written twice. The default is the value that a
// default-constructed struct holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/kinds.h"
#include "base/param_codec.h"

namespace csdsim {

/// The source of a number.
enum class Source : std::uint8_t { paper, datasheet, measured, calibrated, assumed };
std::string_view to_string(Source source);
std::optional<Source> source_from(std::string_view name);

/// A source with the place: section of a paper, a data sheet, what was measured, or why it is assumed.
struct Cite {
  Source source = Source::assumed;
  std::string_view where;
};
constexpr Cite paper(std::string_view where) { return {Source::paper, where}; }
constexpr Cite datasheet(std::string_view where) { return {Source::datasheet, where}; }
constexpr Cite measured(std::string_view where) { return {Source::measured, where}; }
constexpr Cite calibrated(std::string_view where) { return {Source::calibrated, where}; }
constexpr Cite assumed(std::string_view why) { return {Source::assumed, why}; }

/// Both ends belong to the range.
template <class T>
struct Range {
  T min;
  T max;
};

/// The form of a value in JSON: counts and booleans bare, all else as text with its unit.
enum class Spelling : std::uint8_t { text, number, boolean };

/// A parameter as visitors see it: its description and its value as text.
class Param {
 public:
  Param(std::string_view name_, std::string_view doc_, Cite cite_) : name(name_), doc(doc_), cite(cite_) {}
  virtual ~Param() = default;
  Param(const Param&) = delete;
  Param& operator=(const Param&) = delete;

  std::string_view name;
  std::string_view doc;  ///< one sentence
  Cite cite;             ///< source of the default

  virtual std::string type() const = 0;   ///< "time", "count", "one of a, b"
  virtual std::string range() const = 0;  ///< "1 to 128", "" when any value of the type is allowed
  /// True if texts() is a list.
  virtual bool is_list() const { return false; }
  /// What may be written for it. A parameter may take both.
  virtual bool takes_list() const { return is_list(); }
  virtual bool takes_single() const { return !takes_list(); }
  virtual Spelling spelling() const = 0;
  /// The value: one text, or one an item of a list. Reading it back gives the same value.
  virtual std::vector<std::string> texts() const = 0;
  /// Sets the value. Throws UserError (without location) for what is no value of the type or out of range.
  virtual void set(const std::vector<std::string>& texts) = 0;
};

/// A map that is one of several kinds, chosen by its key `kind`.
struct ChoiceInfo {
  std::string_view name;
  std::string_view doc;
  Cite cite;
  std::vector<std::string> kinds;
  std::vector<std::string> docs;  ///< one sentence a kind
  std::size_t current = 0;
  /// The keys of a kind. Made when asked for, because each is a visit of the kind. Valid until the map is left.
  std::function<std::vector<std::string>(std::size_t kind)> keys;
};

/// The visitor that a struct's describe() calls.
class ParamVisitor {
 public:
  virtual ~ParamVisitor() = default;

  /// A value with a range.
  template <class T>
  void param(std::string_view name, T& value, Range<T> range, std::string_view doc, Cite cite);
  /// A value of a type that limits itself: enum, boolean, text, path.
  template <class T>
  void param(std::string_view name, T& value, std::string_view doc, Cite cite);
  /// A value that may be left open, written as `none` ("auto").
  template <class T>
  void optional(std::string_view name, std::optional<T>& value, std::string_view none, Range<T> range,
                std::string_view doc, Cite cite);
  template <class T>
  void optional(std::string_view name, std::optional<T>& value, std::string_view none, std::string_view doc, Cite cite);
  /// A list of `length.min` to `length.max` values.
  template <class T>
  void list(std::string_view name, std::vector<T>& value, Range<std::size_t> length, std::string_view doc, Cite cite);

  /// A value, or a list of up to `most` of them; empty, written as `none` ("auto").
  template <class T>
  void single_or_list(std::string_view name, std::vector<T>& value, std::string_view none, Range<T> range,
                      std::size_t most, std::string_view doc, Cite cite);

  /// A list of `length.min` to `length.max` names out of `allowed`.
  void names(std::string_view name, std::vector<std::string>& value, std::vector<std::string> allowed,
             Range<std::size_t> length, std::string_view doc, Cite cite);

  /// A map from names that somebody else knows to single values, kept as text.
  void entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc, Cite cite) {
    on_entries(name, value, doc, cite);
  }

  /// A nested map.
  template <class S>
  void section(std::string_view name, S& value, std::string_view doc);
  /// A nested map, or the word `none` in its place ("off").
  template <class S>
  void optional_section(std::string_view name, std::optional<S>& value, std::string_view none, std::string_view doc,
                        Cite cite);
  /// A nested map whose `kind` chooses one of Ts. Each T has `static constexpr std::string_view kKind, kDoc`.
  template <class... Ts>
  void choice(std::string_view name, std::variant<Ts...>& value, std::string_view doc, Cite cite);
  /// The same for kinds that are registered at run time.
  template <class T>
  void choice(std::string_view name, Chosen<T>& value, std::string_view doc, Cite cite);
  /// Key `preset`: names a layer of values of this kind under the map that is being described. Comes first in a map.
  void preset(std::string_view kind, std::string& name) { on_preset(kind, name); }
  /// Key `key`: names a preset of this kind that stands for several parameters of the map that is being described. It
  /// counts like giving them where it stands, but a parameter that is given there itself wins. Comes before them.
  void shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) {
    on_shorthand(key, kind, name, doc);
  }

 protected:
  virtual void on_param(Param& param) = 0;
  virtual void on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc,
                          Cite cite) = 0;
  virtual void on_preset(std::string_view kind, std::string& name) = 0;
  virtual void on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) = 0;
  virtual void on_enter(std::string_view name, std::string_view doc) = 0;
  virtual void on_leave() = 0;
  /// Returns true if the section is there. `present`: the struct has a value for it.
  virtual bool on_optional_section(std::string_view name, std::string_view none, std::string_view doc, Cite cite,
                                   bool present) = 0;
  /// Called inside the map: the kinds to visit, in order.
  virtual std::vector<std::size_t> on_choice(const ChoiceInfo& info) = 0;
  /// Called before the parameters of a kind.
  virtual void on_kind(std::string_view) {}
};

/// The keys of one map, without those of nested maps.
class NameList final : public ParamVisitor {
 public:
  std::vector<std::string> names;

 protected:
  void on_param(Param& param) override { add(param.name); }
  void on_entries(std::string_view name, std::map<std::string, std::string>&, std::string_view, Cite) override {
    add(name);
  }
  void on_preset(std::string_view, std::string&) override { add("preset"); }
  void on_shorthand(std::string_view key, std::string_view, std::string&, std::string_view) override { add(key); }
  void on_enter(std::string_view name, std::string_view) override {
    add(name);
    ++depth_;
  }
  void on_leave() override { --depth_; }
  bool on_optional_section(std::string_view name, std::string_view, std::string_view, Cite, bool) override {
    add(name);
    return false;
  }
  std::vector<std::size_t> on_choice(const ChoiceInfo&) override { return {}; }

 private:
  void add(std::string_view name) {
    if (depth_ == 0) names.emplace_back(name);
  }
  int depth_ = 0;
};

}  // namespace csdsim

#include "base/param_impl.h"

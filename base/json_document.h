// JSON texts whose values know their place. nlohmann-json reads the text; the values stay in one array, which the next
// text uses again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/field_names.h"
#include "base/located_value.h"

namespace csdsim {

class JsonDocument;

/// A value of a document. Valid until the document reads another text.
class JsonValue {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };

  JsonValue(const JsonDocument* document, std::uint32_t node) : document_(document), node_(node) {}

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  /// The text as it stands in the file.
  LocatedValue located() const;
  [[noreturn]] void fail(const std::string& message) const { located().fail(message); }
  /// The line of the file on which it begins.
  std::uint64_t line() const;

  /// Throws UserError, located, "WHAT: is not a string".
  std::string_view string(std::string_view what) const;
  /// A string or a whole number, as text: what files use as names of requests. Throws UserError, located.
  std::string name(std::string_view what) const;
  /// The number of elements or members. 0 for other values.
  std::uint32_t size() const;

  /// Calls f(JsonValue) for each element of an array. Throws UserError, located, for other values.
  template <class F>
  void for_each(std::string_view what, F&& f) const;
  /// Calls f(std::string_view key, JsonValue key's own, JsonValue) for each member of an object. Throws UserError,
  /// located, for other values.
  template <class F>
  void for_each_member(std::string_view what, F&& f) const;

 private:
  friend class JsonDocument;
  void require(Kind kind, std::string_view what, const char* name) const;
  JsonValue first() const { return {document_, node_ + 1}; }
  JsonValue next() const;

  const JsonDocument* document_;
  std::uint32_t node_;
};

class JsonDocument final : public TextSource {
 public:
  /// Reads a text, which has to stay as long as its values are used. `line` is the number of its first line in the
  /// file. Throws UserError, located, for text that is not JSON; it ends with `remark`.
  JsonValue read(const std::string& file, std::string_view text, std::uint64_t line = 1, std::string remark = "");
  /// Reads an array and calls `element` with its elements one after another; each is valid during its call. A text that
  /// is no array is an element itself.
  void read_each(const std::string& file, std::string_view text, const std::function<void(JsonValue)>& element);

  std::string position(std::size_t offset) const override;
  std::uint64_t line(std::size_t offset) const;

 private:
  friend class JsonValue;
  class Events;
  struct Node {
    JsonValue::Kind kind = JsonValue::Kind::null;
    std::uint32_t begin = 0, end = 0;  ///< range in the text
    std::uint32_t next = 0;            ///< the node behind this value and all that it contains
    std::uint32_t size = 0;            ///< elements, members; of a string its index
  };

  void parse(const std::string& file, std::string_view text, std::uint64_t line, Events& events);

  std::string file_, remark_;
  std::string_view text_;
  std::uint64_t line_ = 1;
  std::vector<Node> nodes_;
  std::vector<std::string> strings_;
  std::uint32_t used_strings_ = 0;
  mutable std::size_t counted_ = 0;          ///< bytes whose line ends have been counted
  mutable std::uint64_t counted_lines_ = 0;  ///< line ends in them
};

/// The members of an object by the fields of a format.
class JsonFields {
 public:
  explicit JsonFields(const FieldNames& names) : names_(&names), values_(names.size()) {}

  /// Throws UserError, located, if the value is no object or has an unknown or repeated member. A member that is null
  /// counts as absent.
  void read(JsonValue object);
  /// Throws UserError, located at the object, if the field is absent.
  JsonValue at(std::size_t field) const;
  const std::optional<JsonValue>& find(std::size_t field) const { return values_[field]; }
  /// The value of a field as it stands in the file, if there is one.
  std::optional<LocatedValue> located(std::size_t field) const;
  /// JsonValue::name() of a field, if there is one.
  std::optional<std::string> name(std::size_t field) const;
  JsonValue object() const { return *object_; }

 private:
  const FieldNames* names_;
  std::vector<std::optional<JsonValue>> values_;
  std::optional<JsonValue> object_;
};

inline JsonValue::Kind JsonValue::kind() const { return document_->nodes_[node_].kind; }

inline JsonValue JsonValue::next() const { return {document_, document_->nodes_[node_].next}; }

inline std::uint64_t JsonValue::line() const { return document_->line(document_->nodes_[node_].begin); }

inline LocatedValue JsonValue::located() const {
  const JsonDocument::Node& node = document_->nodes_[node_];
  return {document_->text_.substr(node.begin, node.end - node.begin), document_, node.begin};
}

template <class F>
void JsonValue::for_each(std::string_view what, F&& f) const {
  require(Kind::array, what, "an array");
  JsonValue element = first();
  for (std::uint32_t left = size(); left > 0; --left, element = element.next()) f(element);
}

template <class F>
void JsonValue::for_each_member(std::string_view what, F&& f) const {
  require(Kind::object, what, "an object");
  JsonValue key = first();
  for (std::uint32_t left = size(); left > 0; --left) {
    const JsonValue value = key.next();
    f(key.string(what), key, value);
    key = value.next();
  }
}

}  // namespace csdsim

#include "base/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {

/// Writes what nlohmann-json reads to the nodes of the document. Its events have no positions: each token begins behind
/// the one before and what separates them.
class JsonDocument::Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  Events(JsonDocument& document, const std::function<void(JsonValue)>* element)
      : document_(document), element_(element) {}

  bool null() override { return add(JsonValue::Kind::null, 4); }
  bool boolean(bool value) override { return add(JsonValue::Kind::boolean, value ? 4 : 5); }
  bool number_integer(number_integer_t) override { return add_number(); }
  bool number_unsigned(number_unsigned_t) override { return add_number(); }
  bool number_float(number_float_t, const string_t&) override { return add_number(); }
  bool string(string_t& value) override { return add_string(value) && end_value(); }
  bool key(string_t& value) override { return add_string(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonValue::Kind::object); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string message = error.what();
    if (const std::size_t from = message.find("syntax error"); from != message.npos) message.erase(0, from);
    LocatedValue{{}, &document_, position == 0 ? 0 : position - 1}.fail(printable(message, 400) + document_.remark_);
  }

 private:
  using Kind = JsonValue::Kind;

  /// The first place from `at` on whose character does not belong to it.
  template <class Belongs>
  std::size_t skip(std::size_t at, Belongs belongs) const {
    while (at < document_.text_.size() && belongs(document_.text_[at])) ++at;
    return at;
  }

  /// Begins a value with the next token.
  Node& begin(Kind kind) {
    at_ = skip(at_, [](char c) { return c == ' ' || c == ',' || c == ':' || c == '\n' || c == '\t' || c == '\r'; });
    const auto number = static_cast<std::uint32_t>(document_.nodes_.size());
    return document_.nodes_.emplace_back(Node{kind, static_cast<std::uint32_t>(at_), 0, number + 1, 0});
  }

  void end(Node& node, std::size_t end) {
    node.end = static_cast<std::uint32_t>(end);
    at_ = end;
  }

  bool add(Kind kind, std::size_t length) {
    Node& node = begin(kind);
    end(node, at_ + length);
    return end_value();
  }

  bool add_number() {
    Node& node = begin(Kind::number);
    end(node, skip(at_, [](char c) {
          return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
        }));
    return end_value();
  }

  bool add_string(std::string& value) {
    Node& node = begin(Kind::string);
    std::size_t quote = document_.text_.find_first_of("\"\\", at_ + 1);
    while (document_.text_[quote] == '\\') quote = document_.text_.find_first_of("\"\\", quote + 2);
    end(node, quote + 1);
    node.size = document_.used_strings_++;
    if (node.size == document_.strings_.size()) document_.strings_.emplace_back();
    document_.strings_[node.size].swap(value);
    return true;
  }

  bool open(Kind kind) {
    Node& node = begin(kind);
    open_.push_back(static_cast<std::uint32_t>(document_.nodes_.size() - 1));
    end(node, at_ + 1);
    return true;
  }

  bool close() {
    const std::uint32_t opened = open_.back();
    open_.pop_back();
    document_.nodes_[opened].next = static_cast<std::uint32_t>(document_.nodes_.size());
    end(document_.nodes_[opened], document_.text_.find_first_of("]}", at_) + 1);
    return end_value();
  }

  /// Counts the value where it stands, and gives it away if it is what read_each() waits for.
  bool end_value() {
    const bool in_array = !open_.empty() && document_.nodes_[open_.back()].kind == Kind::array;
    if (element_ && open_.size() <= 1 && (open_.empty() ? document_.nodes_[0].kind != Kind::array : in_array)) {
      const std::uint32_t first = open_.empty() ? 0 : 1;
      (*element_)(JsonValue(&document_, first));
      document_.nodes_.resize(first);
      document_.used_strings_ = 0;
    } else if (!open_.empty()) {
      ++document_.nodes_[open_.back()].size;
    }
    return true;
  }

  JsonDocument& document_;
  const std::function<void(JsonValue)>* element_;
  std::size_t at_ = 0;
  std::vector<std::uint32_t> open_;  ///< arrays and objects around the next value
};

void JsonDocument::parse(const std::string& file, std::string_view text, std::uint64_t line, Events& events) {
  if (text.size() > UINT32_MAX) throw UserError(fmt::format("{}: error: a JSON text of more than 4 GiB", file));
  file_ = file;
  text_ = text;
  line_ = line;
  nodes_.clear();
  used_strings_ = 0;
  counted_ = counted_lines_ = 0;
  nlohmann::json::sax_parse(text_.begin(), text_.end(), &events);
}

JsonValue JsonDocument::read(const std::string& file, std::string_view text, std::uint64_t line, std::string remark) {
  Events events(*this, nullptr);
  remark_ = std::move(remark);
  parse(file, text, line, events);
  return {this, 0};
}

void JsonDocument::read_each(const std::string& file, std::string_view text,
                             const std::function<void(JsonValue)>& element) {
  Events events(*this, &element);
  remark_.clear();
  parse(file, text, 1, events);
}

std::uint64_t JsonDocument::line(std::size_t offset) const {
  if (offset < counted_) counted_ = counted_lines_ = 0;
  counted_lines_ += static_cast<std::uint64_t>(std::ranges::count(text_.substr(counted_, offset - counted_), '\n'));
  counted_ = offset;
  return line_ + counted_lines_;
}

std::string JsonDocument::position(std::size_t offset) const {
  const std::size_t newline = text_.substr(0, offset).rfind('\n');
  return fmt::format("{}:{}:{}", file_, line(offset), offset - (newline == text_.npos ? 0 : newline + 1) + 1);
}

std::string_view JsonValue::string(std::string_view what) const {
  require(Kind::string, what, "a string");
  return document_->strings_[document_->nodes_[node_].size];
}

std::string JsonValue::name(std::string_view what) const {
  if (kind() == Kind::string) return std::string(string(what));
  if (kind() == Kind::number && located().text.find_first_of(".eE") == std::string_view::npos)
    return std::string(located().text);
  fail(fmt::format("{}: is neither a string nor a whole number", what));
}

std::uint32_t JsonValue::size() const {
  return kind() == Kind::array || kind() == Kind::object ? document_->nodes_[node_].size : 0;
}

void JsonValue::require(Kind wanted, std::string_view what, const char* name) const {
  if (kind() != wanted) fail(fmt::format("{}: is not {}", what, name));
}

void JsonFields::read(JsonValue object) {
  std::ranges::fill(values_, std::nullopt);
  object_ = object;
  std::vector<bool> seen(names_->size());
  object.for_each_member("the record", [&](std::string_view key, JsonValue place, JsonValue value) {
    const std::optional<std::size_t> field = names_->find(key);
    if (!field) place.fail(names_->unknown("key", key));
    if (seen[*field]) place.fail(fmt::format("a second key for the same: {}", names_->name(*field)));
    seen[*field] = true;
    if (!value.is_null()) values_[*field] = value;
  });
}

JsonValue JsonFields::at(std::size_t field) const {
  if (!values_[field]) object_->fail(fmt::format("no {}", names_->name(field)));
  return *values_[field];
}

std::optional<LocatedValue> JsonFields::located(std::size_t field) const {
  return values_[field] ? std::optional(values_[field]->located()) : std::nullopt;
}

std::optional<std::string> JsonFields::name(std::size_t field) const {
  return values_[field] ? std::optional(values_[field]->name(names_->name(field))) : std::nullopt;
}

}  // namespace csdsim

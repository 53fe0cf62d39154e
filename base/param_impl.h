// Template side of base/param.h: typed fields behind the Param interface.
#pragma once

#include <array>

#include "base/param.h"

namespace csdsim {
namespace detail {

/// A type with several spellings says in Codec<T>::spelling(value) which one a value has.
template <class T>
constexpr Spelling spelling_of(const T& value) {
  if constexpr (requires { Codec<T>::spelling(value); }) return Codec<T>::spelling(value);
  if constexpr (std::is_same_v<T, bool>) return Spelling::boolean;
  if constexpr (std::is_integral_v<T>) return Spelling::number;
  return Spelling::text;
}

[[noreturn]] void throw_out_of_range(std::string_view text, const std::string& min, const std::string& max);
std::string length_text(Range<std::size_t> length);
[[noreturn]] void throw_list_length(std::size_t length, Range<std::size_t> allowed);
/// Throws InternalError: the caller hands a scalar parameter several texts.
void expect_single(const std::vector<std::string>& texts);

template <class T>
T parse_in_range(std::string_view text, const std::optional<Range<T>>& range) {
  T value = Codec<T>::parse(text);
  if constexpr (requires { value < value; }) {
    if (range && (value < range->min || range->max < value)) {
      throw_out_of_range(text, format_value(range->min), format_value(range->max));
    }
  }
  return value;
}

template <class T>
std::string range_text(const std::optional<Range<T>>& range) {
  return range ? format_value(range->min) + " to " + format_value(range->max) : "";
}

template <class T>
class ValueParam final : public Param {
 public:
  ValueParam(std::string_view name_, T& value, std::optional<Range<T>> range, std::string_view doc_, Cite cite_)
      : Param(name_, doc_, cite_), value_(value), range_(range) {}
  std::string type() const override { return Codec<T>::type(); }
  std::string range() const override { return range_text(range_); }
  Spelling spelling() const override { return spelling_of(value_); }
  std::vector<std::string> texts() const override { return {format_value(value_)}; }
  void set(const std::vector<std::string>& texts) override {
    expect_single(texts);
    value_ = parse_in_range<T>(texts.front(), range_);
  }

 private:
  T& value_;
  std::optional<Range<T>> range_;
};

template <class T>
class OptionalParam final : public Param {
 public:
  OptionalParam(std::string_view name_, std::optional<T>& value, std::string_view none, std::optional<Range<T>> range,
                std::string_view doc_, Cite cite_)
      : Param(name_, doc_, cite_), value_(value), none_(none), range_(range) {}
  std::string type() const override { return Codec<T>::type() + " or " + std::string(none_); }
  std::string range() const override { return range_text(range_); }
  Spelling spelling() const override { return value_ ? spelling_of(*value_) : Spelling::text; }
  std::vector<std::string> texts() const override { return {value_ ? format_value(*value_) : std::string(none_)}; }
  void set(const std::vector<std::string>& texts) override {
    expect_single(texts);
    value_ = texts.front() == none_ ? std::nullopt : std::optional<T>(parse_in_range<T>(texts.front(), range_));
  }

 private:
  std::optional<T>& value_;
  std::string_view none_;
  std::optional<Range<T>> range_;
};

template <class T>
class ListParam final : public Param {
 public:
  ListParam(std::string_view name_, std::vector<T>& value, Range<std::size_t> length, std::string_view doc_, Cite cite_)
      : Param(name_, doc_, cite_), value_(value), length_(length) {}
  std::string type() const override { return "list of " + Codec<T>::type(); }
  std::string range() const override { return length_text(length_); }
  bool is_list() const override { return true; }
  Spelling spelling() const override { return spelling_of(T{}); }
  std::vector<std::string> texts() const override {
    std::vector<std::string> out;
    for (const T& item : value_) out.push_back(format_value(item));
    return out;
  }
  void set(const std::vector<std::string>& texts) override {
    std::vector<T> items;
    for (const std::string& text : texts) items.push_back(Codec<T>::parse(text));
    if (items.size() < length_.min || items.size() > length_.max) throw_list_length(items.size(), length_);
    value_ = std::move(items);
  }

 private:
  std::vector<T>& value_;
  Range<std::size_t> length_;
};

template <class T>
class SingleOrListParam final : public Param {
 public:
  SingleOrListParam(std::string_view name_, std::vector<T>& value, std::string_view none, Range<T> range,
                    std::size_t most, std::string_view doc_, Cite cite_)
      : Param(name_, doc_, cite_), value_(value), none_(none), range_(range), most_(most) {}
  std::string type() const override {
    return Codec<T>::type() + ", list of " + Codec<T>::type() + ", or " + std::string(none_);
  }
  std::string range() const override { return range_text(std::optional(range_)); }
  bool is_list() const override { return value_.size() > 1; }
  bool takes_list() const override { return true; }
  bool takes_single() const override { return true; }
  Spelling spelling() const override { return value_.empty() ? Spelling::text : spelling_of(value_.front()); }
  std::vector<std::string> texts() const override {
    if (value_.empty()) return {std::string(none_)};
    std::vector<std::string> out;
    for (const T& item : value_) out.push_back(format_value(item));
    return out;
  }
  void set(const std::vector<std::string>& texts) override {
    std::vector<T> items;
    if (texts.size() != 1 || texts.front() != none_) {
      if (texts.empty() || texts.size() > most_) throw_list_length(texts.size(), {1, most_});
      for (const std::string& text : texts) items.push_back(parse_in_range<T>(text, range_));
    }
    value_ = std::move(items);
  }

 private:
  std::vector<T>& value_;
  std::string_view none_;
  Range<T> range_;
  std::size_t most_;
};

/// A list of names out of a set that is known at run time only.
class NamesParam final : public Param {
 public:
  NamesParam(std::string_view name_, std::vector<std::string>& value, std::vector<std::string> allowed,
             Range<std::size_t> length, std::string_view doc_, Cite cite_)
      : Param(name_, doc_, cite_), value_(value), allowed_(std::move(allowed)), length_(length) {}
  std::string type() const override;
  std::string range() const override;
  bool is_list() const override { return true; }
  Spelling spelling() const override { return Spelling::text; }
  std::vector<std::string> texts() const override { return value_; }
  void set(const std::vector<std::string>& texts) override;

 private:
  std::vector<std::string>& value_;
  std::vector<std::string> allowed_;
  Range<std::size_t> length_;
};

template <class T>
std::vector<std::string> names_of() {
  T value{};
  NameList list;
  describe(list, value);
  return list.names;
}

template <std::size_t I = 0, class... Ts>
void emplace_index(std::variant<Ts...>& value, std::size_t index) {
  if constexpr (I < sizeof...(Ts)) {
    if (index == I) {
      value.template emplace<I>();
    } else {
      emplace_index<I + 1>(value, index);
    }
  }
}

}  // namespace detail

template <class T>
void ParamVisitor::param(std::string_view name, T& value, Range<T> range, std::string_view doc, Cite cite) {
  detail::ValueParam<T> p(name, value, range, doc, cite);
  on_param(p);
}

template <class T>
void ParamVisitor::param(std::string_view name, T& value, std::string_view doc, Cite cite) {
  detail::ValueParam<T> p(name, value, std::nullopt, doc, cite);
  on_param(p);
}

template <class T>
void ParamVisitor::optional(std::string_view name, std::optional<T>& value, std::string_view none, Range<T> range,
                            std::string_view doc, Cite cite) {
  detail::OptionalParam<T> p(name, value, none, range, doc, cite);
  on_param(p);
}

template <class T>
void ParamVisitor::optional(std::string_view name, std::optional<T>& value, std::string_view none, std::string_view doc,
                            Cite cite) {
  detail::OptionalParam<T> p(name, value, none, std::nullopt, doc, cite);
  on_param(p);
}

template <class T>
void ParamVisitor::list(std::string_view name, std::vector<T>& value, Range<std::size_t> length, std::string_view doc,
                        Cite cite) {
  detail::ListParam<T> p(name, value, length, doc, cite);
  on_param(p);
}

template <class T>
void ParamVisitor::single_or_list(std::string_view name, std::vector<T>& value, std::string_view none, Range<T> range,
                                  std::size_t most, std::string_view doc, Cite cite) {
  detail::SingleOrListParam<T> p(name, value, none, range, most, doc, cite);
  on_param(p);
}

template <class S>
void ParamVisitor::section(std::string_view name, S& value, std::string_view doc) {
  on_enter(name, doc);
  describe(*this, value);
  on_leave();
}

template <class S>
void ParamVisitor::optional_section(std::string_view name, std::optional<S>& value, std::string_view none,
                                    std::string_view doc, Cite cite) {
  if (!on_optional_section(name, none, doc, cite, value.has_value())) {
    value.reset();
    return;
  }
  if (!value) value.emplace();
  section(name, *value, doc);
}

template <class... Ts>
void ParamVisitor::choice(std::string_view name, std::variant<Ts...>& value, std::string_view doc, Cite cite) {
  const ChoiceInfo info{
      name, doc, cite, {std::string(Ts::kKind)...}, {std::string(Ts::kDoc)...}, value.index(), [](std::size_t kind) {
        constexpr std::array names{&detail::names_of<Ts>...};
        return names.at(kind)();
      }};
  on_enter(name, doc);
  for (const std::size_t index : on_choice(info)) {
    if (value.index() != index) detail::emplace_index(value, index);
    on_kind(info.kinds[index]);
    std::visit([this](auto& alternative) { describe(*this, alternative); }, value);
  }
  on_leave();
}

template <class T>
void ParamVisitor::choice(std::string_view name, Chosen<T>& value, std::string_view doc, Cite cite) {
  ChoiceInfo info{name, doc, cite, {}, {}, value.index(), [&kinds = value.kinds()](std::size_t kind) {
                    NameList list;
                    kinds.items().at(kind).value()->describe(list);
                    return list.names;
                  }};
  for (const auto& item : value.kinds().items()) {
    info.kinds.push_back(item.name);
    info.docs.push_back(item.doc);
  }
  on_enter(name, doc);
  for (const std::size_t index : on_choice(info)) {
    if (value.index() != index) value.select(index);
    on_kind(info.kinds[index]);
    value->describe(*this);
  }
  on_leave();
}

}  // namespace csdsim

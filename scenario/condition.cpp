#include "scenario/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "scenario/axis_range.h"

namespace csdsim::scenario {
namespace {

using Value = std::function<double(const std::vector<std::size_t>&)>;

/// A part of a condition.
struct Term {
  Value value;            ///< by the indices of a point; 1 or 0 for a comparison
  std::string text;       ///< as written
  BaseUnits units{};      ///< units of a number
  bool is_truth = false;  ///< a comparison, no number
  bool has_axes = false;
};

struct Function {
  std::string_view name;
  bool of_many;     ///< takes one value or more
  bool keeps_unit;  ///< otherwise the value is a bare number
  double (*of)(const std::vector<double>& values);
};
using Values = const std::vector<double>&;
constexpr std::array kFunctions{
    Function{"min", true, true, [](Values v) { return *std::ranges::min_element(v); }},
    Function{"max", true, true, [](Values v) { return *std::ranges::max_element(v); }},
    Function{"sum", true, true, [](Values v) { return std::accumulate(v.begin(), v.end(), 0.0); }},
    Function{"avg", true, true,
             [](Values v) { return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size()); }},
    Function{"abs", false, true, [](Values v) { return std::abs(v.front()); }},
    Function{"sqrt", false, false, [](Values v) { return std::sqrt(v.front()); }},
    Function{"exp", false, false, [](Values v) { return std::exp(v.front()); }},
    Function{"ln", false, false, [](Values v) { return std::log(v.front()); }},
    Function{"log2", false, false, [](Values v) { return std::log2(v.front()); }},
    Function{"log10", false, false, [](Values v) { return std::log10(v.front()); }},
    Function{"rint", false, false, [](Values v) { return std::rint(v.front()); }}};

const Function* function_named(std::string_view name) {
  const auto found = std::ranges::find(kFunctions, name, &Function::name);
  return found == kFunctions.end() ? nullptr : found;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }
/// True for characters of units, the micro sign included.
bool is_unit(char c) { return is_letter(c) || c == '%' || static_cast<unsigned char>(c) >= 0x80; }

/// Reads one condition, from what binds least to what binds most.
class ConditionReader {
 public:
  ConditionReader(const std::string& text, const std::vector<Condition::Axis>& axes) : text_(text), axes_(axes) {
    constexpr std::size_t kLongest = 4000;  // bounds the depth of what is evaluated
    if (text.size() > kLongest) throw UserError(fmt::format("a condition has at most {} characters", kLongest));
  }

  Value read() {
    Term term = alternatives();
    if (at_ < text_.size()) not_a_formula(fmt::format("unexpected '{}'", printable(text_.substr(at_))));
    require_truth(term);
    if (!term.has_axes) refuse(fmt::format("it names no axis of this sweep; exists: {}", join(first_names())));
    return std::move(term.value);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(fmt::format("'{}': {}", printable(text_), why));
  }
  [[noreturn]] void not_a_formula(const std::string& why) const {
    throw UserError(fmt::format("'{}' is not a formula: {}", printable(text_), why));
  }

  std::vector<std::string> first_names() const {
    std::vector<std::string> names;
    for (const Condition::Axis& axis : axes_) names.push_back(axis.names.front());
    return names;
  }

  std::optional<std::size_t> axis_named(const std::string& name) const {
    for (std::size_t a = 0; a < axes_.size(); ++a)
      if (std::ranges::find(axes_[a].names, name) != axes_[a].names.end()) return a;
    return std::nullopt;
  }
  std::size_t axis_or_throw(const std::string& name) const {
    if (const auto axis = axis_named(name)) return *axis;
    const std::vector<std::string> names = first_names();
    throw UserError(
        fmt::format("'{}' is no axis of this sweep{}; exists: {}", name, did_you_mean(name, names), join(names)));
  }

  void require_truth(const Term& term) const {
    if (term.is_truth) return;
    const Condition::Axis& axis = axes_.front();
    const std::string& value = axis.values.front();
    refuse(fmt::format("{} compares nothing; write a comparison, such as {} == {}", term.text, axis.names.front(),
                       number_of(value) ? value : fmt::format("\"{}\"", value)));
  }
  void require_number(const Term& term) const {
    if (term.is_truth)
      refuse(fmt::format("{} is a comparison, and a number is expected; join comparisons with and, or", term.text));
  }
  void require_bare(const Term& term, std::string_view what) const {
    require_number(term);
    if (term.units != BaseUnits{})
      refuse(fmt::format("{} takes bare numbers, and {} is {}", what, term.text, quantity_name(term.units).name));
  }
  /// Both are compared or added.
  void require_alike(const Term& left, const Term& right) const {
    require_number(left);
    require_number(right);
    if (left.units == right.units) return;
    const bool keep_left = left.has_axes || !right.has_axes;
    const Term &kept = keep_left ? left : right, &other = keep_left ? right : left;
    const QuantityName name = quantity_name(kept.units);
    refuse(fmt::format("{} is {}, and {} is {}; write {}{} in place of {}", left.text, quantity_name(left.units).name,
                       right.text, quantity_name(right.units).name, name.name,
                       name.example.empty() ? "" : fmt::format(", such as {},", name.example), other.text));
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  /// Takes a sign or a word that is next.
  bool take(std::string_view token) {
    if (text_.compare(at_, token.size(), token) != 0) return false;
    const std::size_t end = at_ + token.size();
    if (is_letter(token.front()) && end < text_.size() && is_name(text_[end])) return false;
    at_ = end;
    skip_blanks();
    return true;
  }
  std::string_view take_while(bool (*belongs)(char)) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return std::string_view(text_).substr(begin, at_ - begin);
  }
  std::string since(std::size_t begin) const {
    std::size_t end = at_;
    while (end > begin && std::isspace(static_cast<unsigned char>(text_[end - 1])) != 0) --end;
    return text_.substr(begin, end - begin);
  }

  Term alternatives() {
    const std::size_t begin = at_;
    Term left = conjunction();
    while (take("or") || take("||")) left = joined(begin, std::move(left), conjunction(), false);
    return left;
  }
  Term conjunction() {
    const std::size_t begin = at_;
    Term left = comparison();
    while (take("and") || take("&&")) left = joined(begin, std::move(left), comparison(), true);
    return left;
  }
  /// With the value that decides without the second side: 0 for `and`, 1 for `or`.
  Term joined(std::size_t begin, Term left, Term right, bool all) const {
    require_truth(left);
    require_truth(right);
    return {.value = [first = std::move(left.value), second = std::move(right.value),
                      all](const auto& at) { return (first(at) != 0) == all ? second(at) : (all ? 0.0 : 1.0); },
            .text = since(begin),
            .is_truth = true,
            .has_axes = left.has_axes || right.has_axes};
  }

  Term comparison() {
    skip_blanks();
    const std::size_t begin = at_;
    if (std::optional<Term> texts = text_comparison()) return std::move(*texts);
    at_ = begin;
    Term left = sum();
    const auto sign = take_comparison();
    if (!sign) return left;
    const Term right = sum();
    require_alike(left, right);
    if (take_comparison()) refuse("compare two values at a time, and join comparisons with and");
    return {.value = [first = std::move(left.value), second = right.value,
                      sign](const auto& at) { return sign(first(at), second(at)) ? 1.0 : 0.0; },
            .text = since(begin),
            .is_truth = true,
            .has_axes = left.has_axes || right.has_axes};
  }
  bool (*take_comparison())(double, double) {
    if (take("<=")) return [](double a, double b) { return a <= b; };
    if (take(">=")) return [](double a, double b) { return a >= b; };
    if (take("==")) return [](double a, double b) { return a == b; };
    if (take("!=")) return [](double a, double b) { return a != b; };
    if (take("<")) return [](double a, double b) { return a < b; };
    if (take(">")) return [](double a, double b) { return a > b; };
    if (take("=")) not_a_formula("write == to compare");
    return nullptr;
  }

  /// An axis and a text; nothing, and a place somewhere behind, where something else is next.
  std::optional<Term> text_comparison() {
    const std::size_t begin = at_;
    const std::string name(take_while(is_name));
    skip_blanks();
    const bool equal = take("==");
    if (name.empty() || is_digit(name.front()) || (!equal && !take("!="))) return std::nullopt;
    std::string value;
    if (at_ < text_.size() && text_[at_] == '"') {
      const std::size_t end = text_.find('"', at_ + 1);
      if (end == std::string::npos) not_a_formula("a quote has no end");
      value = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else {
      if (at_ == text_.size() || !is_letter(text_[at_])) return std::nullopt;
      value = take_while([](char c) { return is_name(c) || c == '/' || c == '-'; });
      if (axis_named(value) || function_named(value) != nullptr) return std::nullopt;
    }
    skip_blanks();
    const std::size_t axis = axis_or_throw(name);
    const std::vector<std::string>& values = axes_[axis].values;
    if (std::ranges::find(values, value) == values.end())
      refuse(fmt::format("{} never is '{}'{}; it is {}", name, printable(value), did_you_mean(value, values),
                         join(values)));
    std::vector<double> holds;
    for (const std::string& each : values) holds.push_back((each == value) == equal ? 1 : 0);
    return Term{.value = [axis, holds = std::move(holds)](const auto& at) { return holds[at[axis]]; },
                .text = since(begin),
                .is_truth = true,
                .has_axes = true};
  }

  Term sum() {
    const std::size_t begin = at_;
    Term left = product();
    for (;;) {
      const bool plus = take("+");
      if (!plus && !take("-")) return left;
      const Term right = product();
      require_alike(left, right);
      left = operation(
          begin, left, right, left.units,
          plus ? [](double a, double b) { return a + b; } : [](double a, double b) { return a - b; });
    }
  }
  Term product() {
    const std::size_t begin = at_;
    Term left = negation();
    for (;;) {
      const bool times = take("*");
      if (!times && !take("/")) return left;
      Term right = negation();
      require_number(left);
      require_number(right);
      const int sign = times ? 1 : -1;
      const BaseUnits units{
          left.units.seconds + sign * right.units.seconds, left.units.bytes + sign * right.units.bytes,
          left.units.operations + sign * right.units.operations, left.units.joules + sign * right.units.joules};
      if (!times) right.value = divisor(right);
      left = operation(
          begin, left, right, units,
          times ? [](double a, double b) { return a * b; } : [](double a, double b) { return a / b; });
    }
  }
  /// The same value, which is never 0.
  Value divisor(const Term& term) const {
    Value checked = [value = term.value,
                     why = fmt::format("'{}': the divisor {} is zero", printable(text_), term.text)](const auto& at) {
      const double number = value(at);
      if (number == 0) throw UserError(why);
      return number;
    };
    if (!term.has_axes) checked({});
    return checked;
  }
  Term negation() {
    const std::size_t begin = at_;
    const Deeper deeper(*this);
    if (!take("-")) return power();
    Term term = negation();
    require_number(term);
    term.value = [value = std::move(term.value)](const auto& at) { return -value(at); };
    term.text = since(begin);
    return term;
  }
  Term power() {
    const std::size_t begin = at_;
    Term left = primary();
    if (!take("^")) return left;
    const Term right = negation();
    require_bare(left, "^");
    require_bare(right, "^");
    return operation(begin, left, right, {}, [](double a, double b) { return std::pow(a, b); });
  }

  /// Arithmetic whose result is finite.
  Term operation(std::size_t begin, const Term& left, const Term& right, BaseUnits units,
                 double (*of)(double, double)) const {
    std::string text = since(begin);
    Value value = finite(
        text, [first = left.value, second = right.value, of](const auto& at) { return of(first(at), second(at)); });
    return {std::move(value), std::move(text), units, false, left.has_axes || right.has_axes};
  }
  Value finite(const std::string& text, Value value) const {
    return [value = std::move(value),
            why = fmt::format("'{}': {} is no finite number", printable(text_), text)](const auto& at) {
      const double number = value(at);
      if (!std::isfinite(number)) throw UserError(why);
      return number;
    };
  }

  Term primary() {
    const std::size_t begin = at_;
    if (take("(")) {
      Term inner = alternatives();
      if (!take(")")) not_a_formula("a bracket has no end");
      inner.text = since(begin);
      return inner;
    }
    if (at_ < text_.size() && is_digit(text_[at_])) return quantity();
    const std::string name(take_while(is_name));
    skip_blanks();
    if (name.empty() || name == "and" || name == "or")
      not_a_formula(begin == text_.size() ? "a value is missing at its end"
                                          : fmt::format("unexpected '{}'", printable(text_.substr(begin))));
    if (take("(")) return call(begin, name);
    if (const auto axis = axis_named(name)) return numbers(name, *axis);
    if (const auto unit = measured_of(fmt::format("1 {}", name))) return constant(*unit, name);
    axis_or_throw(name);
    return {};
  }

  static Term constant(const Measured& number, std::string text) {
    return {
        .value = [value = number.value](const auto&) { return value; }, .text = std::move(text), .units = number.units};
  }

  /// "4", "0.5", "25 %", "1.4 GB/s".
  Term quantity() {
    const std::size_t begin = at_;
    take_while([](char c) { return is_digit(c) || c == '.'; });
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const std::size_t sign = at_ + 1 < text_.size() && (text_[at_ + 1] == '-' || text_[at_ + 1] == '+') ? 1 : 0;
      if (at_ + 1 + sign < text_.size() && is_digit(text_[at_ + 1 + sign])) {
        at_ += 1 + sign;
        take_while(is_digit);
      }
    }
    const std::size_t number_end = at_;
    skip_blanks();
    if (const std::string_view unit = take_while(is_unit); unit.empty() || unit == "and" || unit == "or") {
      at_ = number_end;
    } else if (at_ < text_.size() && text_[at_] == '/') {
      // "GB/s" is a unit, "KiB/channels" a quotient.
      const std::size_t unit_end = at_++;
      const std::string below(take_while(is_name));
      if (below.empty() || is_digit(below.front()) || axis_named(below) || function_named(below) != nullptr)
        at_ = unit_end;
    }
    const std::string text = text_.substr(begin, at_ - begin);
    skip_blanks();
    const std::optional<Measured> number = measured_of(text);
    if (!number) refuse(fmt::format("'{}' is no quantity", printable(text)));
    return constant(*number, text);
  }

  Term numbers(const std::string& name, std::size_t axis) const {
    std::vector<double> numbers;
    std::optional<BaseUnits> units;
    for (const std::string& value : axes_[axis].values) {
      const std::optional<Measured> number = measured_of(value);
      if (!number)
        refuse(fmt::format("the value '{}' of {} is no number; compare it with == or !=", printable(value), name));
      if (units && *units != number->units)
        refuse(fmt::format("the value {} of {} is {}, and {} is {}; compare them with == or != and quotes", value, name,
                           quantity_name(number->units).name, axes_[axis].values.front(), quantity_name(*units).name));
      units = number->units;
      numbers.push_back(number->value);
    }
    return {.value = [axis, numbers = std::move(numbers)](const auto& at) { return numbers[at[axis]]; },
            .text = name,
            .units = *units,
            .has_axes = true};
  }

  /// A function, behind its opening bracket.
  Term call(std::size_t begin, const std::string& name) {
    const Function* const function = function_named(name);
    if (function == nullptr) {
      std::vector<std::string> names;
      for (const Function& each : kFunctions) names.emplace_back(each.name);
      refuse(fmt::format("there is no function {}{}; exists: {}", name, did_you_mean(name, names), join(names)));
    }
    std::vector<Value> values;
    std::optional<Term> first;
    bool has_axes = false;
    do {
      Term term = sum();
      if (function->keeps_unit)
        require_alike(first ? *first : term, term);
      else
        require_bare(term, name);
      has_axes = has_axes || term.has_axes;
      values.push_back(term.value);
      if (!first) first = std::move(term);
    } while (take(","));
    if (!take(")")) not_a_formula("a bracket has no end");
    if (!function->of_many && values.size() > 1) refuse(fmt::format("{} takes one value", name));
    std::string text = since(begin);
    Value value = finite(text, [values = std::move(values), function](const auto& at) {
      std::vector<double> of;
      for (const Value& each : values) of.push_back(each(at));
      return function->of(of);
    });
    return {std::move(value), std::move(text), first->units, false, has_axes};
  }

  /// Counts brackets and signs inside each other.
  class Deeper {
   public:
    explicit Deeper(ConditionReader& reader) : reader_(reader) {
      constexpr int kDeepest = 100;
      if (++reader_.depth_ > kDeepest) reader_.refuse(fmt::format("more than {} brackets inside each other", kDeepest));
    }
    ~Deeper() { --reader_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ConditionReader& reader_;
  };

  const std::string& text_;
  const std::vector<Condition::Axis>& axes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Condition::Condition(const std::string& text, const std::vector<Axis>& axes)
    : value_(ConditionReader(text, axes).read()) {}

}  // namespace csdsim::scenario

// Arithmetic over named numbers, as people write it: "100 * (1 - a.tokens_per_s / b.tokens_per_s)", "batch <= 8".
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace csdsim {

/// A formula in the language of muParser: + - * / ^, comparisons (1 or 0), && ||, A ? B : C, min, max, sum, avg, abs,
/// sqrt, ln, log10 and so on, and the constants KiB, MiB, GiB, TiB (bytes), kB, MB, GB and TB. Names may hold dots.
class Formula {
 public:
  /// Throws UserError for what is not a formula.
  explicit Formula(std::string text);

  const std::string& text() const { return text_; }
  /// Each name once, sorted.
  const std::vector<std::string>& names() const { return names_; }
  /// Throws what `value` throws. Infinite or not a number after a division by 0.
  double evaluate(const std::function<double(const std::string&)>& value) const;

 private:
  std::string text_;
  std::vector<std::string> names_;
};

}  // namespace csdsim

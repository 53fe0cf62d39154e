#include "host_runtime/checkpoint/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/icu.h"

namespace csdsim::host {
namespace {

// Bytes of backtracking (on the heap; ICU's default is 8 MB): enough for words of some million characters.
constexpr std::int32_t kBacktrackLimit = 1 << 29;
// Steps of ICU's match engine, some 10,000 saved states each: what a part may take, and what it may take per character
// of the text. Patterns of published tokenizers need far less; one that backtracks without end reaches it within a
// second.
constexpr std::int32_t kStepLimit = 1000;
constexpr std::int32_t kCharactersPerStep = 200;

constexpr UChar32 kReplacement = 0xFFFD;

std::u16string decoded(std::string_view text) {
  if (text.size() > static_cast<std::size_t>(INT32_MAX)) {
    throw UserError(fmt::format("{} bytes are too much text to tokenise at once", text.size()));
  }
  const auto size = static_cast<std::int32_t>(text.size());
  std::u16string units(text.size(), u'\0');  // a character has at most as many units as bytes
  std::int32_t length = 0;
  UErrorCode status = U_ZERO_ERROR;
  icu().from_utf8(units.data(), size, &length, text.data(), size, kReplacement, nullptr, &status);
  if (U_FAILURE(status)) throw InternalError(fmt::format("UTF-8: {}", icu().error_name(status)));
  units.resize(static_cast<std::size_t>(length));
  return units;
}

std::string encoded(std::u16string_view units) {
  const auto size = static_cast<std::int32_t>(units.size());
  std::string text(3 * units.size(), '\0');  // a unit becomes at most three bytes
  std::int32_t length = 0;
  UErrorCode status = U_ZERO_ERROR;
  icu().to_utf8(text.data(), static_cast<std::int32_t>(std::min<std::size_t>(text.size(), INT32_MAX)), &length,
                units.data(), size, kReplacement, nullptr, &status);
  if (U_FAILURE(status)) throw InternalError(fmt::format("UTF-8: {}", icu().error_name(status)));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace

struct TextSplitter::Impl {
  struct Close {
    void operator()(URegularExpression* regex) const { icu().regex_close(regex); }
  };
  using Regex = std::unique_ptr<URegularExpression, Close>;
  Regex pattern;
  std::string text, where;
};

TextSplitter::TextSplitter(const std::string& pattern, const std::string& where) : impl_(std::make_unique<Impl>()) {
  impl_->text = pattern;
  impl_->where = where;
  UErrorCode status = U_ZERO_ERROR;
  UParseError at;
  const std::u16string units = decoded(pattern.empty() ? "(?:)" : pattern);  // uregex_open() takes no empty one
  impl_->pattern.reset(icu().regex_open(units.data(), static_cast<std::int32_t>(units.size()), 0, &at, &status));
  if (U_FAILURE(status)) {
    throw UserError(
        fmt::format("{}: '{}' is not a regular expression: {}", where, printable(pattern), icu().error_name(status)));
  }
}

TextSplitter::~TextSplitter() = default;
TextSplitter::TextSplitter(TextSplitter&&) noexcept = default;

std::vector<std::string> TextSplitter::split(std::string_view text) const {
  const std::u16string units = decoded(text);
  const auto length = static_cast<std::int32_t>(units.size());
  UErrorCode status = U_ZERO_ERROR;
  const Impl::Regex matcher(icu().regex_clone(impl_->pattern.get(), &status));
  icu().regex_set_text(matcher.get(), units.data(), length, &status);
  icu().regex_set_stack_limit(matcher.get(), kBacktrackLimit, &status);
  icu().regex_set_time_limit(matcher.get(), kStepLimit + length / kCharactersPerStep, &status);
  std::vector<std::string> parts;
  std::int32_t done = 0;
  const auto take = [&](std::int32_t end) {
    if (end > done)
      parts.push_back(encoded(
          std::u16string_view(units).substr(static_cast<std::size_t>(done), static_cast<std::size_t>(end - done))));
    done = end;
  };
  while (U_SUCCESS(status) && icu().regex_find_next(matcher.get(), &status)) {
    take(icu().regex_start(matcher.get(), 0, &status));
    take(icu().regex_end(matcher.get(), 0, &status));
  }
  if (status == U_REGEX_TIME_OUT || status == U_REGEX_STACK_OVERFLOW)
    throw UserError(
        fmt::format("{}: text cannot be tokenised: the regular expression '{}' tries too many ways to match it ({})",
                    impl_->where, printable(impl_->text), icu().error_name(status)));
  if (U_FAILURE(status))
    throw UserError(fmt::format("{}: text cannot be tokenised: {}", impl_->where, icu().error_name(status)));
  take(length);
  return parts;
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    // Other bytes, those of longer characters included, stand for themselves.
    if (std::string_view(R"(*?+[(){}^$|\./])").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string normalize_nfc(std::string_view text) {
  const std::u16string units = decoded(text);
  const auto size = static_cast<std::int32_t>(units.size());
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* const nfc = icu().nfc(&status);
  std::u16string normalized(units.size(), u'\0');
  const auto normalize = [&] {
    const auto room = static_cast<std::int32_t>(normalized.size());
    return icu().normalize(nfc, units.data(), size, normalized.data(), room, &status);
  };
  std::int32_t length = normalize();
  if (status == U_BUFFER_OVERFLOW_ERROR) {  // some characters become longer
    status = U_ZERO_ERROR;
    normalized.resize(static_cast<std::size_t>(length));
    length = normalize();
  }
  if (U_FAILURE(status)) throw InternalError(fmt::format("NFC: {}", icu().error_name(status)));
  normalized.resize(static_cast<std::size_t>(length));
  return encoded(normalized);
}

std::size_t space_at_start(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = code_point_at(text, at);
    if (!icu().is_white_space(static_cast<UChar32>(next.code))) break;
    at += next.length;
  }
  return at;
}

std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!icu().is_white_space(static_cast<UChar32>(code_point_at(text, at).code))) break;
    end = at;
  }
  return text.size() - end;
}

std::string repair_utf8(std::string_view bytes) { return encoded(decoded(bytes)); }

}  // namespace csdsim::host

#include "host_runtime/checkpoint/unicode.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::host {
namespace {

// Bytes of backtracking (on the heap; ICU's default is 8 MB): enough for words of some million characters.
constexpr std::int32_t kBacktrackLimit = 1 << 29;
// Steps of ICU's match engine, some 10,000 saved states each: what a part may take, and what it may take per character
// of the text. Patterns of published tokenizers need far less; one that backtracks without end reaches it within a
// second.
constexpr std::int32_t kStepLimit = 1000;
constexpr std::int32_t kCharactersPerStep = 200;

icu::UnicodeString decoded(std::string_view text) {
  if (text.size() > static_cast<std::size_t>(INT32_MAX)) {
    throw UserError(fmt::format("{} bytes are too much text to tokenise at once", text.size()));
  }
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
}

std::string encoded(const icu::UnicodeString& text) {
  std::string utf8;
  return text.toUTF8String(utf8);
}

}  // namespace

struct TextSplitter::Impl {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string text, where;
};

TextSplitter::TextSplitter(const std::string& pattern, const std::string& where) : impl_(std::make_unique<Impl>()) {
  impl_->text = pattern;
  impl_->where = where;
  UErrorCode status = U_ZERO_ERROR;
  UParseError at;
  impl_->pattern.reset(icu::RegexPattern::compile(decoded(pattern), 0, at, status));
  if (U_FAILURE(status)) {
    throw UserError(
        fmt::format("{}: '{}' is not a regular expression: {}", where, printable(pattern), u_errorName(status)));
  }
}

TextSplitter::~TextSplitter() = default;
TextSplitter::TextSplitter(TextSplitter&&) noexcept = default;

std::vector<std::string> TextSplitter::split(std::string_view text) const {
  const icu::UnicodeString units = decoded(text);
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(impl_->pattern->matcher(units, status));
  if (U_SUCCESS(status)) matcher->setStackLimit(kBacktrackLimit, status);
  if (U_SUCCESS(status)) matcher->setTimeLimit(kStepLimit + units.length() / kCharactersPerStep, status);
  std::vector<std::string> parts;
  std::int32_t done = 0;
  const auto take = [&](std::int32_t end) {
    if (end > done) parts.push_back(encoded(units.tempSubStringBetween(done, end)));
    done = end;
  };
  while (U_SUCCESS(status) && matcher->find(status)) {
    take(matcher->start(status));
    take(matcher->end(status));
  }
  if (status == U_REGEX_TIME_OUT || status == U_REGEX_STACK_OVERFLOW)
    throw UserError(
        fmt::format("{}: text cannot be tokenised: the regular expression '{}' tries too many ways to match it ({})",
                    impl_->where, printable(impl_->text), u_errorName(status)));
  if (U_FAILURE(status))
    throw UserError(fmt::format("{}: text cannot be tokenised: {}", impl_->where, u_errorName(status)));
  take(units.length());
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
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(status);
  std::string normalized;
  if (U_SUCCESS(status)) normalized = encoded(nfc->normalize(decoded(text), status));
  if (U_FAILURE(status)) throw InternalError(fmt::format("NFC: {}", u_errorName(status)));
  return normalized;
}

std::size_t space_at_start(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = code_point_at(text, at);
    if (!u_isUWhiteSpace(static_cast<UChar32>(next.code))) break;
    at += next.length;
  }
  return at;
}

std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!u_isUWhiteSpace(static_cast<UChar32>(code_point_at(text, at).code))) break;
    end = at;
  }
  return text.size() - end;
}

std::string repair_utf8(std::string_view bytes) { return encoded(decoded(bytes)); }

}  // namespace csdsim::host

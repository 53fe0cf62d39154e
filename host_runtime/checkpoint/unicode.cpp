#include "host_runtime/checkpoint/unicode.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::host {
namespace {

// Bytes of backtracking (on the heap; ICU's default is 8 MB): enough for words of some million characters.
constexpr std::int32_t kBacktrackLimit = 1 << 29;

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
};

TextSplitter::TextSplitter(const std::string& pattern, const std::string& where) : impl_(std::make_unique<Impl>()) {
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
  if (U_FAILURE(status)) throw UserError(fmt::format("text cannot be tokenised: {}", u_errorName(status)));
  take(units.length());
  return parts;
}

std::string normalize_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(status);
  std::string normalized;
  if (U_SUCCESS(status)) normalized = encoded(nfc->normalize(decoded(text), status));
  if (U_FAILURE(status)) throw InternalError(fmt::format("NFC: {}", u_errorName(status)));
  return normalized;
}

std::string repair_utf8(std::string_view bytes) { return encoded(decoded(bytes)); }

}  // namespace csdsim::host

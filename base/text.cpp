#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>

#include "base/look_alikes.h"

namespace csdsim {
namespace {

/// True if every character is ASCII or looks like it.
bool reads_as_ascii(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (c.code >= 0x80 && ascii_look_alike(c.code) == 0 && !invisible(c.code)) return false;
    i += c.length;
  }
  return true;
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Optimal string alignment distance, ignoring case.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        next[j] = std::min(next[j], before[j - 2] + 1);
      }
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.empty() || name.size() > 64) return "";
  std::string best;
  const std::size_t limit = std::max<std::size_t>(1, name.size() / 3);
  std::size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    // A piece of a compound name is a hint, too, if a weak one: "bandwidth" for "channel_bandwidth".
    const bool part = (name.size() >= 4 && candidate.find(name) != std::string::npos) ||
                      (candidate.size() >= 4 && name.starts_with(candidate));
    const std::size_t d = std::min(distance(name, candidate), part ? limit : limit + 1);
    if (d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(name, candidates);
  return near.empty() ? "" : fmt::format(" (did you mean {}?)", near);
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::size_t invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    // Eight ASCII characters at once.
    if (std::uint64_t eight = 0; text.size() - i >= sizeof eight) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const auto byte = [&](std::size_t k) { return static_cast<std::uint8_t>(text[k]); };
    const std::uint8_t lead = byte(i);
    std::size_t length = 1;
    std::uint32_t code = lead;
    if (lead >= 0x80) {
      if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2, code = lead & 0x1Fu;
      } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3, code = lead & 0x0Fu;
      } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4, code = lead & 0x07u;
      } else {
        return i;
      }
      if (i + length > text.size()) return i;
      for (std::size_t k = 1; k < length; ++k) {
        if ((byte(i + k) & 0xC0u) != 0x80u) return i;
        code = (code << 6) | (byte(i + k) & 0x3Fu);
      }
      const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
      if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + k])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = lead & (0xFFu >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) code = (code << 6) | (byte(k) & 0x3Fu);
  return {code, length};
}

std::string printable(std::string_view text, std::size_t limit) {
  const bool utf8 = invalid_utf8(text) == std::string_view::npos;
  const bool ascii = utf8 && reads_as_ascii(text);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= limit) return out + "...";
    const CodePoint c = utf8 ? code_point_at(text, i) : CodePoint{static_cast<unsigned char>(text[i]), 1};
    if (c.code < 0x20 || c.code == 0x7F || (c.code >= 0x80 && !utf8)) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c.code));
    } else if (!utf8 || !invisible(c.code)) {
      out += text.substr(i, c.length);
      if (ascii && c.code >= 0x80) out += fmt::format("<U+{:04X}>", static_cast<std::uint32_t>(c.code));
    } else {
      out += fmt::format("<U+{:04X}>", static_cast<std::uint32_t>(c.code));
    }
    i += c.length;
  }
  return out;
}

std::string json_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace csdsim

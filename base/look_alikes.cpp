#include "base/look_alikes.h"

#include <algorithm>
#include <iterator>

namespace csdsim {
namespace {

struct LookAlike {
  char32_t code;
  char ascii;
};

// Sorted by code.
constexpr LookAlike kLookAlikes[] = {
    {0x00B5, 'u'}, {0x00D7, '*'},  {0x0131, 'i'},  {0x017F, 's'},  {0x02B9, '\''}, {0x02BC, '\''}, {0x0391, 'A'},
    {0x0392, 'B'}, {0x0395, 'E'},  {0x0396, 'Z'},  {0x0397, 'H'},  {0x0399, 'I'},  {0x039A, 'K'},  {0x039C, 'M'},
    {0x039D, 'N'}, {0x039F, 'O'},  {0x03A1, 'P'},  {0x03A4, 'T'},  {0x03A5, 'Y'},  {0x03A7, 'X'},  {0x03B1, 'a'},
    {0x03B3, 'y'}, {0x03B7, 'n'},  {0x03B9, 'i'},  {0x03BA, 'k'},  {0x03BC, 'u'},  {0x03BD, 'v'},  {0x03BF, 'o'},
    {0x03C1, 'p'}, {0x03C5, 'u'},  {0x03C9, 'w'},  {0x03F2, 'c'},  {0x0405, 'S'},  {0x0406, 'I'},  {0x0408, 'J'},
    {0x0410, 'A'}, {0x0412, 'B'},  {0x0415, 'E'},  {0x041A, 'K'},  {0x041C, 'M'},  {0x041D, 'H'},  {0x041E, 'O'},
    {0x0420, 'P'}, {0x0421, 'C'},  {0x0422, 'T'},  {0x0425, 'X'},  {0x0430, 'a'},  {0x0435, 'e'},  {0x043A, 'k'},
    {0x043E, 'o'}, {0x0440, 'p'},  {0x0441, 'c'},  {0x0443, 'y'},  {0x0445, 'x'},  {0x0455, 's'},  {0x0456, 'i'},
    {0x0458, 'j'}, {0x0461, 'w'},  {0x0475, 'v'},  {0x04AE, 'Y'},  {0x04BB, 'h'},  {0x04CF, 'l'},  {0x0501, 'd'},
    {0x051B, 'q'}, {0x0585, 'o'},  {0x2010, '-'},  {0x2011, '-'},  {0x2012, '-'},  {0x2013, '-'},  {0x2014, '-'},
    {0x2015, '-'}, {0x2017, '_'},  {0x2018, '\''}, {0x2019, '\''}, {0x201A, ','},  {0x201C, '"'},  {0x201D, '"'},
    {0x2024, '.'}, {0x2032, '\''}, {0x2033, '"'},  {0x2044, '/'},  {0x212A, 'K'},  {0x212E, 'e'},  {0x2212, '-'},
    {0x2215, '/'}, {0x2217, '*'},  {0x2223, '|'},  {0x2236, ':'},  {0x223C, '~'},  {0xA789, ':'},  {0xA78A, '='},
    {0xFE63, '-'}};
static_assert(std::ranges::is_sorted(kLookAlikes, {}, &LookAlike::code));

}  // namespace

char ascii_look_alike(char32_t code) {
  if (code >= 0xFF01 && code <= 0xFF5E) return static_cast<char>(code - 0xFF01 + '!');  // full-width forms
  const auto found = std::ranges::lower_bound(kLookAlikes, code, {}, &LookAlike::code);
  return found != std::end(kLookAlikes) && found->code == code ? found->ascii : '\0';
}

bool invisible(char32_t code) {
  const auto in = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
  return in(0x80, 0xA0) || code == 0xAD || code == 0x34F || code == 0x61C || code == 0x1680 || in(0x17B4, 0x17B5) ||
         code == 0x180E || in(0x2000, 0x200F) || in(0x2028, 0x202F) || in(0x205F, 0x206F) || code == 0x2800 ||
         code == 0x3000 || code == 0x3164 || in(0xFE00, 0xFE0F) || code == 0xFEFF || code == 0xFFA0 ||
         in(0xFFF9, 0xFFFB) || in(0xE0000, 0xE01EF);
}

}  // namespace csdsim

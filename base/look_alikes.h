// Characters that a reader cannot tell from others: invisible ones, and ones that look like ASCII.
#pragma once

namespace csdsim {

/// The ASCII character that `code` looks like (Unicode TR 39, the part that occurs in names, numbers and units of
/// files): Greek and Cyrillic letters, full-width forms, dashes, quotation marks. 0 for all others.
char ascii_look_alike(char32_t code);

/// True if nothing, or only blank space, is seen of the character; not for ASCII.
bool invisible(char32_t code);

}  // namespace csdsim

// Functions of ICU. The library is loaded with the first use: most runs read no tokenizer, and to load it takes a tenth
// of a short run.
#pragma once

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uregex.h>
#include <unicode/ustring.h>

namespace csdsim::host {

/// What the tokenizers need of it.
struct Icu {
  decltype(&u_errorName) error_name;
  decltype(&u_isUWhiteSpace) is_white_space;
  decltype(&u_strFromUTF8WithSub) from_utf8;
  decltype(&u_strToUTF8WithSub) to_utf8;
  decltype(&unorm2_getNFCInstance) nfc;
  decltype(&unorm2_normalize) normalize;
  decltype(&uregex_open) regex_open;
  decltype(&uregex_clone) regex_clone;
  decltype(&uregex_close) regex_close;
  decltype(&uregex_setText) regex_set_text;
  decltype(&uregex_setStackLimit) regex_set_stack_limit;
  decltype(&uregex_setTimeLimit) regex_set_time_limit;
  decltype(&uregex_findNext) regex_find_next;
  decltype(&uregex_start) regex_start;
  decltype(&uregex_end) regex_end;
};

/// Throws UserError if ICU cannot be loaded.
const Icu& icu();

}  // namespace csdsim::host

// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  formats::check_error(text);
  if (text.ok() && !text->starts_with("\xEF\xBB\xBF") && !text->starts_with("\x1f\x8b")) {
    MAYPOLE_CHECK(formats::decode_text(*text, "fuzz").value() == *text);  // what is plain text stays
  }
  return 0;
}

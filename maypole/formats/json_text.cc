// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/json_text.h"

#include "maypole/formats/number.h"

#include <fmt/format.h>

namespace maypole::formats {

std::string json_string(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 2);
  quoted += '"';
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      quoted += '\\';
      quoted += character;
    } else if (static_cast<unsigned char>(character) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(character));
    } else {
      quoted += character;
    }
  }
  return quoted + '"';
}

std::string json_number(std::optional<double> value) { return value ? format_number(*value) : "null"; }

}  // namespace maypole::formats

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/check.h"
#include "maypole/formats/text_file.h"
#include "maypole/model/cluster.h"

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace maypole::formats {

/// The bytes as a reader of files would have them; an error where they are no text.
inline absl::StatusOr<std::string> text_of(const std::uint8_t* data, std::size_t size) {
  return decode_text(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
}

/// An error is one line that begins with the file's name.
template <typename Result>
void check_error(const Result& result) {
  if (!result.ok()) {
    const auto message = result.status().message();
    const std::string text(message.data(), message.size());
    MAYPOLE_CHECK(text.starts_with("fuzz") || text.starts_with("/"));
    MAYPOLE_CHECK_LT(text.size(), 4000U);
  }
}

}  // namespace maypole::formats

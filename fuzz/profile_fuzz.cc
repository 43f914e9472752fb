// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/profile_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  const auto profile = formats::parse_profile(*text, "fuzz");
  formats::check_error(profile);
  if (profile.ok()) {
    const std::string written = formats::profile_json(*profile);
    const auto again = formats::parse_profile(written, "fuzz");
    MAYPOLE_CHECK(again.ok());
    MAYPOLE_CHECK(formats::profile_json(*again) == written);
  }
  return 0;
}

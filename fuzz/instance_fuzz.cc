// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/instance_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  const auto instance = formats::parse_instance(*text, "fuzz");
  formats::check_error(instance);
  if (instance.ok()) {
    const std::string written = formats::instance_json(*instance);
    const auto again = formats::parse_instance(written, "fuzz");
    MAYPOLE_CHECK(again.ok());
    MAYPOLE_CHECK(formats::instance_json(*again) == written);
  }
  return 0;
}

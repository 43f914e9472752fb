// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/decision_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  const auto decision = formats::parse_decision_line(*text, "fuzz", 1);
  formats::check_error(decision);
  if (decision.ok()) {
    const auto again = formats::parse_decision_line(formats::decision_json(*decision), "fuzz", 1);
    MAYPOLE_CHECK(again.ok());
    MAYPOLE_CHECK(*again == *decision);
  }
  return 0;
}

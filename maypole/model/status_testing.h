// SPDX-License-Identifier: Apache-2.0
#pragma once

// A matcher for error sentences: `EXPECT_THAT(check_job(job, cluster), FailsWith("job 'a' has weight -1"))`.

#include "maypole/base/status.h"

#include <absl/status/statusor.h>
#include <gmock/gmock.h>

#include <string>

namespace maypole::model {

inline const absl::Status& status_of(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& status_of(const absl::StatusOr<T>& result) {
  return result.status();
}

// NOLINTNEXTLINE(readability-identifier-naming): reads like gmock's own matchers
MATCHER_P(FailsWith, sentence, "") {
  if (arg.ok()) {
    *result_listener << "is no error";
    return false;
  }
  const std::string text = base::message(status_of(arg));
  *result_listener << "says: " << text;
  return ::testing::ExplainMatchResult(::testing::HasSubstr(sentence), text, result_listener);
}

}  // namespace maypole::model

// SPDX-License-Identifier: Apache-2.0
#include "fuzzing.h"
#include "maypole/formats/job_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const auto text = formats::text_of(data, size);
  if (!text.ok()) {
    return 0;
  }
  const auto job = formats::parse_job_file(*text, "fuzz");
  formats::check_error(job);
  if (job.ok()) {
    MAYPOLE_CHECK(!job->command.empty());
    MAYPOLE_CHECK(job->job.min_workers >= 1 && job->job.min_workers <= job->job.workers && job->job.workers <= job->job.max_workers);
  }
  static_cast<void>(formats::parse_rack_limit(*text));
  static_cast<void>(formats::parse_utility(*text));
  return 0;
}

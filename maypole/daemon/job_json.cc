// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/job_json.h"

#include "maypole/formats/json_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace maypole::daemon {

namespace {

using formats::json_number;
using formats::json_string;

std::string json_strings(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    return "[]";
  }
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) {
    quoted.push_back(json_string(text));
  }
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::vector<std::string> distinct(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  const auto doubled = std::ranges::unique(texts);
  texts.erase(doubled.begin(), doubled.end());
  return texts;
}

}  // namespace

void append_job_json(const Job& job, std::string& text) {
  const JobRow& row = job.row;
  const std::vector<std::string> ring = job.ring ? job.ring->ring : std::vector<std::string>();
  fmt::format_to(std::back_inserter(text), R"({{"id": "{}", "name": )", row.number);
  text += json_string(job.file.name);
  text += R"(, "owner": )";
  text += json_string(row.owner);
  text += R"(, "state": ")";
  text += name_of(row.state);
  text += R"(", "reason": )";
  text += json_string(job.reason());
  fmt::format_to(std::back_inserter(text), R"(, "workers": {}, "min_workers": {}, "max_workers": {}, "servers": )", ring.size(),
                 job.file.job.min_workers, job.file.job.max_workers);
  text += json_strings(distinct(ring));
  text += R"(, "ring": )";
  text += json_strings(ring);
  text += R"(, "submitted_s": )";
  text += json_number(row.submitted_s);
  text += R"(, "started_s": )";
  text += json_number(row.started_s);
  text += R"(, "finished_s": )";
  text += json_number(row.finished_s);
  text += R"(, "exit_code": )";
  text += row.exit_code ? std::to_string(*row.exit_code) : "null";
  fmt::format_to(std::back_inserter(text), R"(, "retries": {}, "resizes": {}}})", row.failures, row.resizes);
}

std::string job_json(const Job& job) {
  std::string text;
  append_job_json(job, text);
  return text;
}

}  // namespace maypole::daemon

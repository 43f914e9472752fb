// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/size_range.h"

#include "maypole/base/status.h"

#include <charconv>
#include <optional>

namespace maypole::cli {

namespace {

constexpr int kMaxWorkers = 4096;

std::optional<int> count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= kMaxWorkers ? std::optional<int>(value) : std::nullopt;
}

}  // namespace

absl::StatusOr<elastic::SizeRange> parse_size_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::optional<int> min = count(text.substr(0, colon));
  const std::optional<int> max = colon == std::string_view::npos ? min : count(text.substr(colon + 1));
  if (!min || !max || *min > *max) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "'{}' is no number of workers: write one from 1 to {}, as 6, or a range that does not fall, as 2:6", text,
                       kMaxWorkers);
  }
  return elastic::SizeRange{*min, *max};
}

}  // namespace maypole::cli

// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace maypole::daemon {

namespace {

/// Letters to insert, delete, replace or swap with their neighbour.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view written, const std::vector<std::string>& names) {
  const std::size_t most = std::max<std::size_t>(1, std::min<std::size_t>(written.size() / 3, 3));
  const std::string* best = nullptr;
  std::size_t least = most + 1;
  for (const std::string& name : names) {
    const std::size_t letters = distance(written, name);
    if (letters < least) {
      least = letters;
      best = &name;
    }
  }
  return best == nullptr ? "" : fmt::format(": did you mean '{}'?", *best);
}

}  // namespace maypole::daemon

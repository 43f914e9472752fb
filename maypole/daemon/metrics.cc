// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/metrics.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace maypole::daemon {

namespace {

std::string label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      escaped += '\\';
    }
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

}  // namespace

std::string metrics_text(const Supervisor& supervisor) {
  std::array<int, kNumJobStates> counts{};
  for (const auto& [number, job] : supervisor.jobs()) {
    ++counts[static_cast<std::size_t>(job.row.state)];
  }
  std::string text = "# HELP maypole_jobs Jobs by state.\n# TYPE maypole_jobs gauge\n";
  for (int i = 0; i < kNumJobStates; ++i) {
    text += fmt::format("maypole_jobs{{state=\"{}\"}} {}\n", name_of(static_cast<JobState>(i)), counts[static_cast<std::size_t>(i)]);
  }
  const model::Cluster& cluster = supervisor.controller().cluster();
  std::string capacity = "# HELP maypole_capacity What a server has.\n# TYPE maypole_capacity gauge\n";
  std::string held = "# HELP maypole_held What of a server is taken by jobs.\n# TYPE maypole_held gauge\n";
  for (std::size_t i = 0; i < cluster.num_servers(); ++i) {
    const auto id = model::ServerId::from_index(i);
    const model::Amounts taken = supervisor.held_on(id);
    for (std::size_t r = 0; r < cluster.num_resources(); ++r) {
      const auto resource = model::ResourceId::from_index(r);
      const std::string labels =
          fmt::format("{{server=\"{}\",resource=\"{}\"}}", label(cluster.server(id).id), label(cluster.resource(resource)));
      capacity += fmt::format("maypole_capacity{} {:.17g}\n", labels, cluster.server(id).capacity[resource]);
      held += fmt::format("maypole_held{} {:.17g}\n", labels, taken[resource]);
    }
  }
  return text + capacity + held;
}

}  // namespace maypole::daemon

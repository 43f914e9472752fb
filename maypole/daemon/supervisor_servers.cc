// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace maypole::daemon {

void Supervisor::close(model::ServerId server, const std::string& reason) {
  closed_.insert(server);
  reasons_closed_[server] = reason;
  look_at_closed();
}

void Supervisor::open(model::ServerId server) {
  closed_.erase(server);
  reasons_closed_.erase(server);
  look_at_closed();
  news_ = true;
}

void Supervisor::look_at_closed() {
  open_part_ = open_part(controller_.cluster(), closed_);
  for (const auto& [number, id] : scheduled_) {
    look_at_closed(jobs_.at(number));
  }
}

void Supervisor::look_at_closed(Job& job) const {
  job.blocked.clear();
  if (closed_.empty() || model::check_job_fits(job.file.job, open_part_).ok()) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& [server, reason] : reasons_closed_) {
    names.push_back(fmt::format("{} is {}", controller_.cluster().server(server).id, reason));
  }
  constexpr std::size_t kMostNames = 3;
  const std::size_t more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - more);
  job.blocked = fmt::format("does not fit what is open: {}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace maypole::daemon

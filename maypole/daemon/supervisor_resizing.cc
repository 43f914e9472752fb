// SPDX-License-Identifier: Apache-2.0
// From a decision to rings: what begins when, and what becomes of the ring of an elastic job.
#include "maypole/base/status.h"
#include "maypole/daemon/device_choice.h"
#include "maypole/daemon/supervisor.h"
#include "maypole/model/routes.h"

#include <algorithm>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr double kSlotsToKeep = 10;  // after a change of a ring has failed

std::vector<std::string> names_of(const model::Cluster& cluster, const model::Embedding& embedding) {
  std::vector<std::string> names;
  for (const model::ServerId server : embedding.ring) {
    names.push_back(cluster.server(server).id);
  }
  return names;
}

/// Whether each of `some` is among `all`, as often.
bool is_part_of(std::vector<std::string> some, std::vector<std::string> all) {
  std::ranges::sort(some);
  std::ranges::sort(all);
  return std::ranges::includes(all, some);
}

/// The accelerators of a worker on each server, as they are known.
class DevicePool {
 public:
  void add(const std::vector<std::string>& servers, const Devices& devices) {
    for (std::size_t i = 0; i < servers.size() && i < devices.size(); ++i) {
      known_.emplace_back(servers[i], devices[i]);
    }
  }
  [[nodiscard]] std::optional<std::vector<int>> take(const std::string& server) {
    const auto found = std::ranges::find(known_, server, [](const auto& one) { return one.first; });
    if (found == known_.end()) {
      return std::nullopt;
    }
    std::vector<int> devices = std::move(found->second);
    known_.erase(found);
    return devices;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int>>> known_;
};

std::string both(const Devices& devices, const Devices& leaving) {
  const std::string before = devices_text(leaving);
  return devices_text(devices) + (before.empty() ? "" : "|" + before);
}

}  // namespace

std::set<int> Supervisor::used_devices() const {
  std::set<int> used;
  for (const auto& [number, epoch] : epochs_) {
    for (const Devices* devices : {&epoch.devices, &epoch.leaving_devices}) {
      for (const std::vector<int>& of_one : *devices) {
        used.insert(of_one.begin(), of_one.end());
      }
    }
  }
  return used;
}

std::string Supervisor::line_of(const Job& job, const model::Embedding& embedding) const {
  formats::DecisionLine line;
  line.slot = step_;
  line.jobs = {formats::job_line(job.row.id(), embedding, controller_.cluster())};
  return formats::decision_json(line);
}

// --- from a decision to what is begun ---

EpochOrder Supervisor::order_of(const Job& job, const Epoch& epoch, const model::Embedding& embedding) const {
  EpochOrder order;
  order.id = {job.row.number, job.row.epoch};
  order.command = job.file.command;
  order.environment = {job.file.env.begin(), job.file.env.end()};
  order.directory = job.file.chdir;
  for (std::size_t rank = 0; rank < embedding.ring.size(); ++rank) {
    order.workers.push_back({controller_.cluster().server(embedding.ring[rank]).id, epoch.devices[rank]});
  }
  for (const auto& [name, amount] : job.file.per_worker) {
    order.cpus_per_worker = name == "cpu" ? amount : order.cpus_per_worker;
  }
  order.edge_bandwidth = job.file.job.edge_bandwidth;
  if (job.elastic()) {
    order.elastic = ElasticOrder{job.file.job.min_workers, job.file.job.max_workers, job.file.retries, job.row.failures};
  }
  return order;
}

void Supervisor::plan(const sched::Decision& decision) {
  for (const sched::Placement& placement : decision.placements) {
    const std::int64_t number = numbers_[placement.job.index()];
    const auto held = held_.find(placement.job);
    if (held == held_.end()) {
      held_[placement.job].ring = placement.embedding;
      planned_.insert(number);
    } else if (held->second.resizable && held->second.ring != placement.embedding) {
      held->second = {placement.embedding, held->second.ring, false};
      planned_.insert(number);
    }
  }
  begin_planned();
}

void Supervisor::begin_planned() {
  freed_ = false;
  // Where no ring is being changed, what was decided has room at once.
  const bool at_once = std::ranges::none_of(held_, [](const auto& held) { return held.second.leaving.has_value(); });
  for (bool any = true; any;) {
    any = false;
    for (const std::int64_t number : std::set<std::int64_t>(planned_)) {
      const model::JobId id = scheduled_.at(number);
      if (!at_once) {
        std::vector<Taken> taken;
        for (const auto& [other, held] : held_) {
          if (other != id) {
            const bool begun = !planned_.contains(numbers_[other.index()]);
            taken.push_back({&controller_.record(other).job, begun ? &held.ring : nullptr, held.leaving ? &*held.leaving : nullptr});
          }
        }
        const Held& wanted = held_.at(id);
        if (!has_room(without(holds_capacity(jobs_.at(number).row.state) ? controller_.cluster() : open_part_, taken),
                      {&controller_.record(id).job, &wanted.ring, wanted.leaving ? &*wanted.leaving : nullptr})) {
          continue;
        }
      }
      planned_.erase(number);
      any = true;
      if (holds_capacity(jobs_.at(number).row.state)) {
        begin_resize(number);
      } else {
        start(number, held_.at(id).ring);
      }
    }
  }
}

void Supervisor::drop_planned() {
  for (const std::int64_t number : std::exchange(planned_, {})) {
    const auto held = held_.find(scheduled_.at(number));
    if (holds_capacity(jobs_.at(number).row.state)) {
      held->second = {*held->second.leaving};
    } else {
      held_.erase(held);
    }
  }
}

void Supervisor::mark_resizable(double now_s) {
  for (const auto& [number, epoch] : epochs_) {
    const Job& job = jobs_.at(number);
    Held& held = held_.at(scheduled_.at(number));
    held.resizable = job.elastic() && job.row.state == JobState::kRunning && epoch.looping && !epoch.stop_sent && !epoch.stop_at_s &&
                     !job.row.stopping && !held.leaving && now_s >= epoch.keep_until_s;
  }
}

void Supervisor::begin_resize(std::int64_t number) {
  Job& job = jobs_.at(number);
  Epoch& epoch = epochs_.at(number);
  const Held& held = held_.at(scheduled_.at(number));
  const model::Cluster& cluster = controller_.cluster();
  DevicePool pool;
  pool.add(names_of(cluster, *held.leaving), epoch.devices);
  Devices devices;
  std::vector<std::size_t> newcomers;
  std::vector<model::ServerId> on;
  for (const model::ServerId server : held.ring.ring) {
    const std::optional<std::vector<int>> known = pool.take(cluster.server(server).id);
    if (!known) {
      newcomers.push_back(devices.size());
      on.push_back(server);
    }
    devices.push_back(known.value_or(std::vector<int>()));
  }
  Devices chosen = choose_devices(cluster, job.file.job, on, used_devices());
  for (std::size_t i = 0; i < newcomers.size(); ++i) {
    devices[newcomers[i]] = std::move(chosen[i]);
  }
  epoch.leaving_devices = std::exchange(epoch.devices, std::move(devices));
  ++job.row.order;
  job.row.ring = line_of(job, held.ring);
  job.row.leaving = line_of(job, *held.leaving);
  job.row.devices = both(epoch.devices, epoch.leaving_devices);
  changed(number);
  actions_.push_back(resize_action(job));
}

Action Supervisor::resize_action(const Job& job) const {
  const Epoch& epoch = epochs_.at(job.row.number);
  HeadOrder order;
  order.number = job.row.order;
  for (const std::string& server : names_of(controller_.cluster(), held_.at(scheduled_.at(job.row.number)).ring)) {
    order.ring.push_back({server, epoch.devices[order.ring.size()]});
  }
  return ResizeEpoch{{job.row.number, job.row.epoch}, std::move(order)};
}

// --- what the head says ---

absl::StatusOr<model::Embedding> Supervisor::embed(const Job& job, const std::vector<std::string>& servers) const {
  const model::Cluster& cluster = controller_.cluster();
  model::Embedding embedding;
  embedding.bandwidth = job.file.job.edge_bandwidth;
  for (const std::string& name : servers) {
    const std::optional<model::ServerId> server = cluster.find_server(name);
    if (!server) {
      return base::error(absl::StatusCode::kNotFound, "job {} has a worker on '{}', which the cluster does not have", job.row.number, name);
    }
    embedding.ring.push_back(*server);
  }
  model::Routes routes(cluster);
  for (std::size_t i = 0; i < servers.size() && servers.size() > 1; ++i) {
    embedding.edges.push_back(routes.path(embedding.ring[i], embedding.ring[(i + 1) % servers.size()]));
  }
  return embedding;
}

void Supervisor::on_head(std::int64_t number, const HeadState& state, double now_s) {
  Job& job = jobs_.at(number);
  epochs_.at(number).looping = state.resizable;
  if (state.failures != job.row.failures) {
    job.row.failures = state.failures;
    changed(number);
  }
  if (state.seen < job.row.order) {  // the order was lost with the daemon, or is on its way: the head takes it once
    actions_.push_back(resize_action(job));
  } else if (state.done >= job.row.order && !planned_.contains(number)) {
    head_answered(number, state, now_s);
  }
}

void Supervisor::head_answered(std::int64_t number, const HeadState& state, double now_s) {
  Job& job = jobs_.at(number);
  Epoch& epoch = epochs_.at(number);
  Held& held = held_.at(scheduled_.at(number));
  const model::Cluster& cluster = controller_.cluster();
  if (!state.seats.empty() && state.seats != names_of(cluster, held.ring)) {  // workers are lost for good, or the change has failed
    absl::StatusOr<model::Embedding> left = embed(job, state.seats);
    if (!left.ok()) {
      return;
    }
    DevicePool pool;
    pool.add(names_of(cluster, held.ring), epoch.devices);
    pool.add(job.ring->ring, epoch.leaving_devices);
    if (!held.leaving) {
      held.leaving = held.ring;
      job.row.leaving = job.row.ring;
      epoch.leaving_devices = epoch.devices;
    }
    held.ring = *std::move(left);
    epoch.devices.clear();
    for (const std::string& server : state.seats) {
      epoch.devices.push_back(pool.take(server).value_or(std::vector<int>()));
    }
    epoch.keep_until_s = now_s + kSlotsToKeep * options_.slot_s;
    job.row.ring = line_of(job, held.ring);
    job.row.devices = both(epoch.devices, epoch.leaving_devices);
    changed(number);
  }
  if (!held.leaving) {
    return;
  }
  job.ring = formats::job_line(job.row.id(), held.ring, cluster);
  if (is_part_of(state.living, names_of(cluster, held.ring))) {  // what it had besides is free now
    job.row.resizes += state.problem.empty() && epoch.keep_until_s <= now_s ? 1 : 0;
    held.leaving.reset();
    job.row.leaving.clear();
    epoch.leaving_devices.clear();
    job.row.devices = devices_text(epoch.devices);
    news_ = freed_ = true;
    changed(number);
  }
}

}  // namespace maypole::daemon

// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/local_executor.h"

#include "maypole/base/status.h"
#include "maypole/daemon/head_links.h"
#include "maypole/daemon/process_group.h"
#include "maypole/daemon/process_identity.h"
#include "maypole/daemon/worker_variables.h"
#include "maypole/net/child_process.h"
#include "maypole/net/hmac.h"
#include "maypole/net/ports.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr int kWatchMs = 10;                      // while a shim has not claimed, or processes are being killed
constexpr std::chrono::seconds kShimMayNeed{10};  // from SIGTERM until its shim has ended a worker; then the shim itself is killed

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// How far a worker has come, as far as this executor has told.
enum class Phase { kLaunching, kRunning, kCleaning };

struct Worker {
  int rank = 0;
  Phase phase = Phase::kLaunching;
  base::Fd shim;    // its process; readable when that has ended
  pid_t child = 0;  // our own, which must be waited for: the shim, or the launcher that starts it
  base::Fd errors;  // what a launcher, or its shim before it claims, has to say
  bool stopping = false;
  std::optional<base::TimePoint> kill_shim_at;
  std::vector<int> cores;
};

/// The first line of what its launcher said.
std::string why_not_started(const Worker& worker) {
  std::string text(1024, '\0');
  pollfd polled = {worker.errors.get(), POLLIN, 0};
  const bool said = worker.errors.valid() && ::poll(&polled, 1, 0) > 0;
  const ssize_t got = said ? ::read(worker.errors.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  text = text.substr(0, text.find('\n'));
  return text.empty() ? "its shim did not start" : "its launcher did not start it: " + text;
}

/// Rank 0 hosts; the first rank on another server tells from where it is seen.
std::vector<MeetingRole> meeting_roles(const std::vector<WorkerPlace>& workers) {
  std::vector<MeetingRole> roles(workers.size(), MeetingRole::kGuest);
  const auto witness = std::ranges::find_if(workers, [&](const WorkerPlace& place) { return place.server != workers[0].server; });
  roles[0] = witness == workers.end() ? MeetingRole::kHostAlone : MeetingRole::kHost;
  if (witness != workers.end()) {
    roles[static_cast<std::size_t>(witness - workers.begin())] = MeetingRole::kWitness;
  }
  return roles;
}

class LocalExecutor final : public Executor {
 public:
  explicit LocalExecutor(LocalExecutorOptions options)
      : options_(std::move(options)),
        groups_(parent_of_groups()),
        heads_(options_.identity),
        quotas_(options_.hold_cores ? parent_of_quotas() : "") {}

  void start(const EpochOrder& order) override;
  void adopt(EpochId id, int num_workers, bool elastic) override;
  void resize(EpochId id, const HeadOrder& order) override { heads_.order(id, order); }
  void stop(EpochId id) override;
  void forget(std::int64_t job) override {
    std::error_code ignored;  // what is in the way stays; it is in nobody's way
    std::filesystem::remove_all(fmt::format("{}/{}", options_.folder, job), ignored);
  }
  [[nodiscard]] std::vector<WorkerEvent> poll() override;
  void add_to(std::vector<pollfd>& polled) const override;
  [[nodiscard]] int poll_again_ms() const override;
  [[nodiscard]] std::string output_folder(EpochId id, int rank) const override {
    return fmt::format("{}/{}/{}/{}", options_.folder, id.job, id.epoch, rank);
  }

 private:
  [[nodiscard]] std::string mark(EpochId id, int rank) const {
    return fmt::format("MAYPOLE_WORKER={}/{}/{}/{}", options_.identity, id.job, id.epoch, rank);
  }
  [[nodiscard]] std::string group(EpochId id, int rank) const {
    return groups_.empty() ? "" : fmt::format("{}/maypole-{}-{}-{}-{}", groups_, options_.identity, id.job, id.epoch, rank);
  }
  absl::Status start_all(const EpochOrder& order);
  absl::Status start_head(const EpochOrder& order);
  absl::Status start_one(EpochId id, int rank, const std::string& server, const WorkerOrder& order);
  [[nodiscard]] bool is_launched(const EpochOrder& order) const;
  void hold_cores(const std::string& server, double wanted, const std::string& name, WorkerOrder& order) const;
  bool follow_shim(Worker& worker, const Claim& claim);
  void reap(pid_t child);
  void adopt_one(EpochId id, int rank);
  void never(EpochId id, int rank, std::string reason);
  /// True: the worker is over and its event told.
  bool advance(EpochId id, Worker& worker);
  bool shim_ended(EpochId id, Worker& worker);

  LocalExecutorOptions options_;
  ProcessIdentity own_ = own_identity();
  std::string groups_;  // where workers get groups of their own; empty: nowhere
  HeadLinks heads_;
  std::map<EpochId, std::vector<Worker>> epochs_;
  std::string quotas_;        // where workers get groups that limit their cores; empty: nowhere
  std::vector<pid_t> dying_;  // children that are no worker's any more and have not been waited for
  std::vector<WorkerEvent> events_;
};

void LocalExecutor::never(EpochId id, int rank, std::string reason) {
  events_.push_back(
      {.kind = WorkerEventKind::kEnded, .id = id, .rank = rank, .never_started = true, .exit = {1, 0, wall_seconds(), std::move(reason)}});
}

absl::Status LocalExecutor::start_one(EpochId id, int rank, const std::string& server, const WorkerOrder& order) {
  const std::string folder = output_folder(id, rank);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return base::error(absl::StatusCode::kUnavailable, "cannot make {}: {}", folder, failed.message());
  }
  MAYPOLE_RETURN_IF_ERROR(write_order(folder, order));
  net::ChildOptions options;
  options.command = {options_.program, "shim", folder};
  options.environment = net::current_environment();
  options.directory = std::string("/");  // a shim keeps no folder busy
  options.standard_input = net::Stdio::kNull;
  options.standard_output = net::Stdio::kNull;
  options.standard_error = net::Stdio::kNull;
  options.new_session = true;
  if (const auto launcher = options_.launchers.find(server); launcher != options_.launchers.end()) {
    MAYPOLE_ASSIGN_OR_RETURN(options.command, launcher->second(options.command));
    options.standard_error = net::Stdio::kPipe;
  }
  if (order.inherited_fd >= 0) {
    options.inherited_fds = {order.inherited_fd};
  }
  MAYPOLE_ASSIGN_OR_RETURN(net::Child child, net::start_child(options));
  // A child of ours is not reaped before we do it, so that its number cannot be another's yet.
  Worker worker;
  worker.rank = rank;
  worker.child = child.pid;
  worker.cores = order.cores;
  worker.errors = std::move(child.error);
  worker.shim = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!worker.shim.valid()) {
    const absl::Status status = base::errno_error(errno, "watch the shim of rank {}", rank);
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    return status;
  }
  epochs_[id].push_back(std::move(worker));
  return absl::OkStatus();
}

/// Cores of its own where the servers divide the machine's, else a share of the processor's time.
void LocalExecutor::hold_cores(const std::string& server, double wanted, const std::string& name, WorkerOrder& order) const {
  std::set<int> used;
  for (const auto& [id, workers] : epochs_) {
    for (const Worker& worker : workers) {
      used.insert(worker.cores.begin(), worker.cores.end());
    }
  }
  if (const auto cores = options_.cores.find(server); cores != options_.cores.end()) {
    order.cores = choose_cores(cores->second, used, wanted);
    if (order.cores.empty()) {  // shares the server's with others
      order.cores = cores->second;
    } else {
      return;
    }
  }
  if (!quotas_.empty() && wanted > 0) {
    order.quota_group = quotas_ == groups_ ? order.group : fmt::format("{}/{}", quotas_, name);
    order.quota_cores = wanted;
  }
}

bool LocalExecutor::is_launched(const EpochOrder& order) const {
  return std::ranges::any_of(order.workers, [this](const WorkerPlace& place) { return options_.launchers.contains(place.server); });
}

absl::Status LocalExecutor::start_all(const EpochOrder& order) {
  MeetingPoint meeting;
  meeting.secret = net::random_hex(32);  // of this epoch alone: a worker of another one is refused by its ring
  net::BoundPort rendezvous;
  const bool launched = is_launched(order);
  if (!launched) {
    MAYPOLE_ASSIGN_OR_RETURN(rendezvous, net::listen_on("127.0.0.1"));
    meeting.rendezvous_port = rendezvous.port;
    meeting.rendezvous_fd = rendezvous.socket.get();
    MAYPOLE_ASSIGN_OR_RETURN(meeting.master_port, net::find_free_port());
  }
  const std::vector<MeetingRole> roles = launched ? meeting_roles(order.workers) : std::vector<MeetingRole>(order.workers.size());
  const std::string epoch_folder = fmt::format("{}/{}/{}", options_.folder, order.id.job, order.id.epoch);
  const auto environments = worker_variables(order, meeting, net::current_environment(), static_cast<int>(usable_cores().size()));
  for (std::size_t i = 0; i < order.workers.size(); ++i) {
    const int rank = static_cast<int>(i);
    WorkerOrder worker;
    worker.command = order.command;
    worker.environment = environments[i];
    worker.directory = order.directory;
    worker.inherited_fd = rank == 0 ? meeting.rendezvous_fd : -1;
    worker.boot = own_.boot;
    worker.meeting = {roles[i], epoch_folder};
    worker.environment.push_back(mark(order.id, rank));
    const std::string name = fmt::format("maypole-{}-{}-{}-{}", options_.identity, order.id.job, order.id.epoch, rank);
    worker.group = group(order.id, rank);
    hold_cores(order.workers[i].server, order.cpus_per_worker, name, worker);
    const absl::Status status = start_one(order.id, rank, order.workers[i].server, worker);
    if (!status.ok()) {
      for (std::size_t left = i; left < order.workers.size(); ++left) {
        never(order.id, static_cast<int>(left), base::message(status));
      }
      stop(order.id);
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status LocalExecutor::start_head(const EpochOrder& order) {
  if (is_launched(order)) {
    return base::error(absl::StatusCode::kUnimplemented,
                       "a server's launcher does not start workers that come and go: submit it with a fixed number, as --workers {}",
                       order.workers.size());
  }
  const std::string folder = output_folder(order.id, 0);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  HeadSpec spec;
  spec.socket = heads_.socket_of(order.id);
  spec.job = std::to_string(order.id.job);
  spec.command = order.command;
  spec.min_workers = order.elastic->min_workers;
  spec.max_workers = order.elastic->max_workers;
  spec.retries = std::max(0, order.elastic->retries - order.elastic->failures);
  spec.failures = order.elastic->failures;
  spec.first.ring = order.workers;
  MAYPOLE_RETURN_IF_ERROR(write_head_spec(folder, spec));
  const auto environments = worker_variables(order, {}, net::current_environment(), static_cast<int>(usable_cores().size()));
  WorkerOrder head;
  head.command = {options_.program, "head", folder};
  head.environment = environments.front();
  head.directory = order.directory;
  head.group = group(order.id, 0);
  head.boot = own_.boot;
  head.environment.push_back(mark(order.id, 0));
  MAYPOLE_RETURN_IF_ERROR(start_one(order.id, 0, "", head));
  heads_.watch(order.id);
  return absl::OkStatus();
}

void LocalExecutor::start(const EpochOrder& order) {
  const absl::Status status = order.elastic ? start_head(order) : start_all(order);
  if (!status.ok()) {  // before the first worker
    for (std::size_t rank = 0; rank < (order.elastic ? 1 : order.workers.size()); ++rank) {
      never(order.id, static_cast<int>(rank), base::message(status));
    }
  }
}

void LocalExecutor::adopt_one(EpochId id, int rank) {
  const std::string folder = output_folder(id, rank);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  // A shim that was started and has not claimed yet comes too late after this.
  const absl::StatusOr<bool> kept_back = claim_worker(folder, std::nullopt);
  const std::optional<Claim> claim = read_claim(folder);
  if ((kept_back.ok() && *kept_back) || (claim && !claim->shim)) {
    never(id, rank, "the daemon ended before it was started");
    return;
  }
  Worker worker;
  worker.rank = rank;
  worker.phase = Phase::kLaunching;
  if (claim && follow_shim(worker, *claim)) {  // else it cannot be told now who runs it: poll() tries again
    worker.phase = Phase::kRunning;
    if (const absl::StatusOr<WorkerOrder> order = read_order(folder); order.ok()) {
      worker.cores = order->cores;
    }
    events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = rank});
  }
  epochs_[id].push_back(std::move(worker));
}

void LocalExecutor::adopt(EpochId id, int num_workers, bool elastic) {
  if (elastic) {
    heads_.watch(id);
  }
  for (int rank = 0; rank < num_workers; ++rank) {
    adopt_one(id, rank);
  }
}

void LocalExecutor::stop(EpochId id) {
  const auto found = epochs_.find(id);
  if (found == epochs_.end()) {
    return;
  }
  for (Worker& worker : found->second) {
    if (!worker.stopping) {
      worker.stopping = true;
      signal_process(worker.shim, SIGTERM);
      signal_process(worker.shim, SIGCONT);
      worker.kill_shim_at = std::chrono::steady_clock::now() + kShimMayNeed;
    }
  }
}

void LocalExecutor::reap(pid_t child) {
  if (child != 0 && ::waitpid(child, nullptr, WNOHANG) == 0) {
    dying_.push_back(child);
  }
}

/// A launcher may stay between us and the shim: from the claim on, the shim is what is watched. False: it cannot be found now.
bool LocalExecutor::follow_shim(Worker& worker, const Claim& claim) {
  if (claim.shim && claim.shim->pid != worker.child) {
    absl::StatusOr<base::Fd> shim = open_process(*claim.shim);
    if (!shim.ok()) {
      return false;
    }
    worker.shim = *std::move(shim);
    reap(std::exchange(worker.child, 0));
    if (worker.stopping) {
      signal_process(worker.shim, SIGTERM);
    }
  }
  return true;
}

bool LocalExecutor::shim_ended(EpochId id, Worker& worker) {
  const std::string folder = output_folder(id, worker.rank);
  if (worker.phase == Phase::kLaunching) {
    const absl::StatusOr<bool> kept_back = claim_worker(folder, std::nullopt);
    const std::optional<Claim> claim = read_claim(folder);
    if (claim && claim->shim) {
      if (follow_shim(worker, *claim)) {
        worker.phase = Phase::kRunning;
        events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = worker.rank});
      }
      return false;  // it may live on where only its launcher has ended
    }
    const bool for_nobody = (kept_back.ok() && *kept_back) || claim;
    if (for_nobody || (!kept_back.ok() && worker.shim.valid())) {  // no process that could still make a claim
      never(id, worker.rank, why_not_started(worker));
      reap(worker.child);
      return true;
    }
    return false;
  }
  reap(std::exchange(worker.child, 0));
  if (const std::optional<WorkerExit> exit = read_exit(folder)) {
    events_.push_back({.kind = WorkerEventKind::kEnded, .id = id, .rank = worker.rank, .exit = *exit});
    return true;
  }
  // The shim was killed. Its worker died with it; what that had started may be left.
  worker.phase = Phase::kCleaning;
  const absl::StatusOr<WorkerOrder> order = read_order(folder);
  bool group_left = false;
  for (const std::string& group : order.ok() ? std::vector<std::string>{order->group, order->quota_group} : std::vector<std::string>{}) {
    group_left |= !group.empty() && !end_group(group);
  }
  if (kill_marked(mark(id, worker.rank)) > 0 || group_left) {
    return false;
  }
  events_.push_back({.kind = WorkerEventKind::kEnded,
                     .id = id,
                     .rank = worker.rank,
                     .status_known = false,
                     .exit = {0, SIGKILL, wall_seconds(), "its shim was killed"}});
  return true;
}

bool LocalExecutor::advance(EpochId id, Worker& worker) {
  pollfd polled = {worker.shim.get(), POLLIN, 0};
  const bool gone = !worker.shim.valid() || (::poll(&polled, 1, 0) > 0 && polled.revents != 0);
  if (gone) {
    return shim_ended(id, worker);
  }
  if (worker.kill_shim_at && std::chrono::steady_clock::now() >= *worker.kill_shim_at) {
    signal_process(worker.shim, SIGKILL);
    worker.kill_shim_at.reset();
  }
  if (worker.phase == Phase::kLaunching) {
    const std::optional<Claim> claim = read_claim(output_folder(id, worker.rank));
    if (claim && follow_shim(worker, *claim)) {
      worker.phase = Phase::kRunning;
      events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = worker.rank});
    }
  }
  return false;
}

std::vector<WorkerEvent> LocalExecutor::poll() {
  for (auto& [id, workers] : epochs_) {
    std::erase_if(workers, [this, id = id](Worker& worker) { return advance(id, worker); });
  }
  std::erase_if(dying_, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
  std::vector<WorkerEvent> events = heads_.poll();  // what a head has said goes before its end
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
  std::erase_if(epochs_, [this](const auto& epoch) {
    if (epoch.second.empty()) {
      heads_.forget(epoch.first);
    }
    return epoch.second.empty();
  });
  return events;
}

void LocalExecutor::add_to(std::vector<pollfd>& polled) const {
  heads_.add_to(polled);
  for (const auto& [id, workers] : epochs_) {
    for (const Worker& worker : workers) {
      if (worker.shim.valid() && worker.phase != Phase::kCleaning) {
        polled.push_back({worker.shim.get(), POLLIN, 0});
      }
    }
  }
}

int LocalExecutor::poll_again_ms() const {
  if (!events_.empty()) {
    return 0;
  }
  int wait = heads_.poll_again_ms();
  wait = dying_.empty() || (wait >= 0 && wait < 1000) ? wait : 1000;
  for (const auto& [id, workers] : epochs_) {
    for (const Worker& worker : workers) {
      if (worker.phase != Phase::kRunning || !worker.shim.valid()) {
        return wait < 0 ? kWatchMs : std::min(wait, kWatchMs);
      }
      wait = worker.stopping && (wait < 0 || wait > 1000) ? 1000 : wait;
    }
  }
  return wait;
}

}  // namespace

std::unique_ptr<Executor> make_local_executor(const LocalExecutorOptions& options) { return std::make_unique<LocalExecutor>(options); }

}  // namespace maypole::daemon

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

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

namespace maypole::daemon {

namespace {

constexpr int kWatchMs = 10;                      // while a shim has not claimed, or processes are being killed
constexpr std::chrono::seconds kShimMayNeed{10};  // from SIGTERM until its shim has ended a worker; then the shim itself is killed

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// How far a worker has come, as far as this executor has told.
enum class Phase { kLaunching, kRunning, kCleaning };

struct Worker {
  int rank = 0;
  Phase phase = Phase::kLaunching;
  base::Fd shim;    // its process; readable when that has ended
  pid_t child = 0;  // the shim's number where it is a child of ours, which must be waited for
  bool stopping = false;
  std::optional<base::TimePoint> kill_shim_at;
};

class LocalExecutor final : public Executor {
 public:
  explicit LocalExecutor(LocalExecutorOptions options)
      : options_(std::move(options)), groups_(parent_of_groups()), heads_(options_.identity) {}

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
  absl::Status start_one(EpochId id, int rank, const WorkerOrder& order);
  void adopt_one(EpochId id, int rank);
  void never(EpochId id, int rank, std::string reason);
  /// True: the worker is over and its event told.
  bool advance(EpochId id, Worker& worker);
  bool shim_ended(EpochId id, Worker& worker);

  LocalExecutorOptions options_;
  std::string groups_;  // where workers get groups of their own; empty: nowhere
  HeadLinks heads_;
  std::map<EpochId, std::vector<Worker>> epochs_;
  std::vector<WorkerEvent> events_;
};

void LocalExecutor::never(EpochId id, int rank, std::string reason) {
  events_.push_back(
      {.kind = WorkerEventKind::kEnded, .id = id, .rank = rank, .never_started = true, .exit = {1, 0, wall_seconds(), std::move(reason)}});
}

absl::Status LocalExecutor::start_one(EpochId id, int rank, const WorkerOrder& order) {
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
  if (order.inherited_fd >= 0) {
    options.inherited_fds = {order.inherited_fd};
  }
  MAYPOLE_ASSIGN_OR_RETURN(const net::Child child, net::start_child(options));
  // A child of ours is not reaped before we do it, so that its number cannot be another's yet.
  Worker worker;
  worker.rank = rank;
  worker.child = child.pid;
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

absl::Status LocalExecutor::start_all(const EpochOrder& order) {
  MAYPOLE_ASSIGN_OR_RETURN(const net::BoundPort rendezvous, net::listen_on("127.0.0.1"));
  MeetingPoint meeting;
  meeting.secret = net::random_hex(32);  // of this epoch alone: a worker of another one is refused by its ring
  meeting.rendezvous_port = rendezvous.port;
  meeting.rendezvous_fd = rendezvous.socket.get();
  MAYPOLE_ASSIGN_OR_RETURN(meeting.master_port, net::find_free_port());
  const auto environments = worker_variables(order, meeting, net::current_environment(), usable_cores());
  for (std::size_t i = 0; i < order.workers.size(); ++i) {
    const int rank = static_cast<int>(i);
    WorkerOrder worker{order.command, environments[i], order.directory, rank == 0 ? meeting.rendezvous_fd : -1, group(order.id, rank)};
    worker.environment.push_back(mark(order.id, rank));
    const absl::Status status = start_one(order.id, rank, worker);
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
  const auto environments = worker_variables(order, {}, net::current_environment(), usable_cores());
  WorkerOrder head{{options_.program, "head", folder}, environments.front(), order.directory, -1, group(order.id, 0)};
  head.environment.push_back(mark(order.id, 0));
  MAYPOLE_RETURN_IF_ERROR(start_one(order.id, 0, head));
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
  if (kept_back.ok() && (*kept_back || !claim || !claim->shim)) {
    never(id, rank, "the daemon ended before it was started");
    return;
  }
  Worker worker;
  worker.rank = rank;
  worker.phase = Phase::kRunning;
  if (claim && claim->shim) {
    worker.shim = open_process(*claim->shim);
    events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = rank});
  } else {
    worker.phase = Phase::kLaunching;  // the folder cannot be written now: poll() tries again
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

bool LocalExecutor::shim_ended(EpochId id, Worker& worker) {
  if (worker.child != 0) {
    ::waitpid(worker.child, nullptr, WNOHANG);
    worker.child = 0;
  }
  const std::string folder = output_folder(id, worker.rank);
  if (worker.phase == Phase::kLaunching) {
    const absl::StatusOr<bool> kept_back = claim_worker(folder, std::nullopt);
    const std::optional<Claim> claim = read_claim(folder);
    if (claim && claim->shim) {
      worker.phase = Phase::kRunning;
      events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = worker.rank});
    } else if (kept_back.ok() || worker.shim.valid()) {  // no claim, and no process that could still make one
      never(id, worker.rank, "its shim did not start");
      return true;
    } else {
      return false;
    }
  }
  if (const std::optional<WorkerExit> exit = read_exit(folder)) {
    events_.push_back({.kind = WorkerEventKind::kEnded, .id = id, .rank = worker.rank, .exit = *exit});
    return true;
  }
  // The shim was killed. Its worker died with it; what that had started may be left.
  worker.phase = Phase::kCleaning;
  const absl::StatusOr<WorkerOrder> order = read_order(folder);
  const bool group_left = order.ok() && !order->group.empty() && !end_group(order->group);
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
  if (worker.phase == Phase::kLaunching && read_claim(output_folder(id, worker.rank))) {
    worker.phase = Phase::kRunning;
    events_.push_back({.kind = WorkerEventKind::kStarted, .id = id, .rank = worker.rank});
  }
  return false;
}

std::vector<WorkerEvent> LocalExecutor::poll() {
  for (auto& [id, workers] : epochs_) {
    std::erase_if(workers, [this, id = id](Worker& worker) { return advance(id, worker); });
  }
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

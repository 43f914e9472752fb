// SPDX-License-Identifier: Apache-2.0
#include "maypole/daemon/daemon.h"

#include "maypole/base/status.h"
#include "maypole/daemon/access.h"
#include "maypole/daemon/api.h"
#include "maypole/daemon/data_dir.h"
#include "maypole/daemon/event_feed.h"
#include "maypole/daemon/event_streams.h"
#include "maypole/daemon/http_server.h"
#include "maypole/daemon/local_executor.h"
#include "maypole/daemon/pages.h"
#include "maypole/net/address.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

namespace maypole::daemon {

namespace {

/// Seconds since 1970 that never go back: the wall clock at the start, and the steady one from there.
class DaemonTime {
 public:
  [[nodiscard]] double now_s() const { return wall_s_ + base::to_seconds(std::chrono::steady_clock::now() - start_); }

 private:
  double wall_s_ = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  base::TimePoint start_ = std::chrono::steady_clock::now();
};

/// Writes a file of the owner's alone, whole or not at all.
absl::Status write_private(const std::string& path, const std::string& text) {
  const std::string part = path + ".new";
  const base::Fd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0 ||
      std::rename(part.c_str(), path.c_str()) != 0) {
    return base::errno_error(errno, "write {}", path);
  }
  return absl::OkStatus();
}

std::string owner_token(const std::string& data_dir) {
  std::string token;
  std::ifstream(data_dir + "/token") >> token;
  return token;
}

/// The admin's token of the data directory, which the commands of its owner use.
absl::Status keep_owner_token(Access& access, const std::string& data_dir, double now_s) {
  const std::string path = data_dir + "/token";
  std::string token = owner_token(data_dir);
  if (access.find(token) != nullptr) {
    return absl::OkStatus();
  }
  std::string name = "owner";  // where the file was lost, its token is of no use to anybody any more
  for (int i = 2; std::ranges::any_of(access.list(), [&](const TokenRow& row) { return row.name == name; }); ++i) {
    name = fmt::format("owner-{}", i);
  }
  MAYPOLE_ASSIGN_OR_RETURN(token, access.create(name, Role::kAdmin, now_s));
  return write_private(path, token + "\n");
}

class Signals {
 public:
  Signals() {
    sigset_t handled;
    ::sigemptyset(&handled);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      ::sigaddset(&handled, signal);
    }
    ::sigprocmask(SIG_BLOCK, &handled, nullptr);  // threads that start later inherit it
    ::signal(SIGPIPE, SIG_IGN);
    fd_ = base::Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
};

}  // namespace

absl::Status run_daemon(const DaemonOptions& options, model::Cluster cluster, std::unique_ptr<sched::Policy> policy,
                        const std::function<void(const std::string& address, std::size_t num_jobs, const std::string& login_path)>& ready) {
  const Signals signals;
  MAYPOLE_ASSIGN_OR_RETURN(const base::Fd lock, lock_data_dir(options.data_dir));
  MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, open_store(options.data_dir + "/store.db"));
  const DaemonTime time;
  const base::SteadyClock clock;
  const ServerCores cores = options.hold_cores ? divide_cores(cluster, usable_cores()) : ServerCores{};
  Supervisor supervisor(std::move(cluster), std::move(policy), {.slot_s = options.slot_s, .age_s = options.age_s}, clock, time.now_s());
  MAYPOLE_ASSIGN_OR_RETURN(std::vector<JobRow> rows, store->jobs());
  MAYPOLE_RETURN_IF_ERROR(supervisor.restore(std::move(rows)));
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<ClosedServer> closed, store->closed_servers());
  for (const ClosedServer& row : closed) {  // one that has left the cluster is closed still when it returns
    if (const std::optional<model::ServerId> server = supervisor.controller().cluster().find_server(row.server)) {
      supervisor.close(*server, row.reason);
    }
  }
  MAYPOLE_ASSIGN_OR_RETURN(Access access, Access::load(*store));
  MAYPOLE_RETURN_IF_ERROR(keep_owner_token(access, options.data_dir, time.now_s()));
  const std::unique_ptr<Executor> executor = make_local_executor({.folder = options.data_dir + "/jobs",
                                                                  .identity = store->identity(),
                                                                  .program = options.program,
                                                                  .cores = cores,
                                                                  .hold_cores = options.hold_cores,
                                                                  .launchers = options.launchers});
  EventLog events;
  EventFeed feed(events, supervisor, time.now_s());
  Api api({.supervisor = &supervisor,
           .executor = executor.get(),
           .access = &access,
           .store = store.get(),
           .feed = &feed,
           .slot_s = options.slot_s});
  Turn turn(*store, supervisor, *executor, api);
  Retention retention(*store, supervisor, *executor, options.keep_ended);
  EventStreams streams(events);
  Mailbox mailbox;
  MAYPOLE_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server, HttpServer::listen(options.host, options.port, mailbox, streams));
  const std::string address = net::format_host_port(options.host, static_cast<std::uint16_t>(server->port()));
  MAYPOLE_RETURN_IF_ERROR(write_private(options.data_dir + "/address", address + "\n"));
  ready(address, supervisor.jobs().size(),
        login_path(api.sessions().create_key(access.find(owner_token(options.data_dir))->name, time.now_s())));

  bool ended = false;
  while (!ended) {
    std::vector<pollfd> polled = {{signals.fd(), POLLIN, 0}, {mailbox.fd(), POLLIN, 0}};
    executor->add_to(polled);
    constexpr double kAgainSeconds = 1;  // after a commit that failed
    const double next_s = std::min({supervisor.next_s(), retention.next_s(), feed.next_s().value_or(supervisor.next_s())});
    const double wait_s = std::min(next_s - time.now_s(), turn.blocked() ? kAgainSeconds : 60.0);
    int wait_ms = std::max(0, static_cast<int>(std::ceil(wait_s * 1000)));
    if (const int executor_ms = executor->poll_again_ms(); executor_ms >= 0) {
      wait_ms = std::min(wait_ms, executor_ms);
    }
    (void)::poll(polled.data(), polled.size(), wait_ms);
    turn.run(mailbox.take(), time.now_s());
    (void)retention.run(time.now_s());  // what a full disk keeps is tried again
    const bool stopped = api.shutdown() == Shutdown::kStopJobs && supervisor.holding().empty();
    ended = polled[0].revents != 0 || api.shutdown() == Shutdown::kLeaveJobs || stopped;
  }
  mailbox.close();
  ::unlink((options.data_dir + "/address").c_str());
  return absl::OkStatus();
}

}  // namespace maypole::daemon

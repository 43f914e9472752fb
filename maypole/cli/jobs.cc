// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/jobs.h"

#include "maypole/base/status.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/job_view.h"
#include "maypole/cli/output.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace maypole::cli {

namespace {

constexpr std::chrono::milliseconds kLookAgain{100};

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

struct Written {
  ClusterFlags flags;
  std::string job;
  std::string state;
  bool all = false;
  bool follow = false;
};

std::string path_of(const std::string& job, const char* rest = "") { return "/v1/jobs/" + daemon::escaped(job) + rest; }

/// A subcommand about one job.
CLI::App* add_command(CLI::App& app, const char* name, const char* help, const std::shared_ptr<Written>& written) {
  CLI::App* sub = app.add_subcommand(name, help);
  add_cluster_flags(*sub, written->flags);
  sub->add_option("job", written->job, "Its id or name")->required();
  return sub;
}

absl::StatusOr<JobView> look_up(daemon::Client& client, const std::string& job) {
  MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", path_of(job)));
  return parse_job(answer.body);
}

/// A daemon that is started anew in between is waited for, like one that starts.
absl::StatusOr<std::unique_ptr<daemon::Client>> find_again(const ClusterFlags& flags) { return daemon::Client::connect(flags.client); }

/// The bytes that each rank has written, as lines with the rank in front.
class LogReader {
 public:
  explicit LogReader(const JobView& job) : id_(job.id), printer_({.prefixes = job.max_workers > 1}) {}

  /// Prints what is new; true: there was something.
  absl::StatusOr<bool> read(daemon::Client& client, int num_ranks) {
    bool any = false;
    for (int rank = 0; rank < (merged_ ? 1 : num_ranks); ++rank) {
      MAYPOLE_ASSIGN_OR_RETURN(const bool some, read_rank(client, rank));
      any = any || some;
    }
    return any;
  }
  void finish(int num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      fmt::print("{}", printer_.finish(rank));
    }
    std::fflush(stdout);
  }

 private:
  absl::StatusOr<bool> read_rank(daemon::Client& client, int rank) {
    const auto ask = [&](std::uint64_t offset) {
      return client.call("GET", path_of(id_, "/logs") + fmt::format("?rank={}&offset={}", rank, offset));
    };
    MAYPOLE_ASSIGN_OR_RETURN(daemon::Answer answer, ask(offsets_[rank]));
    if (const std::string epoch = answer.headers["X-Maypole-Epoch"]; epoch != epoch_) {
      if (!epoch_.empty()) {
        fmt::print(stderr, "maypole logs: job {} was started again\n", id_);
      }
      epoch_ = epoch;
      offsets_.clear();
      MAYPOLE_ASSIGN_OR_RETURN(answer, ask(0));
    }
    offsets_[rank] = std::stoull(answer.headers["X-Maypole-Start"]) + answer.body.size();
    merged_ = answer.headers["X-Maypole-Merged"] == "1";  // its head has put the ranks in front already
    fmt::print("{}", merged_ ? answer.body : printer_.add(rank, answer.body, std::chrono::steady_clock::now()));
    std::fflush(stdout);
    return !answer.body.empty();
  }

  std::string id_;
  LinePrinter printer_;
  std::map<int, std::uint64_t> offsets_;
  std::string epoch_;
  bool merged_ = false;
};

absl::StatusOr<int> show_logs(const Written& written, daemon::Client& first) {
  MAYPOLE_ASSIGN_OR_RETURN(JobView job, look_up(first, written.job));
  const std::string id = job.id;  // from here on the job is meant, whatever else gets its name
  LogReader reader(job);
  std::unique_ptr<daemon::Client> again;
  daemon::Client* client = &first;
  while (true) {
    // Looked up before its logs are read: what an ended job wrote is all there then.
    absl::StatusOr<JobView> now = look_up(*client, id);
    absl::StatusOr<bool> some = now.ok() ? reader.read(*client, job.max_workers) : absl::StatusOr<bool>(now.status());
    if (absl::IsUnavailable(some.status()) && written.follow) {
      MAYPOLE_ASSIGN_OR_RETURN(again, find_again(written.flags));
      client = again.get();
      continue;
    }
    MAYPOLE_RETURN_IF_ERROR(some.status());
    if (*some) {
      continue;
    }
    if (!written.follow || now->ended()) {
      reader.finish(job.max_workers);
      return 0;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

absl::StatusOr<int> wait_for(const Written& written, daemon::Client& first) {
  MAYPOLE_ASSIGN_OR_RETURN(JobView job, look_up(first, written.job));
  const std::string id = job.id;
  std::unique_ptr<daemon::Client> again;
  daemon::Client* client = &first;
  while (!job.ended()) {
    std::this_thread::sleep_for(kLookAgain);
    absl::StatusOr<JobView> now = look_up(*client, id);
    if (absl::IsUnavailable(now.status())) {
      MAYPOLE_ASSIGN_OR_RETURN(again, find_again(written.flags));
      client = again.get();
      continue;
    }
    MAYPOLE_ASSIGN_OR_RETURN(job, std::move(now));
  }
  if (written.flags.json) {
    MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client->call("GET", path_of(id)));
    fmt::print("{}\n", answer.body);
  } else if (job.state != "finished") {
    fmt::print(stderr, "maypole wait: job {} {}{}{}\n", job.id, job.state == "failed" ? "failed" : "was cancelled",
               job.reason.empty() ? "" : ": ", job.reason);
  }
  return job.exit_code.value_or(1);
}

}  // namespace

std::function<int()> add_queue(CLI::App& app) {
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  CLI::App* queue = app.add_subcommand("queue", "List the jobs that wait or run");
  add_cluster_flags(*queue, written->flags);
  CLI::Option* all = queue->add_flag("--all", written->all, "Those that have ended, too");
  queue->add_option("--state", written->state, "Only those in this state")->excludes(all);
  return [written] {
    return with_client("queue", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      const std::string state = written->all ? "" : written->state.empty() ? "?state=active" : "?state=" + daemon::escaped(written->state);
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", "/v1/jobs" + state));
      if (written->flags.json) {
        fmt::print("{}\n", answer.body);
        return 0;
      }
      MAYPOLE_ASSIGN_OR_RETURN(const JobList list, parse_jobs(answer.body));
      fmt::print("{}", queue_table(list.jobs, wall_seconds()));
      return 0;
    });
  };
}

std::function<int()> add_show(CLI::App& app) {
  auto written = std::make_shared<Written>();
  add_command(app, "show", "Show one job", written);
  return [written] {
    return with_client("show", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("GET", path_of(written->job)));
      MAYPOLE_ASSIGN_OR_RETURN(const JobView job, parse_job(answer.body));
      fmt::print("{}", written->flags.json ? answer.body + "\n" : job_text(job, wall_seconds()));
      return 0;
    });
  };
}

std::function<int()> add_wait(CLI::App& app) {
  auto written = std::make_shared<Written>();
  add_command(app, "wait", "Wait until a job has ended, and end with its exit code", written);
  return [written] { return with_client("wait", written->flags, [&](daemon::Client& client) { return wait_for(*written, client); }); };
}

std::function<int()> add_cancel(CLI::App& app) {
  auto written = std::make_shared<Written>();
  add_command(app, "cancel", "End a job", written);
  return [written] {
    return with_client("cancel", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      MAYPOLE_ASSIGN_OR_RETURN(const daemon::Answer answer, client.call("POST", path_of(written->job, "/cancel")));
      if (written->flags.json) {
        fmt::print("{}\n", answer.body);
      }
      return 0;
    });
  };
}

std::function<int()> add_logs(CLI::App& app) {
  auto written = std::make_shared<Written>();
  CLI::App* logs = add_command(app, "logs", "Print what a job's workers have written, each line with its rank", written);
  logs->add_flag("-f,--follow", written->follow, "Go on until the job has ended");
  return [written] {
    if (written->flags.json) {
      return report_failure("logs", base::error(absl::StatusCode::kInvalidArgument, "--json: output is text; leave the option out"));
    }
    return with_client("logs", written->flags, [&](daemon::Client& client) { return show_logs(*written, client); });
  };
}

}  // namespace maypole::cli

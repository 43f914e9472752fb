// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/top.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/terminal.h"
#include "maypole/cli/top_frame.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace maypole::cli {

namespace {

struct Written {
  ClusterFlags flags;
  bool once = false;
  std::string every = "1s";
};

/// The answers that a frame is made of.
struct Answers {
  std::string cluster;
  std::string running;
  std::string waiting;
};

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

absl::StatusOr<Answers> ask(daemon::Client& client, std::size_t lines) {
  Answers answers;
  for (auto& [path, into] : {std::pair{fmt::format("/v1/cluster"), &answers.cluster},
                             std::pair{fmt::format("/v1/jobs?state=starting,running,suspended&limit={}", lines), &answers.running},
                             std::pair{fmt::format("/v1/jobs?state=queued&limit={}", lines), &answers.waiting}}) {
    MAYPOLE_ASSIGN_OR_RETURN(daemon::Answer answer, client.call("GET", path));
    *into = std::move(answer.body);
  }
  return answers;
}

absl::StatusOr<TopView> view_of(const Answers& answers, const std::string& address) {
  TopView view;
  view.address = address;
  view.now_s = wall_seconds();
  MAYPOLE_ASSIGN_OR_RETURN(view.cluster, parse_cluster_view(answers.cluster));
  MAYPOLE_ASSIGN_OR_RETURN(view.running, parse_jobs(answers.running));
  MAYPOLE_ASSIGN_OR_RETURN(view.waiting, parse_jobs(answers.waiting));
  return view;
}

/// One object in one line.
std::string json_line(const Answers& answers) {
  std::string line = fmt::format(R"({{"cluster": {}, "running": {}, "queued": {}}})", answers.cluster, answers.running, answers.waiting);
  std::ranges::replace(line, '\n', ' ');  // between values: within texts it is escaped
  return line;
}

absl::StatusOr<int> show_once(daemon::Client& client, bool json) {
  const FrameSize size = terminal_size();
  MAYPOLE_ASSIGN_OR_RETURN(const Answers answers, ask(client, size.lines));
  MAYPOLE_ASSIGN_OR_RETURN(const TopView view, view_of(answers, client.address()));
  if (json) {
    fmt::print("{}\n", json_line(answers));
    return 0;
  }
  for (const std::string& line : top_frame(view, size)) {
    fmt::print("{}\n", line);
  }
  return 0;
}

/// A daemon that is started anew is found again; until then the last state is shown.
class Watch {
 public:
  Watch(daemon::Client& first, daemon::ClientOptions options) : client_(&first), options_(std::move(options)) { options_.wait_s = 0; }

  absl::StatusOr<TopView> look(std::size_t lines) {
    absl::StatusOr<Answers> answers = ask(*client_, lines);
    if (absl::IsUnavailable(answers.status())) {
      if (absl::StatusOr<std::unique_ptr<daemon::Client>> found = daemon::Client::connect(options_); found.ok()) {
        again_ = *std::move(found);
        client_ = again_.get();
        answers = ask(*client_, lines);
      }
    }
    if (absl::IsUnavailable(answers.status())) {
      last_.trouble = fmt::format("no daemon answers since {:.0f} s: what follows is old", std::max(0.0, wall_seconds() - last_.now_s));
      return last_;
    }
    MAYPOLE_RETURN_IF_ERROR(answers.status());
    MAYPOLE_ASSIGN_OR_RETURN(last_, view_of(*answers, client_->address()));
    return last_;
  }

 private:
  daemon::Client* client_;
  daemon::ClientOptions options_;
  std::unique_ptr<daemon::Client> again_;
  TopView last_;
};

absl::StatusOr<int> watch(const Written& written, double every_s, daemon::Client& client) {
  Watch watch(client, written.flags.client);
  Terminal terminal;
  do {
    const FrameSize size = terminal_size();
    MAYPOLE_ASSIGN_OR_RETURN(const TopView view, watch.look(size.lines));
    terminal.show(top_frame(view, size));
  } while (std::ferror(stdout) == 0 && terminal.wait(every_s));
  return 0;
}

}  // namespace

std::function<int()> add_top(CLI::App& app) {
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  CLI::App* top = app.add_subcommand("top", "Watch servers and jobs; q ends it");
  add_cluster_flags(*top, written->flags);
  top->add_flag("--once", written->once, "Print it once; --json does so, too");
  top->add_option("--every", written->every, "Time between two looks")->capture_default_str();
  return [written] {
    const absl::StatusOr<base::Nanoseconds> every = base::parse_duration(written->every);
    constexpr std::chrono::milliseconds kShortest{100};
    if (!every.ok() || *every < kShortest) {
      return report_failure("top",
                            base::error(absl::StatusCode::kInvalidArgument, "--every: '{}' is no time of at least 0.1 s", written->every));
    }
    return with_client("top", written->flags, [&](daemon::Client& client) {
      const bool once = written->once || written->flags.json;
      return once ? show_once(client, written->flags.json) : watch(*written, base::to_seconds(*every), client);
    });
  };
}

}  // namespace maypole::cli

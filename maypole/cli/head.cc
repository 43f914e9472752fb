// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/head.h"

#include "maypole/base/status.h"
#include "maypole/cli/elastic_launch.h"
#include "maypole/daemon/head_messages.h"
#include "maypole/net/socket.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace maypole::cli {

namespace {

using daemon::HeadOrder;
using daemon::HeadState;

/// Takes the daemon's orders. The last one that connects is heard: a daemon that comes back follows one that was killed.
class HeadControl final : public RunControl {
 public:
  HeadControl(base::Fd listener, int failures) : listener_(std::move(listener)), failures_(failures) {}

  void add_to(std::vector<pollfd>& polled) const override {
    polled.push_back({listener_.get(), POLLIN, 0});
    polled.push_back({daemon_ ? daemon_->fd() : -1, POLLIN, 0});
  }
  [[nodiscard]] std::size_t num_polled() const override { return 2; }
  [[nodiscard]] std::vector<Request> read_ready(const pollfd* results) override;
  void answer(std::uint64_t number, const absl::Status& status, const std::string& text) override;
  void tell(const elastic::Coordinator& run, const std::vector<std::string>& living) override;

 private:
  base::Fd listener_;
  int failures_;  // of earlier epochs
  std::optional<daemon::HeadStream> daemon_;
  HeadState state_;
  std::optional<HeadState> told_;
};

std::vector<RunControl::Request> HeadControl::read_ready(const pollfd* results) {
  std::vector<Request> requests;
  if (results[1].revents != 0 && daemon_) {
    for (const std::string& message : daemon_->receive()) {
      const absl::StatusOr<HeadOrder> order = daemon::decode_head_order(message);
      if (order.ok() && order->number > state_.seen && !order->ring.empty()) {
        state_.seen = order->number;
        state_.problem.clear();
        requests.push_back({.number = static_cast<std::uint64_t>(order->number), .ring = order->ring});
      }
    }
    if (!daemon_->valid()) {
      daemon_.reset();
    }
  }
  if (results[0].revents != 0) {
    absl::StatusOr<base::Fd> guest = net::accept_ready(listener_.get());
    if (guest.ok() && guest->valid() && daemon::is_own_user(guest->get())) {
      daemon_.emplace(*std::move(guest));
      told_.reset();
    }
  }
  return requests;
}

void HeadControl::answer(std::uint64_t number, const absl::Status& status, const std::string& /*text*/) {
  state_.done = static_cast<int>(number);
  state_.problem = status.ok() ? "" : base::message(status);
}

void HeadControl::tell(const elastic::Coordinator& run, const std::vector<std::string>& living) {
  state_.resizable = run.resizable();
  state_.seats = run.seats();
  state_.living = living;
  state_.failures = failures_ + run.num_failures();
  state_.members.clear();
  for (const elastic::Member& member : run.membership().members) {
    state_.members.push_back(member.host);
  }
  if (daemon_ && told_ != state_) {
    if (daemon_->send(encode(state_))) {
      told_ = state_;
    } else {
      daemon_.reset();
    }
  }
}

absl::StatusOr<int> run(const std::string& folder) {
  MAYPOLE_ASSIGN_OR_RETURN(const daemon::HeadSpec spec, daemon::read_head_spec(folder));
  MAYPOLE_ASSIGN_OR_RETURN(base::Fd listener, net::listen_local(spec.socket));
  RunOptions options;
  options.command = spec.command;
  options.settings["MAYPOLE_ELASTIC_OPTIONAL"] = "1";
  ElasticOptions elastic;
  elastic.name = spec.job;
  elastic.min_workers = spec.min_workers;
  elastic.max_workers = spec.max_workers;
  elastic.workers = static_cast<int>(spec.first.ring.size());
  elastic.retries = spec.retries;
  elastic.checkpoints = ::getenv("MAYPOLE_CHECKPOINT_DIR") != nullptr;
  elastic.ring = spec.first.ring;
  if (const char* heartbeat = ::getenv("MAYPOLE_HEARTBEAT")) {
    MAYPOLE_ASSIGN_OR_RETURN(elastic.silence, base::parse_duration(heartbeat));
  }
  if (const char* bandwidth = ::getenv("MAYPOLE_BANDWIDTH")) {
    MAYPOLE_ASSIGN_OR_RETURN(elastic.bandwidth, base::parse_bandwidth(bandwidth));
  }
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  const HostWorkers here{{.name = spec.first.ring.front().server, .address = "127.0.0.1", .slots = spec.max_workers}, 0, spec.max_workers};
  MAYPOLE_ASSIGN_OR_RETURN(std::vector<AgentLink> hosts, plan_agents({here}, "", program));
  return launch_elastic(options, elastic, std::move(hosts), std::make_unique<HeadControl>(std::move(listener), spec.failures), false);
}

}  // namespace

std::function<int()> add_head(CLI::App& app) {
  auto folder = std::make_shared<std::string>();  // shared with the function that outlives this one
  CLI::App* head = app.add_subcommand("head", "Host the coordinator of one elastic job of `maypole up`");
  head->group("");
  head->add_option("FOLDER", *folder)->required();
  return [folder] {
    const absl::StatusOr<int> code = run(*folder);
    if (!code.ok()) {
      fmt::print(stderr, "maypole head: {}\n", base::message(code.status()));
      return 1;
    }
    return *code;
  };
}

}  // namespace maypole::cli

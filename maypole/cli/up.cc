// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/up.h"

#include "maypole/base/status.h"
#include "maypole/base/units.h"
#include "maypole/cli/cluster_command.h"
#include "maypole/cli/launcher_template.h"
#include "maypole/cli/policy_spec.h"
#include "maypole/daemon/client.h"
#include "maypole/daemon/core_choice.h"
#include "maypole/daemon/daemon.h"
#include "maypole/daemon/data_dir.h"
#include "maypole/daemon/process_group.h"
#include "maypole/daemon/shim.h"
#include "maypole/daemon/this_machine.h"
#include "maypole/formats/cluster_file.h"
#include "maypole/formats/text_file.h"
#include "maypole/net/address.h"
#include "maypole/net/socket.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

namespace maypole::cli {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

struct Written {
  std::string cluster;
  std::string policy = "gadget";
  std::string slot = "60s";
  std::string age = "10min";
  std::string keep_ended = "30d";
  std::string data_dir;
  std::string listen = "127.0.0.1:7077";
  bool insecure = false;
};

absl::Status for_option(const char* option, const absl::Status& status) {
  return status.ok() ? status : error(status.code(), "{}: {}", option, base::message(status));
}

absl::StatusOr<model::Cluster> cluster_of(const Written& written) {
  if (written.cluster.empty()) {
    return daemon::this_machine();
  }
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(written.cluster));
  const std::string name = formats::file_name(written.cluster);
  return formats::parse_cluster(text, name);
}

absl::StatusOr<daemon::Launchers> launchers_of(const Written& written, const daemon::DaemonOptions& options) {
  daemon::Launchers launchers;
  if (!written.cluster.ends_with(".yaml") && !written.cluster.ends_with(".yml")) {
    return launchers;
  }
  const std::string name = formats::file_name(written.cluster);
  MAYPOLE_ASSIGN_OR_RETURN(const std::string text, formats::read_text_file(written.cluster));
  MAYPOLE_ASSIGN_OR_RETURN(const formats::Launchers templates, formats::parse_launchers(text, name));
  for (const auto& [server, launcher] : templates) {
    if (const absl::Status status = check_launcher(launcher); !status.ok()) {
      return error(kInvalid, "{}: launcher of server '{}': {}", name, server, base::message(status));
    }
    for (const std::string& path : {options.program, options.data_dir}) {
      if (!is_shell_safe(path)) {
        return error(kInvalid, "'{}' holds characters that a launcher's shell would change: use a path without them", path);
      }
    }
    launchers[server] = [server = server, launcher = launcher](const std::vector<std::string>& command) {
      return expand_launcher(launcher, server, command);
    };
  }
  return launchers;
}

absl::StatusOr<double> positive_seconds(const char* option, const std::string& text) {
  const absl::StatusOr<base::Nanoseconds> duration = base::parse_duration(text);
  MAYPOLE_RETURN_IF_ERROR(for_option(option, duration.status()));
  const double seconds = base::to_seconds(*duration);
  if (!(seconds >= 1)) {
    return error(kInvalid, "{}: '{}' is below 1 s", option, text);
  }
  return seconds;
}

void say_if_cores_are_only_counted(const model::Cluster& cluster, const daemon::DaemonOptions& options) {
  const std::vector<int> usable = daemon::usable_cores();
  const double declared = daemon::declared_cores(cluster);
  if (options.hold_cores && declared > 0 && daemon::divide_cores(cluster, usable).empty() && daemon::parent_of_quotas().empty()) {
    fmt::print(
        stderr,
        "maypole up: servers of the cluster file have {:g} cores, this machine {}, and this user sets no cpu quotas: their cores are "
        "counted and not held\n",
        declared, usable.size());
  }
}

absl::Status run(const Written& written) {
  daemon::DaemonOptions options;
  options.data_dir = std::filesystem::absolute(daemon::data_dir_of(written.data_dir)).string();
  MAYPOLE_ASSIGN_OR_RETURN(options.slot_s, positive_seconds("--slot", written.slot));
  MAYPOLE_ASSIGN_OR_RETURN(options.age_s, positive_seconds("--age", written.age));
  const absl::StatusOr<daemon::KeepEnded> keep = daemon::parse_keep_ended(written.keep_ended);
  MAYPOLE_RETURN_IF_ERROR(for_option("--keep-ended", keep.status()));
  options.keep_ended = *keep;
  absl::StatusOr<net::HostPort> listen = net::parse_host_port(written.listen);
  MAYPOLE_RETURN_IF_ERROR(for_option("--listen", listen.status()));
  const absl::StatusOr<net::SocketAddress> numeric = net::SocketAddress::parse(listen->host, listen->port);
  const bool loopback = listen->host == "localhost" || (numeric.ok() && numeric->is_loopback());
  if (!loopback && !written.insecure) {
    return error(kInvalid,
                 "--listen: {} is reached from other machines, and tokens would pass the network in the clear: listen on 127.0.0.1, "
                 "or add --insecure",
                 written.listen);
  }
  options.host = listen->host;
  options.port = listen->port;
  absl::StatusOr<PolicySpec> spec = parse_policy(written.policy);
  MAYPOLE_RETURN_IF_ERROR(for_option("--policy", spec.status()));
  spec->options.ageing_per_s = 0;  // --age is the rule for every policy
  MAYPOLE_ASSIGN_OR_RETURN(std::unique_ptr<sched::Policy> policy, sched::make_policy(spec->name, spec->options));
  absl::StatusOr<model::Cluster> cluster = cluster_of(written);
  MAYPOLE_RETURN_IF_ERROR(for_option("--cluster", cluster.status()));
  std::error_code failed;
  options.program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  absl::StatusOr<daemon::Launchers> launchers = launchers_of(written, options);
  MAYPOLE_RETURN_IF_ERROR(for_option("--cluster", launchers.status()));
  options.launchers = *std::move(launchers);
  options.hold_cores = !written.cluster.empty();
  say_if_cores_are_only_counted(*cluster, options);
  const std::size_t num_servers = cluster->num_servers();
  return daemon::run_daemon(
      options, *std::move(cluster), std::move(policy),
      [&](const std::string& address, std::size_t num_jobs, const std::string& login_path) {
        fmt::print("maypole up: listens on {}, keeps its data in {}, {} {}, {} {}, policy {}\n", address, options.data_dir, num_servers,
                   num_servers == 1 ? "server" : "servers", num_jobs, num_jobs == 1 ? "job" : "jobs", written.policy);
        const bool wildcard = options.host == "0.0.0.0" || options.host == "::";
        const std::string shown = wildcard ? "127.0.0.1" + address.substr(address.rfind(':')) : address;
        fmt::print("dashboard: http://{}{} (for one browser, within ten minutes; `maypole dashboard` prints another link)\n", shown,
                   login_path);
        std::fflush(stdout);
      });
}

struct WrittenDown {
  ClusterFlags flags;
  bool stop_jobs = false;
  bool leave_jobs = false;
};

/// A daemon has its data directory until it has ended. One that was called by an address keeps its data elsewhere.
void wait_until_ended(const daemon::ClientOptions& options) {
  while (!daemon::address_given(options) && daemon::daemon_has(daemon::data_dir_of(options.data_dir))) {
    constexpr std::chrono::milliseconds kAgain{20};
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace

std::function<int()> add_up(CLI::App& app) {
  auto written = std::make_shared<Written>();  // shared with the function that outlives this one
  CLI::App* up = app.add_subcommand("up", "Run the daemon, which schedules submitted jobs on this machine, until `maypole down`");
  up->add_option("--cluster", written->cluster,
                 "cluster.yaml: servers and links that share this machine; default: this machine as one server");
  up->add_option("--policy", written->policy, "Who gets what; see `maypole simulate --help`")->capture_default_str();
  up->add_option("--slot", written->slot, "Time step that the policy plans for")->capture_default_str();
  up->add_option("--age", written->age, "A waiting job's weight doubles in this time")->capture_default_str();
  up->add_option("--keep-ended", written->keep_ended,
                 "How long ended jobs are kept, with what they wrote: a time, a number of jobs, or forever")
      ->capture_default_str();
  up->add_option("--data-dir", written->data_dir, "Where jobs are kept; default: MAYPOLE_DATA_DIR, else $XDG_STATE_HOME/maypole");
  up->add_option("--listen", written->listen, "host:port of the API; port 0: any free one")->capture_default_str();
  up->add_flag("--insecure", written->insecure, "Allow --listen on an address that other machines reach, without encryption");
  return [written] {
    const absl::Status status = run(*written);
    return status.ok() ? 0 : report_failure("up", status);
  };
}

std::function<int()> add_down(CLI::App& app) {
  auto written = std::make_shared<WrittenDown>();
  CLI::App* down = app.add_subcommand("down", "End the daemon; refuses while jobs run");
  add_cluster_flags(*down, written->flags);
  CLI::Option* stop = down->add_flag("--stop-jobs", written->stop_jobs, "Cancel what runs, and end when it is gone; waiting jobs stay");
  down->add_flag("--leave-jobs", written->leave_jobs, "Let what runs go on; the next `maypole up` finds it again")->excludes(stop);
  return [written] {
    written->flags.client.wait_s = 0;
    const int code = with_client("down", written->flags, [&](daemon::Client& client) -> absl::StatusOr<int> {
      const std::string what = written->stop_jobs ? "?jobs=stop" : written->leave_jobs ? "?jobs=leave" : "";
      MAYPOLE_RETURN_IF_ERROR(client.call("POST", "/v1/shutdown" + what).status());
      return 0;
    });
    if (code == 0) {  // our own connection is closed by now: the daemon waits for those that are open
      wait_until_ended(written->flags.client);
      fmt::print("{}", written->flags.json ? "{}\n" : "");
    }
    return code;
  };
}

std::function<int()> add_shim(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App* shim = app.add_subcommand("shim", "Stay with one worker of `maypole up`")->group("");
  shim->add_option("folder", *folder)->required();
  return [folder] { return daemon::run_shim(*folder); };
}

}  // namespace maypole::cli

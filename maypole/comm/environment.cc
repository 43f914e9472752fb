// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/environment.h"

#include "maypole/base/status.h"
#include "maypole/net/address.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>

namespace maypole::comm {

namespace {

absl::Status wrong(std::string_view name, std::string_view value, std::string_view remedy) {
  return base::error(absl::StatusCode::kInvalidArgument, "{}='{}': {}", name, value, remedy);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

/// Reads variables of the given look-up; the first wrong one is remembered, so that a reader checks once, at the end.
class Variables {
 public:
  explicit Variables(const EnvironmentLookUp& look_up) : look_up_(look_up) {}

  [[nodiscard]] std::optional<std::string> text(const std::string& name) const {
    auto value = look_up_(name);
    return value.has_value() && !value->empty() ? value : std::nullopt;
  }

  [[nodiscard]] std::string text_or(const std::string& name, std::string otherwise) const {
    return text(name).value_or(std::move(otherwise));
  }

  [[nodiscard]] int integer(const std::string& name, int low, int high, int otherwise) {
    const auto value = text(name);
    if (!value.has_value()) {
      return otherwise;
    }
    const auto number = parse_integer(*value);
    if (!number.has_value() || *number < low || *number > high) {
      fail(wrong(name, *value,
                 high == std::numeric_limits<int>::max() ? fmt::format("must be a whole number, at least {}", low)
                                                         : fmt::format("must be a whole number from {} to {}", low, high)));
      return otherwise;
    }
    return static_cast<int>(*number);
  }

  [[nodiscard]] std::optional<std::string> one_of(const std::string& name, std::span<const std::string_view> choices) {
    const auto value = text(name);
    if (value.has_value() && std::ranges::find(choices, std::string_view(*value)) == choices.end()) {
      fail(wrong(name, *value, fmt::format("use one of {}", fmt::join(choices, ", "))));
    }
    return value;
  }

  [[nodiscard]] base::Nanoseconds duration(const std::string& name, base::Nanoseconds otherwise) {
    const auto value = text(name);
    if (!value.has_value()) {
      return otherwise;
    }
    const auto parsed = base::parse_duration(*value);
    if (!parsed.ok() || *parsed <= base::Nanoseconds::zero()) {
      fail(wrong(name, *value, parsed.ok() ? "must be above zero, for example 2s or 30min" : base::message(parsed.status())));
      return otherwise;
    }
    return *parsed;
  }

  void fail(const absl::Status& status) { status_.Update(status); }
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  const EnvironmentLookUp& look_up_;
  absl::Status status_;
};

constexpr int kAnyInt = std::numeric_limits<int>::max();

/// Returns the first host of a Slurm node list: `node[03-07,9],gpu1` gives node03, `rack[1-2]n[4-5]` gives rack1n4.
std::string first_slurm_host(std::string_view list) {
  std::string host;
  bool inside = false;    // of brackets
  bool skipping = false;  // past the first number in them
  for (const char c : list) {
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = skipping = false;
    } else if (inside && (c == '-' || c == ',')) {
      skipping = true;
    } else if (!inside && c == ',') {
      break;
    } else if (!skipping) {
      host += c;
    }
  }
  return host;
}

/// Returns the entry of node number `node` in a Slurm count list: `2(x3),1` means 2, 2, 2, 1.
std::optional<int> slurm_tasks_on(std::string_view list, int node) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    std::int64_t repeat = 1;
    if (const std::size_t bracket = item.find("(x"); bracket != std::string_view::npos && item.back() == ')') {
      const auto times = parse_integer(item.substr(bracket + 2, item.size() - bracket - 3));
      if (!times.has_value() || *times < 1) {
        return std::nullopt;
      }
      repeat = *times;
      item = item.substr(0, bracket);
    }
    const auto tasks = parse_integer(item);
    if (!tasks.has_value() || *tasks < 1 || *tasks > kAnyInt) {
      return std::nullopt;
    }
    if (node < repeat) {
      return static_cast<int>(*tasks);
    }
    node -= static_cast<int>(std::min<std::int64_t>(repeat, node));
  }
  return std::nullopt;
}

void read_ranks_of_torchrun(Variables& variables, Environment& environment) {
  ConnectOptions& connect = environment.connect;
  connect.num_ranks = variables.integer("WORLD_SIZE", 1, kAnyInt, 1);
  connect.rank = variables.integer("RANK", 0, connect.num_ranks - 1, 0);
  environment.local_size = variables.integer("LOCAL_WORLD_SIZE", 1, connect.num_ranks, 1);
  environment.local_rank = variables.integer("LOCAL_RANK", 0, kAnyInt, 0);
  if (!variables.text("LOCAL_WORLD_SIZE").has_value()) {
    environment.local_size = environment.local_rank + 1;
  } else if (environment.local_rank >= environment.local_size) {
    variables.fail(
        wrong("LOCAL_RANK", variables.text_or("LOCAL_RANK", ""), fmt::format("must be below LOCAL_WORLD_SIZE={}", environment.local_size)));
  }
  const int restarts = variables.integer("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000, 0);
  connect.epoch = static_cast<std::uint32_t>(restarts) + 1;
  if (const auto run = variables.text("TORCHELASTIC_RUN_ID"); run.has_value()) {
    connect.job_id = "torchrun-" + *run;
    connect.secret = fmt::format("torchrun {} {} {}", *run, variables.text_or("MASTER_ADDR", ""), variables.text_or("MASTER_PORT", ""));
  }
  if (connect.num_ranks == 1 || variables.text("MAYPOLE_RENDEZVOUS").has_value()) {
    return;
  }
  const auto address = variables.text("MASTER_ADDR");
  const int port = variables.integer("MASTER_PORT", 1, 65534, 0);
  if (!address.has_value() || !variables.text("MASTER_PORT").has_value()) {
    variables.fail(base::error(absl::StatusCode::kInvalidArgument,
                               "WORLD_SIZE={} but {} is not set: start the script by `maypole run` or torchrun, or set MAYPOLE_RENDEZVOUS "
                               "to rank 0's address:port",
                               connect.num_ranks, address.has_value() ? "MASTER_PORT" : "MASTER_ADDR"));
    return;
  }
  connect.rendezvous = net::format_host_port(*address, static_cast<std::uint16_t>(port + 1));
}

void read_ranks_of_slurm(Variables& variables, Environment& environment) {
  ConnectOptions& connect = environment.connect;
  // A step (srun) has its own numbers; those of the whole job are the fallback.
  const auto of_step_or_job = [&](const std::string& step, const std::string& job) {
    return variables.text(step).has_value() ? step : job;
  };
  connect.num_ranks = variables.integer(of_step_or_job("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), 1, kAnyInt, 1);
  connect.rank = variables.integer("SLURM_PROCID", 0, connect.num_ranks - 1, 0);
  environment.local_rank = variables.integer("SLURM_LOCALID", 0, kAnyInt, 0);
  environment.local_size = environment.local_rank + 1;
  const std::string counts = of_step_or_job("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (const auto list = variables.text(counts); list.has_value()) {
    const auto tasks = slurm_tasks_on(*list, variables.integer("SLURM_NODEID", 0, kAnyInt, 0));
    if (!tasks.has_value() || *tasks <= environment.local_rank) {
      variables.fail(wrong(counts, *list, "does not say how many tasks run on this node; unset it"));
    } else {
      environment.local_size = *tasks;
    }
  }
  const std::string job = variables.text_or("SLURM_JOB_ID", "");
  const std::string step = variables.text_or("SLURM_STEP_ID", "0");
  connect.job_id = fmt::format("slurm-{}.{}", job, step);
  connect.secret = connect.job_id;
  if (connect.num_ranks == 1 || variables.text("MAYPOLE_RENDEZVOUS").has_value()) {
    return;
  }
  const std::string nodes = of_step_or_job("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const std::string host = first_slurm_host(variables.text_or(nodes, ""));
  const auto job_number = parse_integer(job);
  if (host.empty() || !job_number.has_value()) {
    variables.fail(base::error(absl::StatusCode::kInvalidArgument,
                               "{}='{}' and SLURM_JOB_ID='{}' do not say where rank 0 is: start the script by srun, or set "
                               "MAYPOLE_RENDEZVOUS to rank 0's address:port",
                               nodes, variables.text_or(nodes, ""), job));
    return;
  }
  // Below the ports that the kernel gives out by itself; steps of one job get different ones.
  const std::uint64_t mixed = static_cast<std::uint64_t>(*job_number) * 31 + static_cast<std::uint64_t>(parse_integer(step).value_or(0));
  connect.rendezvous = net::format_host_port(host, static_cast<std::uint16_t>(20000 + mixed % 12000));
}

void read_maypole(Variables& variables, Environment& environment) {
  ConnectOptions& connect = environment.connect;
  connect.job_id = variables.text_or("MAYPOLE_JOB_ID", connect.job_id);
  connect.secret = variables.text_or("MAYPOLE_SECRET", connect.secret);
  connect.host = variables.text_or("MAYPOLE_HOST", "");
  connect.interface = variables.text_or("MAYPOLE_INTERFACE", "");
  if (const auto rendezvous = variables.text("MAYPOLE_RENDEZVOUS"); rendezvous.has_value()) {
    connect.rendezvous = *rendezvous;
    const auto parsed = net::parse_host_port(*rendezvous);
    if (!parsed.ok() || parsed->port == 0) {
      variables.fail(
          wrong("MAYPOLE_RENDEZVOUS", *rendezvous, "write rank 0's address as host:port or [IPv6 address]:port, with a port above 0"));
    }
  }
  if (connect.rank == 0) {
    connect.rendezvous_listener = variables.integer("MAYPOLE_RENDEZVOUS_FD", 0, kAnyInt, -1);
  }
  static constexpr std::string_view kTransports[] = {"auto", "shm", "tcp"};  // in the order of TransportChoice
  if (const auto transport = variables.one_of("MAYPOLE_TRANSPORT", kTransports); transport.has_value()) {
    const auto* found = std::ranges::find(kTransports, std::string_view(*transport));
    if (found != std::end(kTransports)) {
      connect.transport = static_cast<TransportChoice>(found - std::begin(kTransports));
    }
  }
  if (const auto bandwidth = variables.text("MAYPOLE_BANDWIDTH"); bandwidth.has_value()) {
    const auto parsed = base::parse_bandwidth(*bandwidth);
    if (parsed.ok()) {
      connect.edge_bandwidth = *parsed;
    } else {
      variables.fail(wrong("MAYPOLE_BANDWIDTH", *bandwidth, base::message(parsed.status())));
    }
  }
  static constexpr std::string_view kSchedules[] = {"sync", "wfbp", "dear", "weave"};
  static constexpr std::string_view kBackends[] = {"native", "c10d"};
  environment.schedule = variables.one_of("MAYPOLE_SCHEDULE", kSchedules);
  environment.backend = variables.one_of("MAYPOLE_BACKEND", kBackends);
  environment.timeout = variables.duration("MAYPOLE_TIMEOUT", environment.timeout);
  connect.deadline = variables.duration("MAYPOLE_START_TIMEOUT", connect.deadline);
  environment.heartbeat = variables.duration("MAYPOLE_HEARTBEAT", environment.heartbeat);
  environment.report_directory = variables.text_or("MAYPOLE_REPORT_DIR", "");
  environment.timeline_directory = variables.text_or("MAYPOLE_TIMELINE_DIR", "");
}

}  // namespace

absl::StatusOr<Environment> read_environment(const EnvironmentLookUp& look_up) {
  Variables variables(look_up);
  Environment environment;
  const bool has_rank = variables.text("RANK").has_value();
  const bool has_size = variables.text("WORLD_SIZE").has_value();
  const bool has_slurm = variables.text("SLURM_PROCID").has_value() &&
                         (variables.text("SLURM_STEP_NUM_TASKS").has_value() || variables.text("SLURM_NTASKS").has_value());
  if (has_rank && has_size) {
    read_ranks_of_torchrun(variables, environment);
  } else if (has_rank || has_size) {
    variables.fail(base::error(absl::StatusCode::kInvalidArgument,
                               "{} is set but {} is not: start the script by `maypole run` or torchrun, or unset {}",
                               has_rank ? "RANK" : "WORLD_SIZE", has_rank ? "WORLD_SIZE" : "RANK", has_rank ? "RANK" : "WORLD_SIZE"));
  } else if (has_slurm) {
    read_ranks_of_slurm(variables, environment);
  } else if (variables.text("MAYPOLE_RENDEZVOUS").has_value()) {
    variables.fail(
        base::error(absl::StatusCode::kInvalidArgument,
                    "MAYPOLE_RENDEZVOUS is set but RANK and WORLD_SIZE are not: start the script by `maypole run`, or set all three"));
  }
  read_maypole(variables, environment);
  MAYPOLE_RETURN_IF_ERROR(variables.status());
  return environment;
}

absl::StatusOr<Environment> read_environment() {
  return read_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace maypole::comm

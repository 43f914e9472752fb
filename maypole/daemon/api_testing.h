// SPDX-License-Identifier: Apache-2.0
#pragma once

// A daemon without sockets and processes: a store that can be full, and an executor that only remembers.

#include "maypole/base/status.h"
#include "maypole/daemon/daemon.h"
#include "maypole/daemon/daemon_testing.h"
#include "maypole/daemon/supervisor_testing.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace maypole::daemon {

class FakeStore final : public Store {
 public:
  [[nodiscard]] const std::string& identity() const override { return identity_; }
  [[nodiscard]] absl::StatusOr<std::vector<JobRow>> jobs() override {
    std::vector<JobRow> rows;
    for (const auto& [number, row] : kept) {
      rows.push_back(row);
    }
    return rows;
  }
  [[nodiscard]] absl::Status commit(std::span<const JobRow> rows) override {
    if (full) {
      return base::error(absl::StatusCode::kResourceExhausted, "the disk of the data directory is full");
    }
    ++commits;
    for (const JobRow& row : rows) {
      kept[row.number] = row;
    }
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status remove_jobs(std::span<const std::int64_t> numbers) override {
    if (full) {
      return base::error(absl::StatusCode::kResourceExhausted, "the disk of the data directory is full");
    }
    for (const std::int64_t number : numbers) {
      kept.erase(number);
    }
    return absl::OkStatus();
  }
  [[nodiscard]] absl::StatusOr<std::vector<ClosedServer>> closed_servers() override { return closed; }
  [[nodiscard]] absl::Status close_server(const ClosedServer& server) override {
    closed.push_back(server);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status open_server(const std::string& server) override {
    std::erase_if(closed, [&](const ClosedServer& row) { return row.server == server; });
    return absl::OkStatus();
  }
  [[nodiscard]] absl::StatusOr<std::vector<TokenRow>> tokens() override { return kept_tokens; }
  [[nodiscard]] absl::Status add_token(const TokenRow& token) override {
    kept_tokens.push_back(token);
    return absl::OkStatus();
  }
  [[nodiscard]] absl::Status remove_token(const std::string& name) override {
    std::erase_if(kept_tokens, [&](const TokenRow& row) { return row.name == name; });
    return absl::OkStatus();
  }

  bool full = false;
  int commits = 0;
  std::map<std::int64_t, JobRow> kept;
  std::vector<TokenRow> kept_tokens;
  std::vector<ClosedServer> closed;

 private:
  std::string identity_ = "fake";
};

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(const FakeStore& store) : store_(&store) {}
  void start(const EpochOrder& order) override {
    const auto row = store_->kept.find(order.id.job);
    EXPECT_TRUE(row != store_->kept.end() && row->second.epoch == order.id.epoch && row->second.state == JobState::kStarting)
        << "the intent is durable before the action";
    EXPECT_TRUE(started.insert(order.id).second) << "no epoch is started twice";
  }
  void adopt(EpochId id, int /*num_workers*/, bool /*elastic*/) override { adopted.insert(id); }
  void resize(EpochId id, const HeadOrder& order) override { resized[id] = order; }
  void stop(EpochId id) override { stopped.insert(id); }
  void forget(std::int64_t job) override { forgotten.insert(job); }
  [[nodiscard]] std::vector<WorkerEvent> poll() override { return std::exchange(events, {}); }
  void add_to(std::vector<pollfd>& /*polled*/) const override {}
  [[nodiscard]] int poll_again_ms() const override { return -1; }
  [[nodiscard]] std::string output_folder(EpochId id, int rank) const override {
    return fmt::format("{}/{}/{}/{}", folder, id.job, id.epoch, rank);
  }

  std::string folder = "/nonexistent";
  std::set<EpochId> started;
  std::set<EpochId> adopted;
  std::map<EpochId, HeadOrder> resized;
  std::set<EpochId> stopped;
  std::set<std::int64_t> forgotten;
  std::vector<WorkerEvent> events;

 private:
  const FakeStore* store_;
};

/// What run_daemon() puts together, with a hand in place of the loop.
class FakeDaemon {
 public:
  FakeDaemon()
      : executor(store),
        supervisor(small_cluster(), *sched::make_policy("gadget", {.ageing_per_s = 0}), {}, clock, now_s),
        access(*Access::load(store)),
        admin(*access.create("root", Role::kAdmin, now_s)),
        user(*access.create("ann", Role::kUser, now_s)),
        feed(events, supervisor, now_s),
        api({.supervisor = &supervisor, .executor = &executor, .access = &access, .store = &store, .feed = &feed}),
        turn(store, supervisor, executor, api) {}

  Response ask(const std::string& method, const std::string& path, const std::string& body = "", const std::string& token = "admin") {
    std::vector<Letter> letters(1);
    Request& request = letters.front().request;
    request = {.method = method, .path = path.substr(0, path.find('?')), .query = {}, .body = body, .token = {}};
    if (const std::size_t mark = path.find('?'); mark != std::string::npos) {  // one value is enough here
      const std::size_t equals = path.find('=', mark);
      request.query[path.substr(mark + 1, equals - mark - 1)] = path.substr(equals + 1);
    }
    request.token = token == "admin" ? admin : token;
    std::future<Response> answer = letters.front().answer.get_future();
    turn.run(std::move(letters), now_s);
    return answer.get();
  }
  Response submit(const std::string& token = "admin") {
    return ask("POST", "/v1/jobs", R"({"version": 1, "name": "digits", "command": ["x"]})", token);
  }
  void pass(double seconds) {
    for (const double end = now_s + seconds; now_s < end; now_s += Supervisor::kStep) {
      turn.run({}, now_s);
    }
  }

  base::ManualClock clock;
  double now_s = 1'000'000;
  FakeStore store;
  FakeExecutor executor;
  Supervisor supervisor;
  Access access;
  std::string admin;
  std::string user;
  EventLog events;
  EventFeed feed;
  Api api;
  Turn turn;
};

}  // namespace maypole::daemon

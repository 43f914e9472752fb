// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's core: events in, rows to store and actions out. It owns the jobs and hosts sched::Controller; it knows no socket, no
// process and no database, so that every order of events can be tried.
//
//   submit() cancel() on_worker() advance()   ->  take_changes(): rows that must be durable before
//                                                 take_actions(): these are carried out
//
// A job's way: queued -> starting (an epoch is chosen and its ring decided) -> running (all ranks have started) -> finished, failed or
// cancelled; or back to queued for a retry. Its capacity is held from the decision until the last process of the epoch is gone.
//
// Where a job may have more or fewer workers, its epoch has a head (head_messages.h) in place of ranks. Once all its workers are in the
// loop the policy may choose another ring for it where a slot begins. What is decided is carried out as soon as what it needs is free: a
// job keeps the places of its old ring until the head says that nothing is left there. A change that has not begun by the next slot is
// dropped.
//
// The clock counts seconds since 1970 and never goes back within the life of a Supervisor. Decisions fall on steps of kStep; whatever
// happens is decided upon at the next one.

#include "maypole/base/clock.h"
#include "maypole/daemon/executor.h"
#include "maypole/daemon/holding_policy.h"
#include "maypole/daemon/job_row.h"
#include "maypole/formats/decision_line.h"
#include "maypole/formats/job_file.h"
#include "maypole/sched/controller.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace maypole::daemon {

struct SupervisorOptions {
  double slot_s = 60;
  double age_s = 600;
  std::uint64_t seed = 1;
};

struct AdoptEpoch {
  EpochId id;
  int num_workers = 0;
  bool elastic = false;
};
struct ResizeEpoch {
  EpochId id;
  HeadOrder order;
};
struct StopEpoch {
  EpochId id;
};
using Action = std::variant<EpochOrder, AdoptEpoch, ResizeEpoch, StopEpoch>;

/// One job, as others may see it.
struct Job {
  JobRow row;
  formats::JobFile file;
  std::optional<formats::JobLine> ring;  // of the epoch that holds capacity, as it is in effect
  std::string blocked = {};              // why it cannot start, whoever else ends: a sentence; empty: it can

  /// What there is to say besides its state.
  [[nodiscard]] const std::string& reason() const { return row.state == JobState::kQueued && !blocked.empty() ? blocked : row.reason; }

  /// Whether its workers may come and go, where its script has the loop.
  [[nodiscard]] bool elastic() const { return file.job.min_workers < file.job.max_workers; }
};

/// What is told of a decision.
struct DecisionNote {
  struct Change {
    std::int64_t job = 0;
    std::size_t from = 0;  // workers
    std::size_t to = 0;
  };
  double at_s = 0;
  double seconds = 0;  // that the policy took
  double utility = 0;  // of the step
  std::optional<double> bound;
  std::optional<double> gap;
  bool limited = false;
  std::string note;
  std::string refused;     // why it was not carried out; empty where it was
  std::size_t active = 0;  // jobs that it looked at
  std::vector<Change> changes;
};

class Supervisor {
 public:
  static constexpr double kStep = 0.25;

  Supervisor(model::Cluster cluster, std::unique_ptr<sched::Policy> policy, const SupervisorOptions& options, const base::Clock& clock,
             double now_s);

  /// Takes the jobs of a store. Those that were starting or running are to be found again; one that waits and cannot fit any more stays
  /// blocked. Errors: a job that runs on a server or link that the cluster does not have any more, or does not fit there.
  [[nodiscard]] absl::Status restore(std::vector<JobRow> rows);

  /// Checks a description and gives it the next number; the job is not there before add(). Errors (kInvalidArgument): what is wrong with
  /// it, in one line; that it can never fit, unless it allows to wait for a larger cluster.
  [[nodiscard]] absl::StatusOr<JobRow> admit(const std::string& owner, const std::string& description, double now_s);
  /// Adds a job whose row is durable.
  void add(const JobRow& row);
  /// No effect on a job that has ended.
  void cancel(std::int64_t job, const std::string& reason, double now_s);
  /// Forgets a job that has ended.
  void forget(std::int64_t job);
  /// Nothing new starts on a closed server; what runs there goes on.
  void close(model::ServerId server, const std::string& reason);
  void open(model::ServerId server);
  [[nodiscard]] const std::map<model::ServerId, std::string>& closed() const { return reasons_closed_; }
  /// From now on nothing starts: the daemon ends when what runs is gone.
  void start_no_more() { starts_ = false; }
  void on_worker(const WorkerEvent& event, double now_s);
  /// Lets time pass: decisions, time limits, stragglers of a failure. Call it before other events of the same moment, too, so that the
  /// time up to them is credited as it was.
  void advance(double now_s);

  /// Rows that changed since the last call. They stay among the changes until keep_changes() takes them back or they are committed.
  [[nodiscard]] std::vector<JobRow> take_changes();
  /// The commit failed: the rows are changes again.
  void keep_changes(const std::vector<JobRow>& rows);
  /// To be carried out only when the changes before them are durable.
  [[nodiscard]] std::vector<Action> take_actions();
  /// Decisions since the last call, in order.
  [[nodiscard]] std::vector<DecisionNote> take_decisions() { return std::exchange(decisions_, {}); }
  /// When advance() has something to do at the latest.
  [[nodiscard]] double next_s() const;

  [[nodiscard]] const std::map<std::int64_t, Job>& jobs() const { return jobs_; }
  [[nodiscard]] const Job* find(std::int64_t number) const;
  /// Jobs that hold capacity.
  [[nodiscard]] std::vector<std::int64_t> holding() const;
  [[nodiscard]] sched::Controller& controller() { return controller_; }
  [[nodiscard]] const sched::Controller& controller() const { return controller_; }
  /// What of a server is taken, [resource].
  [[nodiscard]] model::Amounts held_on(model::ServerId server) const;
  /// The decision that was refused last, as a sentence; empty where none was.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  /// What is known of an epoch that holds capacity.
  struct Epoch {
    std::vector<bool> started;                      // [rank]
    std::vector<std::optional<WorkerEvent>> ended;  // [rank]
    std::vector<std::vector<int>> devices;          // [rank]; of an elastic job: [position in the ring]
    std::vector<std::vector<int>> leaving_devices;  // of the ring before
    bool looping = false;                           // its head says that workers can come and go
    double keep_until_s = 0;                        // its ring is not changed before: a change has failed
    std::optional<WorkerEvent> cause;               // the failure that began its end
    std::optional<double> stop_at_s;                // the others are ended then
    bool stop_sent = false;
    std::optional<double> running_since_s;
    std::string stopped_because;  // ends as failed with this reason
  };

  [[nodiscard]] absl::StatusOr<formats::JobFile> read(const JobRow& row) const;
  [[nodiscard]] absl::Status demand(formats::JobFile& file) const;
  [[nodiscard]] absl::Status fit(formats::JobFile& file) const;
  [[nodiscard]] model::JobId schedule(const Job& job);
  void look_at_closed();
  void look_at_closed(Job& job) const;
  void changed(std::int64_t number) { changes_.insert(number); }
  void decide(double now_s);
  void run_step(std::int64_t step);
  void note(const sched::SlotOutcome& outcome);
  void start(std::int64_t number, const model::Embedding& embedding);
  void plan(const sched::Decision& decision);
  /// Begins what is planned and has room now.
  void begin_planned();
  void begin_resize(std::int64_t number);
  void drop_planned();
  void on_head(std::int64_t number, const HeadState& state, double now_s);
  void head_answered(std::int64_t number, const HeadState& state, double now_s);
  void mark_resizable(double now_s);
  [[nodiscard]] std::set<int> used_devices() const;
  [[nodiscard]] EpochOrder order_of(const Job& job, const Epoch& epoch, const model::Embedding& embedding) const;
  [[nodiscard]] Action resize_action(const Job& job) const;
  [[nodiscard]] std::string line_of(const Job& job, const model::Embedding& embedding) const;
  [[nodiscard]] absl::StatusOr<model::Embedding> embed(const Job& job, const std::vector<std::string>& servers) const;
  void stop(std::int64_t number);
  void conclude(std::int64_t number, double now_s);
  void leave(std::int64_t number, JobState state, int exit_code, std::string reason, double now_s);
  void wait_again(std::int64_t number, std::string reason);
  [[nodiscard]] std::int64_t step_of(double now_s) const;

  SupervisorOptions options_;
  double origin_s_;  // the controller's time 0
  HeldRings held_;
  ClosedServers closed_;
  std::map<model::ServerId, std::string> reasons_closed_;
  model::Cluster open_part_;
  sched::Controller controller_;
  std::map<std::int64_t, Job> jobs_;
  std::map<std::int64_t, model::JobId> scheduled_;  // active jobs that fit the cluster
  std::vector<std::int64_t> numbers_;               // [JobId]
  std::map<std::int64_t, Epoch> epochs_;            // of jobs that hold capacity
  std::map<std::int64_t, int> failed_starts_;       // in a row
  std::set<std::int64_t> planned_;                  // decided and not begun: what they need is not free yet
  bool freed_ = false;                              // something is, since begin_planned() looked last
  std::int64_t slot_ = -1;                          // decided in last, of the slots that the policy plans for
  std::set<std::int64_t> changes_;
  std::vector<Action> actions_;
  std::vector<DecisionNote> decisions_;
  std::int64_t next_number_ = 1;
  std::int64_t step_ = -1;  // decided last
  bool open_ = false;
  bool starts_ = true;
  bool news_ = true;  // something happened that calls for a decision
  std::string refusal_;
};

}  // namespace maypole::daemon

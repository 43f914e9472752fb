// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decides who trains together, for one elastic run. Events in, actions out: no sockets, no processes, no clock of its own, so that every
// sequence of events can be tried in a test. The launcher carries the actions out.
//
// An epoch ends in one way only, whether it was planned or not: every member that lives has stopped. A planned change asks them to
// (kStop), and they agree among themselves after which step; a failure stops each where it is. Then, and only then, the next members are
// chosen, from who lives, who waits to come in and how many are wanted at that moment. So whatever happens while a change is prepared,
// a second resize, a newcomer or a member that dies, needs no case of its own.
//
// A worker that ends, or says nothing for `silence`, is lost. It is replaced while retries last; planned changes use none. When no member
// is left, the replacements go on from a checkpoint, if the run keeps any.
// Where a scheduler has chosen the ring, the run has seats: the host of each position. They say who stays, where newcomers and replacements
// start, and in which order the ring goes; without seats hosts do not matter, and only the number does.
// A run whose workers are not (yet) in the loop of maypole.torch.elastic has a fixed size, and the first worker lost ends it.

#include "maypole/base/units.h"
#include "maypole/elastic/control_messages.h"
#include "maypole/elastic/membership.h"
#include "maypole/elastic/seating.h"

#include <absl/status/status.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace maypole::elastic {

struct CoordinatorOptions {
  int min_workers = 1;  // fewer do not train: they wait for a replacement, or the run ends
  int max_workers = 1;
  int workers = 1;                                              // at the start
  Seats seats = {};                                             // of these workers; empty: hosts do not matter
  EdgeRates edges = {};                                         // of the ring at the start
  int retries = 0;                                              // workers lost that are replaced
  bool checkpoints = false;                                     // whether workers can begin without a member that has trained
  base::Nanoseconds silence = std::chrono::seconds(2);          // after which a worker is lost
  base::Nanoseconds start_timeout = std::chrono::minutes(5);    // from a newcomer's start to its loop
  base::Nanoseconds joining_window = std::chrono::seconds(10);  // how long newcomers that are ready wait for others that are not
};

/// What the launcher has to do.
struct StartWorker {
  WorkerId worker;
  std::string host = {};  // of its seat
};
struct KillWorker {
  WorkerId worker;
};
struct Send {
  WorkerId worker;
  Order order;
};
/// Something that people want to know.
struct Say {
  std::string text;
};
/// The run cannot go on: every worker that lives is to be ended.
struct Fail {
  WorkerId worker;  // whose end is the cause; invalid: none's
  std::string text;
};
/// The answer to a request by on_resize() or on_seats() `request`.
struct Answer {
  std::uint64_t request = 0;
  absl::Status status;
  std::string text;  // of success
};
using Action = std::variant<StartWorker, KillWorker, Send, Say, Fail, Answer>;

/// The numbers of workers that a resize asks for; equal where one number was given.
struct SizeRange {
  int min = 0;
  int max = 0;
};

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, base::TimePoint now);

  /// The process of `worker` was started on `host` and will listen at `rendezvous`.
  void on_started(WorkerId worker, std::string host, std::string rendezvous, base::TimePoint now);
  void on_report(WorkerId worker, const WorkerReport& report, base::TimePoint now);
  /// The process has ended; `why` follows "worker 3 ", as in "was killed by SIGKILL".
  void on_ended(WorkerId worker, bool success, const std::string& why, base::TimePoint now);
  /// A person asks for other numbers of workers. Exactly one Answer follows, at once or when the change is in effect or has failed.
  void on_resize(std::uint64_t request, SizeRange range, base::TimePoint now);
  /// A scheduler asks for another ring of a run that has seats, or for other rates on its edges. Answered like on_resize().
  void on_seats(std::uint64_t request, Seats seats, base::TimePoint now, EdgeRates edges = {});
  /// Time has passed; call at next_due() or earlier.
  void on_time(base::TimePoint now);
  [[nodiscard]] std::optional<base::TimePoint> next_due() const;

  /// What is to be done since the last call, in order.
  [[nodiscard]] std::vector<Action> take_actions();

  [[nodiscard]] const Membership& membership() const { return membership_; }
  /// What on_seats() asked for last, or what was left of it when a newcomer failed, or a worker was lost for good.
  [[nodiscard]] const Seats& seats() const { return seats_; }
  /// Whether all members are in the loop of maypole.torch.elastic: only then can workers come and go.
  [[nodiscard]] bool resizable() const;
  /// Members and those on their way in.
  [[nodiscard]] int num_workers() const;
  [[nodiscard]] int num_resizes() const { return num_resizes_; }
  [[nodiscard]] int num_failures() const { return num_failures_; }

 private:
  enum class State { kStarting, kReady, kMember, kLeaving };
  struct Worker {
    State state = State::kStarting;
    std::string host;
    std::string rendezvous;
    bool looping = false;
    bool stopped = false;   // in this epoch; a member that has finished has stopped as well
    bool finished = false;  // in this epoch
    bool entered = false;   // in this epoch
    std::string trains;     // what it said that it trains
    std::optional<base::TimePoint> heard;
    base::TimePoint state_since{};
  };
  struct Resize {
    std::uint64_t request = 0;
    int from = 0;
    base::TimePoint since{};
  };

  [[nodiscard]] Worker* find(WorkerId worker);
  void set_state(Worker& worker, State state, base::TimePoint now);
  [[nodiscard]] std::vector<WorkerId> in_state(State state) const;
  [[nodiscard]] std::vector<WorkerId> members_alive() const;
  [[nodiscard]] bool all_looping() const;
  template <typename What>
  void act(What what) {
    actions_.emplace_back(std::in_place_type<What>, std::move(what));
  }
  void say(std::string text) { act(Say{std::move(text)}); }
  void start_worker(std::string host, base::TimePoint now);
  void lose(WorkerId worker, const std::string& why, base::TimePoint now);
  void fail(WorkerId worker, std::string text);
  [[nodiscard]] absl::Status check_resize(SizeRange range) const;
  [[nodiscard]] absl::Status check_change() const;
  [[nodiscard]] std::vector<Sitter> sitters(const std::vector<WorkerId>& workers) const;
  /// The host of a worker that is missing; none: nobody is.
  [[nodiscard]] std::optional<std::string> vacancy() const;
  /// Wants no more workers than there are.
  void settle_for_less();
  void end_unneeded(const std::vector<WorkerId>& workers, base::TimePoint now);
  [[nodiscard]] Change next_change() const;
  [[nodiscard]] bool as_wanted() const;
  /// Whether the edges of the ring have the rates that they are to have.
  [[nodiscard]] bool rates_stand() const;
  /// Looks at everything and does what is due; called after each event.
  void advance(base::TimePoint now);
  [[nodiscard]] bool wants_change(base::TimePoint now) const;
  [[nodiscard]] bool newcomers_may_enter(base::TimePoint now) const;
  void announce(base::TimePoint now);
  /// The loops have ended: nothing changes any more.
  void finish(base::TimePoint now);
  /// Lets members end that have trained to the end; one that cannot train on, as another has left, ends the run.
  void see_off(const std::vector<WorkerId>& alive);
  /// Whether the epoch that there is has the members that are wanted.
  [[nodiscard]] bool is_in_effect(const std::vector<WorkerId>& alive) const;
  void give_up_newcomer(const std::string& why);
  void all_entered(base::TimePoint now);
  void answer_resize(absl::Status status, std::string text);
  void check_silence(base::TimePoint now);

  const CoordinatorOptions options_;
  SizeRange range_;  // as a resize may have narrowed it
  Seats seats_;
  EdgeRates edges_;
  int target_;
  int retries_left_;
  std::int32_t next_worker_ = 0;
  std::map<WorkerId, Worker> workers_;  // those that live
  Membership membership_;               // the last announced
  std::uint32_t stop_sent_ = 0;         // the epoch that was asked to stop
  bool broken_ = false;                 // the epoch has lost a member or a link
  std::string broken_by_;               // what was said of it last
  bool left_early_ = false;             // a founder has ended well before the others met it, as scripts do that train nothing
  WorkerId left_loop_;                  // the first member that ended by itself, before all had trained to the end
  bool finishing_ = false;              // the loops have ended: nothing changes any more
  bool failed_ = false;
  bool said_waiting_ = false;
  int fruitless_ = 0;  // epochs in a row that broke without a step
  std::uint64_t step_ = 0;
  std::uint64_t entered_step_ = 0;  // of the epoch
  double stall_s_ = 0;              // the longest of the epoch's beginning
  std::string founder_trains_;
  std::optional<Resize> resize_;
  int num_resizes_ = 0;
  int num_failures_ = 0;
  base::TimePoint last_time_;
  std::vector<Action> actions_;
};

}  // namespace maypole::elastic

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The progress thread: the one thread that touches sockets, queues and collectives in motion. Others post to it.
//
// One turn of the loop: run what was posted, take what has arrived, send what may leave, finish what is complete. When a turn moves
// nothing it waits: a short while by looking again (small or shared-memory operations are in motion, where a wake-up would cost more
// than the operation), then in the kernel until a socket, a peer's eventfd, a timer or a post wakes it.
//
// While it sleeps, a caller that starts or waits for a collective of its own turns the loop for that one itself (progress_caller.cc): two
// hand-overs between threads would cost more than a small collective does. `turn_mutex_` is held by whoever turns.

#include "maypole/base/fd.h"
#include "maypole/base/mutex.h"
#include "maypole/comm/connections.h"
#include "maypole/comm/control_plane.h"
#include "maypole/comm/deadlock_watch.h"
#include "maypole/comm/lane.h"
#include "maypole/comm/link_meter.h"
#include "maypole/comm/pacer.h"
#include "maypole/comm/shm_transport.h"
#include "maypole/comm/socket_transport.h"

#include <absl/status/statusor.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace maypole::comm {

/// The lanes that carry data, in the order in which the progress thread serves them.
inline constexpr std::array<Lane, 3> kDataLanes{Lane::kUser, Lane::kReduceScatter, Lane::kAllGather};

[[nodiscard]] constexpr std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }

struct ProgressOptions {
  base::Nanoseconds silence = std::chrono::seconds(2);      // of a neighbour before it is lost
  base::Nanoseconds timeout = std::chrono::minutes(30);     // of an operation before its peers are late
  base::Nanoseconds spin = std::chrono::microseconds(200);  // how long to look again before blocking
  // For how long every rank must wait and nothing move before that is a deadlock. Long: a burst of lost packets is none.
  base::Nanoseconds standstill = std::chrono::seconds(20);
};

class Progress {
 public:
  /// Opens the transports over connected links (blocks on shared-memory peers) and starts the thread.
  static absl::StatusOr<std::unique_ptr<Progress>> start(int rank, Connections connections, const ProgressOptions& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // --- any thread ---
  /// Runs `f` on the progress thread, in order of posting.
  void post(std::function<void()> f);
  /// As post(), but runs `f`, which starts an operation on the user lane, on this thread if it can be done without waiting.
  void start_user(std::function<void()> f);
  /// What a caller does that begins to wait for an operation on the user lane. It does nothing after the progress has ended.
  [[nodiscard]] Work::Help helper() const;
  [[nodiscard]] absl::Status status() const;
  [[nodiscard]] const CollectiveContext& context() const { return context_; }
  [[nodiscard]] absl::StatusOr<std::shared_ptr<SharedRegion>> make_region(std::size_t bytes);
  void close_after_fork();
  [[nodiscard]] TrafficCounters traffic() const {
    const double seen = meter_.seconds_per_byte();  // of a paced edge: how fast single frames pass
    return {sent_bytes_.load(std::memory_order_relaxed), received_bytes_.load(std::memory_order_relaxed),
            seen > 0 ? std::max(seen, pacer_.seconds_per_byte()) : 0};
  }
  /// Whether any edge of the ring is paced: the same answer on all ranks.
  [[nodiscard]] bool paced() const { return paced_ring_; }
  [[nodiscard]] double paced_seconds_per_byte() const { return pacer_.seconds_per_byte(); }
  [[nodiscard]] bool has_exchange_links() const { return ports_.size() > 2; }
  [[nodiscard]] const std::string& description() const { return description_; }

  // --- on the progress thread (inside a posted function) ---
  void start_on_loop(Lane lane, std::unique_ptr<Collective> collective, std::int64_t priority);
  [[nodiscard]] LaneState& lane_on_loop(Lane lane) { return *lanes_[index(lane)]; }
  [[nodiscard]] ControlPlane& control_on_loop() { return *control_; }
  /// Ends everything for the reason `why`; tells the peers unless they told us.
  void fail_on_loop(const absl::Status& why, bool tell_peers);
  [[nodiscard]] bool failed_on_loop() const { return failed_; }
  [[nodiscard]] bool idle_on_loop() const;
  /// Says goodbye, once.
  void depart_on_loop();
  /// After goodbye: whether no peer can ask anything any more, since all that they say comes through the previous rank, and it is gone.
  [[nodiscard]] bool unreachable_on_loop() const;
  /// Calls `f` after each turn until it returns true.
  void watch_on_loop(std::function<bool()> f);
  /// What its caller waits for is asked of the layer above (communicator.h).
  void watch_caller_on_loop(std::function<CallerState()> state) { caller_state_ = std::move(state); }
  /// Something was done that other ranks wait for.
  void moved_on_loop() { deadlock_.moved(); }

 private:
  /// What epoll says of the eventfd by which posts wake the thread; other tags are indices of ports.
  static constexpr std::uint64_t kEventTag = ~std::uint64_t{0};
  /// The same of the sockets of the user lane, which have an epoll of their own inside: a caller that polls them itself takes it out.
  static constexpr std::uint64_t kUserTag = kEventTag - 1;

  class ExchangeSink;
  /// One link's transports; which lanes exist depends on what the link is for.
  struct Port {
    Link link;
    std::string name;
    std::unique_ptr<ShmPort> shm;
    std::array<std::unique_ptr<FrameWriter>, kNumDataLanes> writers;
    std::array<std::unique_ptr<FrameReader>, kNumDataLanes> readers;
    std::unique_ptr<ControlChannel> control;
    bool is_next = false;
    bool is_previous = false;
    int exchange_number = -1;  // k of an exchange link
    std::unique_ptr<ExchangeSink> exchange_sink;
    std::array<std::uint32_t, kNumLanes> interest{};  // epoll events registered for each socket
    std::array<bool, kNumLanes> readable{};           // epoll said so and no read has found it empty since
    std::array<bool, kNumLanes> dead{};               // closed by the peer, or given up
  };
  /// Frames of one exchange link go to the user lane with the link's number.
  class ExchangeSink : public FrameSink {
   public:
    ExchangeSink(LaneState& lane, int link, std::string peer) : lane_(lane), link_(link), peer_(std::move(peer)) {}
    absl::StatusOr<bool> accept(const FrameHeader& header) override { return lane_.accept_from(header, link_, peer_); }
    std::byte* destination(const FrameHeader& header) override { return lane_.destination(header); }
    absl::Status deliver(const FrameHeader& header, const std::byte* payload) override { return lane_.deliver(header, payload); }

   private:
    LaneState& lane_;
    int link_;
    std::string peer_;
  };
  /// Regions and handles may outlive the communicator; they reach it through this. Shared by all of them.
  struct Life {
    base::Mutex mutex;
    base::CondVar helped;
    Progress* progress ABSL_GUARDED_BY(mutex) = nullptr;
    int helpers ABSL_GUARDED_BY(mutex) = 0;  // callers inside help()
  };
  struct Paced {
    Lane lane;
    OutgoingFrame frame;
    base::TimePoint leaves;
  };
  struct Suspect {
    absl::Status reason;
    base::TimePoint verdict;  // an abort message that explains more may come until then
  };

  Progress(int rank, const ProgressOptions& options);
  absl::Status open(Connections connections);
  absl::Status add_port(Link link, std::string name);
  void share_region_on_loop(std::uint32_t id, const std::shared_ptr<base::Fd>& descriptor);
  void forget_region(std::uint32_t id);
  void run();
  void wake();
  void watch_user(bool on);
  [[nodiscard]] int epoll_of(std::size_t lane) const;
  int wait_for_events(epoll_event* events, int capacity, base::Nanoseconds timeout);
  /// As wait_for_events(), and lets others turn meanwhile.
  int sleep_for_events(epoll_event* events, int capacity, base::Nanoseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mutex_);
  void note_event(const epoll_event& event, base::TimePoint now);
  // --- on a calling thread, holding turn_mutex_ while it turns (progress_caller.cc) ---
  void help(const Work& work, base::TimePoint deadline);
  [[nodiscard]] bool caller_may_turn();
  /// A turn of the user lane alone: true when something moved.
  bool turn_user();
  /// Leaves the loop as the progress thread, which sleeps, expects to find it; wakes it where something is new to it.
  void let_sleep();
  bool turn(base::TimePoint now);
  bool run_posted();
  bool receive(Port& port);
  bool receive_on_lane(Port& port, Lane lane);
  bool send(base::TimePoint now);
  bool send_on_lane(Lane lane);
  bool send_paced(base::TimePoint now);
  bool send_exchange();
  void measure(base::TimePoint now);
  bool move_control(Port& port, base::TimePoint now);
  [[nodiscard]] absl::Status on_control(Port& port, ControlChannel::Message message, base::TimePoint now);
  void finish_complete();
  void check_time(base::TimePoint now);
  [[nodiscard]] std::optional<Wait> caller_waits() const;
  void pass_token(const ControlChannel::Message& message, base::TimePoint now);
  /// Looks at an outcome of a port's transport: true when something moved; an error makes the peer a suspect.
  bool moved(Port& port, Lane lane, const absl::StatusOr<bool>& result, base::TimePoint now);
  void give_up(Port& port, std::size_t lane);
  void wait(base::TimePoint now, bool progressed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mutex_);
  [[nodiscard]] bool looks_again(base::TimePoint now) const;
  [[nodiscard]] bool frames_waiting() const;
  void update_interest(std::size_t port_index);
  [[nodiscard]] std::array<bool, 3> pending() const;

  const ProgressOptions options_;
  std::shared_ptr<Life> life_ = std::make_shared<Life>();
  const std::size_t rank_;
  CollectiveContext context_;
  RegionTable regions_;
  std::unique_ptr<SegmentPool> pool_;
  std::array<std::unique_ptr<LaneState>, kNumDataLanes> lanes_;
  std::unique_ptr<ControlPlane> control_;
  std::vector<Port> ports_;  // next, previous, exchange links; empty for a world of one; fixed once the thread runs
  Pacer pacer_{base::Bandwidth{}};
  LinkMeter meter_;  // of the next rank's sockets
  std::optional<Paced> paced_;
  OperationCounts counts_;
  std::vector<std::function<bool()>> watchers_;
  base::TimePoint watched_since_{};
  DeadlockWatch deadlock_;
  std::function<CallerState()> caller_state_;
  std::optional<Suspect> suspect_;
  bool paced_ring_ = false;
  bool stopping_ = false;
  bool failed_ = false;
  bool departed_ = false;
  base::TimePoint last_move_{};
  std::string description_;

  base::Mutex turn_mutex_;           // held by the thread that turns the loop; guards all above that changes
  std::atomic<bool> wanted_{false};  // the progress thread is awake and wants the loop back
  base::Fd epoll_;
  base::Fd user_epoll_;
  bool user_watched_ = true;
  base::Fd event_;  // posts and shared-memory peers wake it
  std::atomic<bool> sleeping_{false};
  std::atomic<std::uint32_t> next_region_{1};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<std::uint64_t> received_bytes_{0};

  mutable base::Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: joined before anything that it uses goes
};

}  // namespace maypole::comm

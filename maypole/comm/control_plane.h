// SPDX-License-Identifier: Apache-2.0
#pragma once

// What ranks tell each other beside data: that they live, that they end, why they fail, and answers to questions.
//
// Messages travel over the control channels to the two ring neighbours. Heartbeats go to both; silence for longer than the limit
// means that the neighbour is lost (its engine thread sends them, so a busy Python or a long evaluation is not silence). The reason of
// a failure runs around the ring in both directions, so every survivor learns the same name even where the ring is broken.

#include "maypole/base/mutex.h"
#include "maypole/base/units.h"
#include "maypole/comm/control_channel.h"
#include "maypole/comm/deadlock_watch.h"

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace maypole::comm {

/// How many operations of each data lane a rank had started when it ended.
struct OperationCounts {
  std::array<std::uint64_t, 3> started{};
};

class ControlPlane {
 public:
  struct Settings {
    std::size_t rank = 0;
    std::size_t num_ranks = 1;
    std::uint32_t epoch = 1;
    base::Nanoseconds silence = std::chrono::seconds(2);
    std::vector<std::string> names;  // [rank]: "rank 1 (host b, 10.0.0.2)"
  };
  using Provider = std::function<absl::StatusOr<std::vector<std::byte>>(std::uint64_t key)>;

  explicit ControlPlane(Settings settings);

  // --- progress thread ---
  void set_neighbours(ControlChannel* next, ControlChannel* previous, base::TimePoint now);
  /// A neighbour's message. Errors end the communicator.
  [[nodiscard]] absl::Status on_message(bool from_next, ControlChannel::Message message, base::TimePoint now);
  /// Sends heartbeats that are due, asks again what is due; an error when a neighbour has been silent too long.
  [[nodiscard]] absl::Status tick(base::TimePoint now);
  [[nodiscard]] base::TimePoint next_tick() const { return next_heartbeat_; }
  void send_token(const DeadlockWatch::Token& token);
  [[nodiscard]] static DeadlockWatch::Token token_of(const ControlChannel::Message& message);
  void send_abort(const absl::Status& reason);
  void say_goodbye(const OperationCounts& counts);
  /// An error when some rank ended normally before it started what is in motion here (`counts`: started here; `pending`: lane has
  /// unfinished work).
  [[nodiscard]] absl::Status check_departed(const OperationCounts& counts, const std::array<bool, 3>& pending) const;
  [[nodiscard]] bool departed(std::size_t rank) const { return departed_.contains(rank); }
  [[nodiscard]] bool all_departed() const { return departed_.size() + 1 == settings_.num_ranks; }
  /// Names of ranks that have not said goodbye, for messages.
  [[nodiscard]] std::string not_departed() const;
  void set_provider(Provider provider) { provider_ = std::move(provider); }

  // --- questions to peers: each has an id; `on_answer` is called once on the progress thread ---
  using OnAnswer = std::function<void(absl::StatusOr<std::vector<std::byte>>)>;
  void ask(std::size_t peer, std::uint64_t key, OnAnswer on_answer);
  void fail_questions(const absl::Status& reason);
  /// The channel to a neighbour that had said goodbye is gone; nothing travels over it any more.
  void lose_channel(bool to_next);
  /// Time by which this process stood still just before the last tick (SIGSTOP, suspension); zero when it did not.
  [[nodiscard]] base::Nanoseconds last_gap() const { return last_gap_; }

  [[nodiscard]] const std::string& name(std::size_t rank) const { return settings_.names[rank]; }

 private:
  struct Question {
    OnAnswer on_answer;
    std::vector<std::byte> answer;
  };
  [[nodiscard]] FrameHeader header(FrameKind kind) const;
  void send(ControlChannel* channel, const FrameHeader& header, std::span<const std::byte> payload) {
    if (channel != nullptr) {
      channel->send(header, payload);
    }
  }
  void forward(const ControlChannel::Message& message) { send(next_, message.header, message.payload); }
  void answer_request(const ControlChannel::Message& message);
  void take_answer(const ControlChannel::Message& message);

  Settings settings_;
  ControlChannel* next_ = nullptr;  // null: gone
  ControlChannel* previous_ = nullptr;
  base::TimePoint heard_next_{};
  base::TimePoint heard_previous_{};
  base::TimePoint next_heartbeat_{};
  base::TimePoint last_tick_{};
  base::Nanoseconds last_gap_{0};
  bool aborted_ = false;  // a reason has been sent or passed on: further ones are not
  std::map<std::size_t, OperationCounts> departed_;
  Provider provider_;
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t next_question_ = 1;
};

}  // namespace maypole::comm

// SPDX-License-Identifier: Apache-2.0
#include "maypole/comm/control_plane.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace maypole::comm {

namespace {

constexpr std::size_t kAnswerPiece = std::size_t{64} << 10;
constexpr std::uint32_t kLastPiece = 1U << 31;  // in `segment` of an answer; the low bits hold the status code

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

absl::Status status_of(std::uint32_t code, std::span<const std::byte> text) {
  return absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace

ControlPlane::ControlPlane(Settings settings) : settings_(std::move(settings)) {}

FrameHeader ControlPlane::header(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.epoch = settings_.epoch;
  return header;
}

void ControlPlane::set_neighbours(ControlChannel* next, ControlChannel* previous, base::TimePoint now) {
  next_ = next;
  previous_ = previous;
  heard_next_ = heard_previous_ = now;
  next_heartbeat_ = last_tick_ = now;
}

absl::Status ControlPlane::tick(base::TimePoint now) {
  // A thread that was itself stopped (SIGSTOP, a suspended laptop) has heard nothing and must not blame its neighbours for it.
  last_gap_ = now - last_tick_ > settings_.silence / 2 ? now - last_tick_ : base::Nanoseconds{0};
  if (last_gap_.count() > 0) {
    heard_next_ = heard_previous_ = now;
  }
  last_tick_ = now;
  if (now < next_heartbeat_) {
    return absl::OkStatus();
  }
  next_heartbeat_ = now + settings_.silence / 8;
  send(next_, header(FrameKind::kHeartbeat), {});
  send(previous_, header(FrameKind::kHeartbeat), {});
  const std::size_t next = (settings_.rank + 1) % settings_.num_ranks;
  const std::size_t previous = (settings_.rank + settings_.num_ranks - 1) % settings_.num_ranks;
  for (const auto& [peer, heard] : {std::pair{next, heard_next_}, std::pair{previous, heard_previous_}}) {
    if (now - heard > settings_.silence && !departed(peer)) {
      return base::error(absl::StatusCode::kUnavailable, "{} is lost: no sign of life for {:.1f} s", name(peer),
                         base::to_seconds(now - heard));
    }
  }
  return absl::OkStatus();
}

absl::Status ControlPlane::on_message(bool from_next, ControlChannel::Message message, base::TimePoint now) {
  (from_next ? heard_next_ : heard_previous_) = now;
  const FrameHeader& h = message.header;
  if (h.epoch != settings_.epoch) {
    return absl::OkStatus();  // of another ring: dropped
  }
  switch (h.kind) {
    case FrameKind::kHeartbeat:
      return absl::OkStatus();
    case FrameKind::kAbort:
      if (!aborted_) {
        aborted_ = true;
        send(from_next ? previous_ : next_, h, message.payload);
      }
      return status_of(h.chunk, message.payload);
    case FrameKind::kGoodbye: {
      OperationCounts counts;
      if (h.chunk >= settings_.num_ranks || message.payload.size() != sizeof(counts)) {
        return base::error(absl::StatusCode::kFailedPrecondition, "a goodbye that is not one came from rank {}", h.chunk);
      }
      std::memcpy(&counts, message.payload.data(), sizeof(counts));
      departed_[h.chunk] = counts;
      if ((settings_.rank + 1) % settings_.num_ranks != h.chunk) {
        forward(message);
      }
      return absl::OkStatus();
    }
    case FrameKind::kRequest:
      if (h.chunk == settings_.rank) {
        answer_request(message);
      } else {
        forward(message);
      }
      return absl::OkStatus();
    case FrameKind::kAnswer:
      if (h.chunk == settings_.rank) {
        take_answer(message);
      } else {
        forward(message);
      }
      return absl::OkStatus();
    case FrameKind::kRegion:
    case FrameKind::kRegionGone:
    case FrameKind::kReduceScatter:
    case FrameKind::kAllGather:
    case FrameKind::kExchange:
    case FrameKind::kStandstill:
      break;
  }
  return base::error(absl::StatusCode::kFailedPrecondition, "an unknown message of kind {} came on the control lane",
                     static_cast<std::uint32_t>(h.kind));
}

void ControlPlane::send_token(const DeadlockWatch::Token& token) {
  FrameHeader h = header(FrameKind::kStandstill);
  h.sequence = token.number;
  h.segment = token.second ? 1 : 0;
  send(next_, h, bytes_of_text(token.waits));
}

DeadlockWatch::Token ControlPlane::token_of(const ControlChannel::Message& message) {
  return {message.header.sequence, message.header.segment != 0,
          std::string(reinterpret_cast<const char*>(message.payload.data()), message.payload.size())};
}

void ControlPlane::send_abort(const absl::Status& reason) {
  if (std::exchange(aborted_, true)) {
    return;
  }
  FrameHeader h = header(FrameKind::kAbort);
  h.chunk = static_cast<std::uint32_t>(reason.code());
  const std::string text = base::message(reason).substr(0, 4096);
  send(next_, h, bytes_of_text(text));
  send(previous_, h, bytes_of_text(text));
}

void ControlPlane::say_goodbye(const OperationCounts& counts) {
  FrameHeader h = header(FrameKind::kGoodbye);
  h.chunk = static_cast<std::uint32_t>(settings_.rank);
  send(next_, h, bytes_of(counts));
}

absl::Status ControlPlane::check_departed(const OperationCounts& counts, const std::array<bool, 3>& pending) const {
  for (const auto& [rank, theirs] : departed_) {
    for (std::size_t lane = 0; lane < pending.size(); ++lane) {
      if (pending[lane] && counts.started[lane] > theirs.started[lane]) {
        return base::error(absl::StatusCode::kUnavailable,
                           "{} has ended normally, but rank {} still runs collectives with it: did it have less data? Give every rank "
                           "the same number of batches, or wrap the loop in optimizer.join()",
                           name(rank), settings_.rank);
      }
    }
  }
  return absl::OkStatus();
}

std::string ControlPlane::not_departed() const {
  std::string names;
  for (std::size_t rank = 0; rank < settings_.num_ranks; ++rank) {
    if (rank != settings_.rank && !departed(rank)) {
      names += (names.empty() ? "" : ", ") + name(rank);
    }
  }
  return names;
}

void ControlPlane::ask(std::size_t peer, std::uint64_t key, OnAnswer on_answer) {
  if (next_ == nullptr) {
    on_answer(base::error(absl::StatusCode::kAborted, "{} cannot be asked: {} has ended and is gone", name(peer),
                          name((settings_.rank + 1) % settings_.num_ranks)));
    return;
  }
  FrameHeader h = header(FrameKind::kRequest);
  h.chunk = static_cast<std::uint32_t>(peer);
  h.segment = static_cast<std::uint32_t>(settings_.rank);
  h.sequence = next_question_++;
  questions_[h.sequence] = {std::move(on_answer), {}};
  send(next_, h, bytes_of(key));
}

void ControlPlane::answer_request(const ControlChannel::Message& message) {
  FrameHeader h = header(FrameKind::kAnswer);
  h.chunk = message.header.segment;
  h.sequence = message.header.sequence;
  std::uint64_t key = 0;
  absl::StatusOr<std::vector<std::byte>> answer = absl::UnavailableError("nothing is served yet");
  if (provider_ && message.payload.size() == sizeof(key)) {
    std::memcpy(&key, message.payload.data(), sizeof(key));
    answer = provider_(key);
  }
  if (!answer.ok()) {
    h.segment = kLastPiece | static_cast<std::uint32_t>(answer.status().code());
    const std::string text = base::message(answer.status());
    send(next_, h, bytes_of_text(text));
    return;
  }
  std::size_t sent = 0;
  do {
    const std::size_t piece = std::min(kAnswerPiece, answer->size() - sent);
    h.segment = sent + piece == answer->size() ? kLastPiece : 0;
    send(next_, h, std::span<const std::byte>(*answer).subspan(sent, piece));
    sent += piece;
  } while (sent < answer->size());
}

void ControlPlane::take_answer(const ControlChannel::Message& message) {
  const auto entry = questions_.find(message.header.sequence);
  if (entry == questions_.end()) {
    return;  // asked by somebody who has stopped waiting
  }
  const std::uint32_t code = message.header.segment & ~kLastPiece;
  Question& question = entry->second;
  if (code == 0) {
    question.answer.insert(question.answer.end(), message.payload.begin(), message.payload.end());
  }
  if ((message.header.segment & kLastPiece) != 0) {
    const OnAnswer on_answer = std::move(question.on_answer);
    absl::StatusOr<std::vector<std::byte>> answer = std::move(question.answer);
    questions_.erase(entry);
    if (code != 0) {
      answer = status_of(code, message.payload);
    }
    on_answer(std::move(answer));
  }
}

void ControlPlane::lose_channel(bool to_next) {
  (to_next ? next_ : previous_) = nullptr;
  const std::size_t step = to_next ? 1 : settings_.num_ranks - 1;
  fail_questions(base::error(absl::StatusCode::kAborted, "no answer can come: {} has ended and is gone",
                             name((settings_.rank + step) % settings_.num_ranks)));
}

void ControlPlane::fail_questions(const absl::Status& reason) {
  auto questions = std::exchange(questions_, {});
  for (auto& [id, question] : questions) {
    question.on_answer(reason);
  }
}

}  // namespace maypole::comm

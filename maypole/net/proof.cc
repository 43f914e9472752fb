// SPDX-License-Identifier: Apache-2.0
#include "maypole/net/proof.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"
#include "maypole/net/message.h"
#include "maypole/net/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace maypole::net {

namespace {

constexpr std::string_view kMagic = "MAYPOLE1";  // the last character is the version of the protocol
constexpr std::size_t kGreetingSize = 8 + 4 + 3 * 4 + kDigestSize;
constexpr std::size_t kChallengeSize = 8 + kDigestSize;
constexpr std::size_t kVerdictSize = 1 + kDigestSize;
constexpr std::uint8_t kAccepted = 1;
constexpr std::uint8_t kWrongSecret = 2;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> encode(const Greeting& greeting, const Digest& nonce) {
  MessageWriter writer;
  writer.put_bytes(bytes_of(kMagic));
  writer.put_u8(greeting.purpose);
  writer.put_u8(greeting.lane);
  writer.put_u8(greeting.level);
  writer.put_u8(0);
  writer.put_u32(greeting.epoch);
  writer.put_u32(greeting.from);
  writer.put_u32(greeting.to);
  writer.put_bytes(nonce);
  MAYPOLE_CHECK_EQ(writer.bytes().size(), kGreetingSize);
  return writer.bytes();
}

Greeting decode(std::span<const std::byte> bytes) {
  MessageReader reader(bytes.subspan(kMagic.size()));
  Greeting greeting;
  greeting.purpose = reader.u8();
  greeting.lane = reader.u8();
  greeting.level = reader.u8();
  [[maybe_unused]] const std::uint8_t unused = reader.u8();
  greeting.epoch = reader.u32();
  greeting.from = reader.u32();
  greeting.to = reader.u32();
  return greeting;
}

bool begins_with_magic(std::span<const std::byte> bytes) { return std::ranges::equal(bytes.first(kMagic.size()), bytes_of(kMagic)); }

Digest proof_of(const Credentials& credentials, std::string_view side, std::span<const std::byte> greeting,
                std::span<const std::byte> nonce) {
  MessageWriter writer;
  writer.put_string(side);
  writer.put_string(credentials.context);
  writer.put_bytes(greeting);
  writer.put_bytes(nonce);
  return hmac_sha256(credentials.secret, writer.bytes());
}

/// Sends a few bytes on a socket whose buffer is as good as empty; a peer that makes even that impossible is not worth waiting for.
bool send_now(int fd, std::span<const std::byte> bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

absl::Status prove_as_initiator(int fd, const Credentials& credentials, const Greeting& greeting, base::TimePoint deadline,
                                std::string_view what) {
  const std::vector<std::byte> hello = encode(greeting, random_nonce());
  MAYPOLE_RETURN_IF_ERROR(send_all(fd, hello, deadline, what));
  std::array<std::byte, kChallengeSize> challenge{};
  const auto magic = std::span(challenge).first(kMagic.size());
  // The magic alone is read first: another program may say less than a challenge, and then wait.
  MAYPOLE_RETURN_IF_ERROR(receive_all(fd, magic, deadline, what));
  if (!begins_with_magic(challenge)) {
    return base::error(absl::StatusCode::kFailedPrecondition,
                       "{} does not speak this version's protocol: another program or version listens there; choose another port", what);
  }
  const auto nonce = std::span(challenge).subspan(kMagic.size());
  MAYPOLE_RETURN_IF_ERROR(receive_all(fd, nonce, deadline, what));
  MAYPOLE_RETURN_IF_ERROR(send_all(fd, proof_of(credentials, "initiator", hello, nonce), deadline, what));
  std::array<std::byte, kVerdictSize> verdict{};
  MAYPOLE_RETURN_IF_ERROR(receive_all(fd, verdict, deadline, what));
  const Digest expected = proof_of(credentials, "acceptor", hello, nonce);
  if (verdict[0] != std::byte{kAccepted} || !equal_digests(std::span(verdict).subspan(1), expected)) {
    return base::error(absl::StatusCode::kUnauthenticated,
                       "wrong secret: {} has another one; all workers of a job need the same MAYPOLE_SECRET", what);
  }
  return absl::OkStatus();
}

/// One connection on its way through the proof.
struct ProvingAcceptor::Pending {
  enum class Stage : std::uint8_t { kGreeting, kProof, kLength, kMessage };

  base::Fd fd;
  base::TimePoint deadline;
  std::string peer;
  Stage stage = Stage::kGreeting;
  std::vector<std::byte> input = std::vector<std::byte>(kGreetingSize);  // exactly what the stage waits for
  std::size_t received = 0;
  std::vector<std::byte> greeting{};  // as it came, for the proof
  Digest nonce{};

  void expect(Stage next, std::size_t size) {
    stage = next;
    input.assign(size, std::byte{});
    received = 0;
  }
};

ProvingAcceptor::ProvingAcceptor(Options options) : options_(std::move(options)) {}
ProvingAcceptor::~ProvingAcceptor() = default;

void ProvingAcceptor::take_new(int listener) {
  while (true) {
    auto fd = accept_ready(listener);
    if (!fd.ok()) {
      // Descriptors or memory have run out. Waiting connections stay readable, so pause instead of spinning; pending ones are
      // dropped meanwhile, oldest first.
      accept_again_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      if (!pending_.empty()) {
        pending_.pop_front();
      }
      return;
    }
    if (!fd->valid()) {
      return;
    }
    if (pending_.size() >= options_.max_pending) {
      pending_.pop_front();
    }
    const SocketAddress remote = remote_address_of(fd->get());
    pending_.push_back(Pending{.fd = *std::move(fd),
                               .deadline = std::chrono::steady_clock::now() + options_.patience,
                               .peer = remote.valid() ? remote.to_string() : std::string("local socket")});
  }
}

ProvingAcceptor::Progress ProvingAcceptor::finish_stage(Pending& pending) {
  using Stage = Pending::Stage;
  switch (pending.stage) {
    case Stage::kGreeting: {
      if (!begins_with_magic(pending.input)) {
        return Progress::kDropped;
      }
      pending.greeting = pending.input;
      pending.nonce = random_nonce();
      MessageWriter challenge;
      challenge.put_bytes(bytes_of(kMagic));
      challenge.put_bytes(pending.nonce);
      pending.expect(Stage::kProof, kDigestSize);
      return send_now(pending.fd.get(), challenge.bytes()) ? Progress::kWaiting : Progress::kDropped;
    }
    case Stage::kProof: {
      const Digest expected = proof_of(options_.credentials, "initiator", pending.greeting, pending.nonce);
      const bool right = equal_digests(pending.input, expected);
      MessageWriter verdict;
      verdict.put_u8(right ? kAccepted : kWrongSecret);
      verdict.put_bytes(right ? proof_of(options_.credentials, "acceptor", pending.greeting, pending.nonce) : Digest{});
      const bool told = send_now(pending.fd.get(), verdict.bytes());
      if (!right) {
        ++num_refused_;
        last_refused_ = pending.peer;
        return Progress::kDropped;
      }
      if (!told) {
        return Progress::kDropped;
      }
      if (options_.message_limit == 0) {
        pending.input.clear();
        return Progress::kDone;
      }
      pending.expect(Stage::kLength, kFrameHeaderSize);
      return Progress::kWaiting;
    }
    case Stage::kLength: {
      const std::size_t size = MessageReader(pending.input).u32();
      if (size > options_.message_limit) {
        return Progress::kDropped;
      }
      pending.expect(Stage::kMessage, size);
      return size == 0 ? Progress::kDone : Progress::kWaiting;
    }
    case Stage::kMessage:
      return Progress::kDone;
  }
  return Progress::kDropped;
}

ProvingAcceptor::Progress ProvingAcceptor::advance(Pending& pending) {
  while (true) {
    const std::size_t missing = pending.input.size() - pending.received;
    const ssize_t received = ::recv(pending.fd.get(), pending.input.data() + pending.received, missing, MSG_DONTWAIT);
    if (received < 0) {
      return errno == EAGAIN || errno == EINTR ? Progress::kWaiting : Progress::kDropped;
    }
    if (received == 0) {
      return Progress::kDropped;
    }
    pending.received += static_cast<std::size_t>(received);
    if (pending.received == pending.input.size()) {
      const Progress progress = finish_stage(pending);
      if (progress != Progress::kWaiting) {
        return progress;
      }
    }
  }
}

absl::StatusOr<ProvingAcceptor::Event> ProvingAcceptor::next(base::TimePoint deadline, std::span<const int> watched) {
  for (const int listener : options_.listeners) {
    MAYPOLE_RETURN_IF_ERROR(set_nonblocking(listener));
  }
  std::vector<pollfd> entries;
  while (true) {
    const base::TimePoint now = std::chrono::steady_clock::now();
    std::erase_if(pending_, [&](const Pending& pending) { return pending.deadline <= now; });

    const bool accepting = now >= accept_again_;
    base::TimePoint wake = accepting ? deadline : std::min(deadline, accept_again_);
    entries.clear();
    for (const int fd : watched) {
      entries.push_back({fd, POLLIN, 0});
    }
    for (const Pending& pending : pending_) {
      entries.push_back({pending.fd.get(), POLLIN, 0});
      wake = std::min(wake, pending.deadline);
    }
    for (const int listener : options_.listeners) {
      entries.push_back({accepting ? listener : -1, POLLIN, 0});
    }
    const int ready = ::poll(entries.data(), entries.size(), poll_timeout(wake));
    if (ready < 0 && errno != EINTR) {
      return base::errno_error(errno, "wait for connections");
    }
    if (ready <= 0) {
      if (std::chrono::steady_clock::now() >= deadline) {
        return Event{};
      }
      continue;
    }
    std::size_t index = 0;
    for (; index < watched.size(); ++index) {
      if (entries[index].revents != 0) {
        return Event{.kind = EventKind::kWatched, .connection = {}, .watched = index};
      }
    }
    for (auto it = pending_.begin(); it != pending_.end(); ++index) {
      const Progress progress = entries[index].revents == 0 ? Progress::kWaiting : advance(*it);
      if (progress == Progress::kDone) {
        Event event{.kind = EventKind::kConnection,
                    .connection = {.fd = std::move(it->fd),
                                   .greeting = decode(it->greeting),
                                   .message = std::move(it->input),
                                   .peer = std::move(it->peer)},
                    .watched = 0};
        pending_.erase(it);
        return event;
      }
      it = progress == Progress::kDropped ? pending_.erase(it) : std::next(it);
    }
    for (const int listener : options_.listeners) {
      if (entries[index++].revents != 0) {
        take_new(listener);
      }
    }
  }
}

}  // namespace maypole::net

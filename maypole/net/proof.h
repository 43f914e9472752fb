// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who connects proves the secret, then who accepts does, before either believes another byte.
//
//   initiator                                    acceptor
//     greeting (fixed size, with nonce I)  ---->
//                                          <----  magic, nonce A
//     HMAC("initiator", ctx, greeting, A)  ---->
//                                          <----  verdict, HMAC("acceptor", ctx, greeting, A)
//
// The greeting says what the connection is for; it is acted on only after the proof that covers it. Fresh nonces on both sides stop
// replay, the labels stop reflection, `context` (the job) keeps rings of one secret apart. What follows on the connection is not
// encrypted: the proof keeps strangers out, it does not hide data from who can read the network.

#include "maypole/base/fd.h"
#include "maypole/base/units.h"
#include "maypole/net/hmac.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::net {

/// What a connection is for. The fields mean what the two ends agree on; all are covered by the proof.
struct Greeting {
  std::uint8_t purpose = 0;
  std::uint8_t lane = 0;
  std::uint8_t level = 0;
  std::uint32_t epoch = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool operator==(const Greeting&) const = default;
};

struct Credentials {
  std::string secret;
  std::string context;
};

/// The initiator's side, on a connected non-blocking socket. `what` names the acceptor in errors.
/// Errors: kUnauthenticated: wrong secret on one side; kUnavailable: closed before it answered (worth another try);
/// kFailedPrecondition: what listens there is another program; kDeadlineExceeded.
[[nodiscard]] absl::Status prove_as_initiator(int fd, const Credentials& credentials, const Greeting& greeting, base::TimePoint deadline,
                                              std::string_view what);

/// Accepts on any number of listeners and carries all proofs on at once, in the thread that calls `next`: a silent, slow or babbling
/// stranger is dropped after `patience` and holds up nobody; at most `max_pending` unproven connections are kept (the oldest goes).
class ProvingAcceptor {
 public:
  struct Options {
    std::vector<int> listeners;  // not owned; made non-blocking
    Credentials credentials;
    std::size_t message_limit = 0;  // above 0: also waits for one frame of at most this size after the proof
    base::Nanoseconds patience = std::chrono::seconds(10);
    std::size_t max_pending = 256;
  };

  struct Connection {
    base::Fd fd;
    Greeting greeting;
    std::vector<std::byte> message;
    std::string peer;  // "10.0.0.2:40112", or "local socket"
  };

  enum class EventKind : std::uint8_t { kConnection, kWatched, kDeadline };
  struct Event {
    EventKind kind = EventKind::kDeadline;
    Connection connection;    // kConnection: proven
    std::size_t watched = 0;  // kWatched: index of a descriptor that is readable or closed
  };

  explicit ProvingAcceptor(Options options);
  ~ProvingAcceptor();
  ProvingAcceptor(const ProvingAcceptor&) = delete;
  ProvingAcceptor& operator=(const ProvingAcceptor&) = delete;

  /// Waits for the next proven connection, or until one of `watched` is readable, or until `deadline`.
  [[nodiscard]] absl::StatusOr<Event> next(base::TimePoint deadline, std::span<const int> watched);

  /// Connections that proved a wrong secret so far, and whence the last came.
  [[nodiscard]] int num_refused() const { return num_refused_; }
  [[nodiscard]] const std::string& last_refused() const { return last_refused_; }

 private:
  struct Pending;
  enum class Progress : std::uint8_t { kWaiting, kDone, kDropped };
  void take_new(int listener);
  [[nodiscard]] Progress advance(Pending& pending);
  [[nodiscard]] Progress finish_stage(Pending& pending);

  Options options_;
  std::list<Pending> pending_;      // oldest first
  base::TimePoint accept_again_{};  // no accepting before: descriptors had run out
  int num_refused_ = 0;
  std::string last_refused_;
};

}  // namespace maypole::net

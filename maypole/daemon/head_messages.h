// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the daemon and the head of an elastic job tell each other. The head (`maypole head`) is the process that a shim starts in place of
// a worker: it hosts elastic::Coordinator and the agents of the workers, and goes on when the daemon is away. Both sides always tell all
// that counts, never a difference, so a connection that is made anew needs no memory of the last one:
//
//   daemon -> head   HeadOrder   the ring that is wanted; one that the head has seen is not carried out again
//   head -> daemon   HeadState   at the connection and at every change
//
// The head listens on a local socket of its user whose name is made from the store, the job and the epoch.

#include "maypole/base/fd.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::daemon {

struct WorkerPlace {
  std::string server;
  std::vector<int> devices = {};  // accelerators of this machine that are its own
  bool operator==(const WorkerPlace&) const = default;
};

struct HeadOrder {
  int number = 0;                 // counts up within the epoch
  std::vector<WorkerPlace> ring;  // in ring order
  bool operator==(const HeadOrder&) const = default;
};

struct HeadState {
  int seen = 0;                      // the last order that came
  int done = 0;                      // the last one that is in effect, or has failed
  bool resizable = false;            // every worker is in the loop
  std::vector<std::string> seats;    // server of each worker that is wanted, in ring order: after a failure fewer than were ordered
  std::vector<std::string> living;   // server of each worker that may have processes
  std::vector<std::string> members;  // server of each worker that trains, in the order on the wire
  int failures = 0;                  // workers lost, and failures of the job's earlier epochs
  std::uint64_t step = 0;            // steps made
  std::string problem;               // why the last order failed, or the run; empty: it did not
  bool operator==(const HeadState&) const = default;
};

/// What a head is started with, in the folder of its worker_files.h.
struct HeadSpec {
  std::string socket;
  std::string job;  // its id
  std::vector<std::string> command;
  int min_workers = 1;
  int max_workers = 1;
  int retries = 0;   // of this epoch
  int failures = 0;  // before it
  HeadOrder first;
  bool operator==(const HeadSpec&) const = default;
};

[[nodiscard]] std::string encode(const HeadOrder& order);
[[nodiscard]] std::string encode(const HeadState& state);
[[nodiscard]] absl::StatusOr<HeadOrder> decode_head_order(std::string_view bytes);
[[nodiscard]] absl::StatusOr<HeadState> decode_head_state(std::string_view bytes);
[[nodiscard]] absl::Status write_head_spec(const std::string& folder, const HeadSpec& spec);
[[nodiscard]] absl::StatusOr<HeadSpec> read_head_spec(const std::string& folder);

/// One end of the connection: whole messages over a non-blocking stream.
class HeadStream {
 public:
  explicit HeadStream(base::Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// False: the other end is gone, or does not read.
  [[nodiscard]] bool send(std::string_view message);
  /// Messages that have come whole; none (and valid() turns false) when the other end is gone.
  [[nodiscard]] std::vector<std::string> receive();
  [[nodiscard]] bool valid() const { return socket_.valid(); }

 private:
  base::Fd socket_;
  std::string buffer_;
};

/// Whether the other end is a process of this user, or of root: names of local sockets are anybody's.
[[nodiscard]] bool is_own_user(int socket);

}  // namespace maypole::daemon

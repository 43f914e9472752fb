// SPDX-License-Identifier: Apache-2.0
#pragma once

// What launcher and agent say to each other over the agent's standard input and output.
//
// A message is the bytes 'M' 'P', its kind, the length of its body (4 bytes, little endian) and its body: JSON, or for bytes of a worker
// the rank (4 bytes) and the bytes. The order of a job:
//
//   launcher            agent
//   kSpec       ->              who to start, and with what environment
//               <-      kReady  addresses that were bound; or kError, a sentence, and the agent ends
//   kStart      ->              every agent is ready: addresses of the whole job; workers start
//               <-      kOutput, kErrorOutput, kExit, kReport, kTimeline   as they come
//   kSignal     ->              for all workers of the agent that run
//   kControl    <->     kControl  packets to and from a worker of an elastic run (elastic/control_messages.h), as they are
//               <-      kDone   all have ended and nothing of them is left
//   end of file ->              the launcher is gone: the agent ends everything it started

#include "maypole/base/fd.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

enum class MessageKind : std::uint8_t {
  kSpec = 1,
  kReady,
  kStart,
  kOutput,
  kErrorOutput,
  kExit,
  kReport,
  kTimeline,
  kSignal,
  kDone,
  kError,
  kControl
};

struct Message {
  MessageKind kind;
  std::string body;
};

inline constexpr std::size_t kMaxMessageBytes = 64U << 20U;

[[nodiscard]] std::string encode_message(MessageKind kind, std::string_view body);
/// For kOutput, kErrorOutput, kReport, kTimeline, kControl.
[[nodiscard]] std::string encode_worker_bytes(MessageKind kind, int rank, std::string_view bytes);

struct WorkerBytes {
  int rank;
  std::string_view bytes;  // of the message's body
};
[[nodiscard]] absl::StatusOr<WorkerBytes> decode_worker_bytes(const Message& message);

/// Cuts a byte stream into messages.
class MessageReader {
 public:
  void append(std::string_view bytes) { buffer_ += bytes; }
  /// Nothing when the next message is not complete yet; an error when the bytes are not ours, with what they look like.
  [[nodiscard]] absl::StatusOr<std::optional<Message>> next();

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

/// Reads what is there from a non-blocking descriptor, at most `limit` bytes; nothing at the end of the file or after an error.
[[nodiscard]] std::optional<std::string> read_some(int fd, std::size_t limit = 64U << 10U);

/// Bytes on their way to a non-blocking descriptor, written as it takes them.
class WriteQueue {
 public:
  void push(std::string_view bytes);
  [[nodiscard]] std::size_t size() const { return buffer_.size() - start_; }
  /// Writes until it is empty or the descriptor is full; false when the other side is gone.
  [[nodiscard]] bool flush(int fd);

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

void set_non_blocking(int fd);

// ---- bodies -----------------------------------------------------------------------------------------------------------------------

struct JobSpec {
  std::string version;
  std::string job_id;
  std::string secret;
  std::string host;       // name of the agent's entry
  std::string directory;  // of the workers
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // on top of the agent's own
  int world_size = 1;
  int first_rank = 0;
  int num_workers = 1;
  std::string bind_address;  // for the agent with rank 0, where rank 0 listens; "" = every address
  bool timeline = false;
  bool elastic = false;  // one worker that has a control socket, and a rendezvous of its own whatever its rank
};

struct AgentReady {
  int rendezvous_port = 0;  // agent of rank 0 only
  int master_port = 0;      // agent of rank 0 only
  int cores = 1;
  std::string machine;    // equal on one machine: its boot id
  std::string directory;  // of reports; the agent removes it, or the launcher when the agent cannot
};

struct StartOrder {
  std::string rendezvous;
  std::string master_address;
  int master_port = 0;
  int workers_on_machine = 1;  // of all entries that are the same machine
};

struct WorkerExit {
  int rank = 0;
  int code = 0;
  int signal = 0;
  double seconds = 0;
  std::string reason;  // why it could not start; "" when it did
};

[[nodiscard]] std::string to_json(const JobSpec& spec);
[[nodiscard]] std::string to_json(const AgentReady& ready);
[[nodiscard]] std::string to_json(const StartOrder& order);
[[nodiscard]] std::string to_json(const WorkerExit& exit);
/// Parses the body of a message; the error says what is wrong with it.
template <typename Body>
[[nodiscard]] absl::StatusOr<Body> from_json(std::string_view text);

}  // namespace maypole::cli

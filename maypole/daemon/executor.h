// SPDX-License-Identifier: Apache-2.0
#pragma once

// Starts, finds again and ends the workers of a job's epochs. The daemon says what; how and where is the executor's business: processes
// on this machine (local_executor.h), later those of a batch system.

#include "maypole/base/units.h"
#include "maypole/daemon/head_messages.h"
#include "maypole/daemon/worker_files.h"

#include <poll.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace maypole::daemon {

/// One incarnation of a job.
struct EpochId {
  std::int64_t job = 0;
  int epoch = 0;
  auto operator<=>(const EpochId&) const = default;
};

/// What an epoch needs whose workers may come and go.
struct ElasticOrder {
  int min_workers = 1;
  int max_workers = 1;
  int retries = 0;
  int failures = 0;  // before this epoch
};

struct EpochOrder {
  EpochId id;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // on top of the daemon's own
  std::string directory;
  std::vector<WorkerPlace> workers;     // [rank]
  double cpus_per_worker = 0;           // 0: not said
  base::Bandwidth edge_bandwidth = {};  // every edge is paced to it; not limited(): none is
  /// Its workers have a head, which is started as its only rank 0 and says what becomes of them.
  std::optional<ElasticOrder> elastic = {};
};

enum class WorkerEventKind { kStarted, kEnded, kState };
struct WorkerEvent {
  WorkerEventKind kind = WorkerEventKind::kEnded;
  EpochId id;
  int rank = 0;
  // kEnded: nothing of the worker is left.
  bool never_started = false;  // no process of it was ever made, nor will be
  bool status_known = true;    // false: its shim was killed, and how it ended is not known
  WorkerExit exit = {};
  std::optional<HeadState> state = {};  // kState: of a head
};

/// Not thread-safe: one thread owns it.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Every rank is heard of by events: kStarted and kEnded, or kEnded alone. Call it after the order is in the store.
  virtual void start(const EpochOrder& order) = 0;
  /// After a restart: finds what runs of an epoch, and makes sure that what has not started never will. Events as for start().
  virtual void adopt(EpochId id, int num_workers, bool elastic) = 0;
  /// Tells the head of an elastic epoch which ring is wanted now.
  virtual void resize(EpochId id, const HeadOrder& order) = 0;
  /// Ends an epoch: SIGTERM, SIGKILL after three seconds. May be called again.
  virtual void stop(EpochId id) = 0;
  /// Removes what is kept of a job that has ended.
  virtual void forget(std::int64_t job) = 0;
  /// What happened since the last call; does not block.
  [[nodiscard]] virtual std::vector<WorkerEvent> poll() = 0;
  /// Descriptors at which poll() is worth calling, and the milliseconds after which it is anyway; -1: only then.
  virtual void add_to(std::vector<pollfd>& polled) const = 0;
  [[nodiscard]] virtual int poll_again_ms() const = 0;
  /// Where a worker's output lies.
  [[nodiscard]] virtual std::string output_folder(EpochId id, int rank) const = 0;
};

}  // namespace maypole::daemon

// SPDX-License-Identifier: Apache-2.0
#include "maypole/pipeline/process_end.h"

#include "maypole/base/check.h"
#include "maypole/base/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

namespace maypole::pipeline {
namespace {

struct Ending {
  std::shared_ptr<Engine> engine;
  std::string timeline_file;
  pid_t process = 0;
};

void complain(int rank, std::string_view what, const absl::Status& status) {
  if (!status.ok()) {
    fmt::print(stderr, "maypole: rank {}: {}: {}\n", rank, what, base::message(status));
  }
}

void end_now(int exit_status, void* argument) {
  if (static_cast<Ending*>(argument)->process != ::getpid()) {
    return;  // the engine's threads are the parent's
  }
  const std::unique_ptr<Ending> ending(static_cast<Ending*>(argument));
  Engine& engine = *ending->engine;
  const int rank = engine.communicator().rank();
  if (exit_status == 0) {
    complain(rank, "at the end", engine.finalize());
  } else {
    engine.communicator().abort(
        base::error(absl::StatusCode::kAborted, "rank {} is lost: it ended with exit status {}", rank, exit_status));
  }
  if (!ending->timeline_file.empty()) {
    complain(rank, "the timeline was not written", engine.write_timeline(ending->timeline_file));
  }
}

}  // namespace

void end_with_process(std::shared_ptr<Engine> engine, std::string timeline_file) {
  auto ending = std::make_unique<Ending>(Ending{std::move(engine), std::move(timeline_file), ::getpid()});
  MAYPOLE_CHECK_EQ(::on_exit(end_now, ending.release()), 0);
}

}  // namespace maypole::pipeline

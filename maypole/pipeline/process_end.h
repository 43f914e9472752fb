// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/pipeline/engine.h"

#include <memory>
#include <string>

namespace maypole::pipeline {

/// Keeps `engine` until this process ends, and then ends it as the process does: after exit(0) it is finalized, so that peers are served
/// until all have ended; with any other status the peers hear that this rank is lost, and why. Nobody but the C library knows the status:
/// a Python script that raises SystemExit runs no hook that does. Then writes the timeline to `timeline_file` ("" = none). What goes wrong
/// is said on standard error. A forked child ends nothing. Call once.
void end_with_process(std::shared_ptr<Engine> engine, std::string timeline_file);

}  // namespace maypole::pipeline

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Standard input and output as a screen of their own, for a command that redraws it.

#include "maypole/base/fd.h"
#include "maypole/cli/top_frame.h"

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

namespace maypole::cli {

/// The terminal's as it is now; where output is none, as LINES and COLUMNS say.
[[nodiscard]] FrameSize terminal_size();

/// Where output is a terminal: another screen and no cursor until it is destroyed; where input is one: single keys, unseen. Signals that
/// end the command are read as the key q, so that the terminal is given back as it was. Where output is no terminal, frames follow each
/// other as plain text.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void show(const std::vector<std::string>& lines);
  /// Waits so long for a key or a changed size; false: `q`, or a signal to end.
  [[nodiscard]] bool wait(double seconds);

 private:
  bool screen_;
  bool keys_;
  bool first_ = true;
  std::optional<termios> before_;
  base::Fd signals_;
};

}  // namespace maypole::cli

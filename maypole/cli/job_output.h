// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "maypole/base/units.h"
#include "maypole/cli/output.h"

#include <poll.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

/// Everything that a run prints: the workers' lines on the stream that they chose, and the launcher's own on standard error.
/// Never blocks; who waits for a slow reader is the job (see full()), not the launcher.
class JobOutput {
 public:
  /// Prefixes when there is more than one worker; `to_error` sends the workers' standard output to standard error (--json).
  JobOutput(int num_workers, bool to_error);

  void add(int rank, Stream stream, std::string_view bytes);
  void finish(int rank);
  /// Prints lines of the launcher itself; `text` ends in a line end.
  void say(std::string_view text);
  /// Prints on standard output (--json).
  void answer(std::string_view text);

  /// The last lines that a rank wrote to standard error, each with its prefix.
  [[nodiscard]] std::string last_errors(int rank) const;
  /// The same, as it was written.
  [[nodiscard]] std::string tail(int rank) const;

  /// True while so much waits for a slow reader that no more should be taken from workers.
  [[nodiscard]] bool full() const;
  [[nodiscard]] bool empty() const;
  void add_to(std::vector<pollfd>& polled) const;
  /// Writes to what poll() found ready; `results` are the entries that add_to() added.
  void write_ready(const pollfd* results);
  static constexpr std::size_t kNumPolled = 2;
  /// Shows unfinished lines that have waited long enough; when that is next due.
  void show_late(base::TimePoint now);
  [[nodiscard]] std::optional<base::TimePoint> next_due() const;

 private:
  void print(Stream stream, std::string_view text);

  int num_workers_;
  bool to_error_;
  bool same_file_;  // both streams end in the same place: one queue keeps their lines apart
  std::array<Outlet, 2> outlets_;
  std::array<LinePrinter, 2> printers_;
  std::map<int, Tail> tails_;
};

}  // namespace maypole::cli

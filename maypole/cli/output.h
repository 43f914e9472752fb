// SPDX-License-Identifier: Apache-2.0
#pragma once

// The workers' output on its way to the launcher's own: whole lines, each with its rank in front.

#include "maypole/base/units.h"

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace maypole::cli {

/// Text for one descriptor that never blocks the caller: it writes at most what a pipe takes at once, when poll() says so.
class Outlet {
 public:
  explicit Outlet(int fd) : fd_(fd) {}
  void push(std::string_view text);
  /// The same for text that goes to another descriptor of the same file, so that the order of lines is kept.
  void push_to(int fd, std::string_view text);
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The descriptor that the next bytes go to.
  [[nodiscard]] int fd() const { return pieces_.empty() ? fd_ : pieces_.front().first; }
  /// Writes once; call when poll() reports room. Text for a reader that is gone is dropped.
  void write_some();

 private:
  int fd_;
  std::deque<std::pair<int, std::string>> pieces_;
  std::size_t start_ = 0;  // in the first piece
  std::size_t size_ = 0;
};

enum class Stream { kOut = 0, kErr = 1 };

struct LineStyle {
  bool prefixes = true;
  bool terminal = false;  // unfinished lines are shown after a moment, and a carriage return starts the line again
  bool colour = false;
};

/// Turns the bytes of many workers into lines for one stream. Pure: text in, text out.
///
/// Invariant: a line of one rank is never cut by another's. A line longer than kMaxLineBytes is shown in parts, each a line.
class LinePrinter {
 public:
  static constexpr std::size_t kMaxLineBytes = 64U << 10U;
  static constexpr std::chrono::milliseconds kPatience{200};  // how long an unfinished line waits on a terminal

  explicit LinePrinter(LineStyle style) : style_(style) {}

  /// Returns what to print now.
  [[nodiscard]] std::string add(int rank, std::string_view bytes, base::TimePoint now);
  /// Returns the unfinished lines that have waited long enough.
  [[nodiscard]] std::string late(base::TimePoint now);
  /// When late() is next due.
  [[nodiscard]] std::optional<base::TimePoint> next_due() const;
  /// Returns what is left of a rank that has ended, as a finished line.
  [[nodiscard]] std::string finish(int rank);
  /// Ends a line that is on the screen unfinished, so that a message of our own may follow.
  [[nodiscard]] std::string end_open_line();

 private:
  struct Partial {
    std::string text;
    base::TimePoint since;
  };
  [[nodiscard]] std::string prefix(int rank) const;
  void show(std::string& out, int rank, std::string_view text, bool whole);

  LineStyle style_;
  std::map<int, Partial> partial_;
  std::optional<int> open_;  // the rank whose unfinished line is on the screen
};

/// The last lines of a stream, for the end of a failed job.
class Tail {
 public:
  static constexpr std::size_t kMaxLines = 30;
  static constexpr std::size_t kMaxBytes = 16U << 10U;
  void add(std::string_view bytes);
  /// At most kMaxLines lines, without the last line end.
  [[nodiscard]] std::string text() const;

 private:
  std::string bytes_;
};

}  // namespace maypole::cli

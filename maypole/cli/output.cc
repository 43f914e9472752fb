// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/output.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace maypole::cli {

void Outlet::push(std::string_view text) { push_to(fd_, text); }

void Outlet::push_to(int fd, std::string_view text) {
  if (text.empty()) {
    return;
  }
  size_ += text.size();
  constexpr std::size_t kPieceBytes = 64U << 10U;
  if (pieces_.empty() || pieces_.back().first != fd || pieces_.back().second.size() > kPieceBytes) {
    pieces_.emplace_back(fd, text);
  } else {
    pieces_.back().second += text;
  }
}

void Outlet::write_some() {
  if (pieces_.empty()) {
    return;
  }
  // A pipe that is ready takes PIPE_BUF bytes without blocking; more could block the launcher, and with it the signals.
  auto& [fd, text] = pieces_.front();
  const std::size_t length = std::min<std::size_t>(text.size() - start_, PIPE_BUF);
  const ssize_t written = ::write(fd, text.data() + start_, length);
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) {
    return;
  }
  const std::size_t gone = written < 0 ? text.size() - start_ : static_cast<std::size_t>(written);
  start_ += gone;
  size_ -= gone;
  if (start_ == text.size()) {
    pieces_.pop_front();
    start_ = 0;
  }
}

std::string LinePrinter::prefix(int rank) const {
  if (!style_.prefixes) {
    return "";
  }
  if (!style_.colour) {
    return fmt::format("[{}] ", rank);
  }
  constexpr int kFirstColour = 31;  // red .. cyan
  constexpr int kNumColours = 6;
  return fmt::format("\x1b[{}m[{}]\x1b[0m ", kFirstColour + (rank + 1) % kNumColours, rank);
}

void LinePrinter::show(std::string& out, int rank, std::string_view text, bool whole) {
  if (open_ && *open_ != rank) {
    out += end_open_line();
  }
  if (!open_) {
    out += prefix(rank);
    text.remove_prefix(style_.terminal && style_.prefixes && text.starts_with('\r') ? 1 : 0);  // the line is at its start already
  }
  while (style_.terminal && style_.prefixes && !text.empty()) {
    const std::size_t at = text.find('\r');
    out += text.substr(0, at);
    if (at == std::string_view::npos) {
      text = {};
      break;
    }
    text.remove_prefix(at + 1);
    if (!text.empty() || !whole) {
      out += '\r' + prefix(rank);
    }
  }
  out += text;
  open_.reset();
  if (whole) {
    out += '\n';
  } else {
    open_ = rank;
  }
}

std::string LinePrinter::add(int rank, std::string_view bytes, base::TimePoint now) {
  if (!style_.prefixes) {
    return std::string(bytes);
  }
  std::string out;
  Partial& partial = partial_[rank];
  while (true) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kMaxLineBytes - partial.text.size();
    if (end == std::string_view::npos && bytes.size() <= room) {
      break;
    }
    const bool fits = end != std::string_view::npos && end <= room;
    partial.text += bytes.substr(0, fits ? end : room);
    show(out, rank, partial.text, true);
    partial.text.clear();
    bytes.remove_prefix(fits ? end + 1 : room);
  }
  if (partial.text.empty() && !bytes.empty()) {
    partial.since = now;
  }
  partial.text += bytes;
  return out;
}

std::string LinePrinter::late(base::TimePoint now) {
  std::string out;
  for (auto& [rank, partial] : partial_) {
    if (style_.terminal && !partial.text.empty() && now >= partial.since + kPatience) {
      show(out, rank, partial.text, false);
      partial.text.clear();
    }
  }
  return out;
}

std::optional<base::TimePoint> LinePrinter::next_due() const {
  std::optional<base::TimePoint> due;
  for (const auto& [rank, partial] : partial_) {
    if (style_.terminal && !partial.text.empty() && (!due || partial.since + kPatience < *due)) {
      due = partial.since + kPatience;
    }
  }
  return due;
}

std::string LinePrinter::finish(int rank) {
  std::string out;
  const auto partial = partial_.find(rank);
  if (partial != partial_.end() && !partial->second.text.empty()) {
    show(out, rank, partial->second.text, true);
  } else if (open_ == rank) {
    out += end_open_line();
  }
  partial_.erase(rank);
  return out;
}

std::string LinePrinter::end_open_line() {
  if (!open_) {
    return "";
  }
  open_.reset();
  return "\n";
}

void Tail::add(std::string_view bytes) {
  bytes_ += bytes;
  if (bytes_.size() > 2 * kMaxBytes) {
    bytes_.erase(0, bytes_.size() - kMaxBytes);
  }
}

std::string Tail::text() const {
  std::string_view text = bytes_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  std::size_t start = text.size();
  for (std::size_t lines = 0; lines < kMaxLines && start != std::string_view::npos && start > 0; ++lines) {
    start = text.rfind('\n', start - 1);
  }
  text.remove_prefix(start == std::string_view::npos || text.empty() ? 0 : start + (text[start] == '\n' ? 1 : 0));
  if (text.size() > kMaxBytes) {
    text.remove_prefix(text.size() - kMaxBytes);
  }
  return std::string(text);
}

}  // namespace maypole::cli

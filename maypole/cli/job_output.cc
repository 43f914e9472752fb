// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/job_output.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace maypole::cli {

namespace {

constexpr std::size_t kMaxWaitingBytes = 4U << 20U;

bool lead_to_the_same_file(int a, int b) {
  struct stat first{};
  struct stat second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

LineStyle style_of(int fd, bool prefixes) {
  const bool terminal = ::isatty(fd) == 1;
  return {prefixes, terminal, terminal && ::getenv("NO_COLOR") == nullptr};
}

std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

}  // namespace

JobOutput::JobOutput(int num_workers, bool to_error)
    : num_workers_(num_workers),
      to_error_(to_error),
      same_file_(lead_to_the_same_file(STDOUT_FILENO, STDERR_FILENO)),
      outlets_{Outlet(STDOUT_FILENO), Outlet(STDERR_FILENO)},
      printers_{LinePrinter(style_of(to_error ? STDERR_FILENO : STDOUT_FILENO, num_workers > 1)),
                LinePrinter(style_of(STDERR_FILENO, num_workers > 1))} {}

void JobOutput::print(Stream stream, std::string_view text) {
  if (text.empty()) {
    return;
  }
  const Stream place = to_error_ ? Stream::kErr : stream;
  const int fd = place == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO;
  Outlet& outlet = outlets_[same_file_ ? 0 : index(place)];
  if ((same_file_ || to_error_) && num_workers_ > 1) {
    outlet.push_to(fd, printers_[1 - index(stream)].end_open_line());
  }
  outlet.push_to(fd, text);
}

void JobOutput::add(int rank, Stream stream, std::string_view bytes) {
  if (stream == Stream::kErr) {
    tails_[rank].add(bytes);
  }
  print(stream, printers_[index(stream)].add(rank, bytes, std::chrono::steady_clock::now()));
}

void JobOutput::finish(int rank) {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    print(stream, printers_[index(stream)].finish(rank));
  }
}

void JobOutput::say(std::string_view text) {
  std::string whole = printers_[index(Stream::kErr)].end_open_line();
  if (same_file_) {
    whole += printers_[index(Stream::kOut)].end_open_line();
  }
  whole += text;
  if (same_file_) {
    outlets_[0].push_to(STDERR_FILENO, whole);
  } else {
    outlets_[1].push(whole);
  }
}

void JobOutput::answer(std::string_view text) { outlets_[0].push_to(STDOUT_FILENO, text); }

std::string JobOutput::tail(int rank) const {
  const auto found = tails_.find(rank);
  return found == tails_.end() ? "" : found->second.text();
}

std::string JobOutput::last_errors(int rank) const {
  std::string lines;
  std::string_view rest;
  const std::string text = tail(rank);
  rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    lines += fmt::format("[{}] {}\n", rank, rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return lines;
}

bool JobOutput::full() const { return outlets_[0].size() + outlets_[1].size() > kMaxWaitingBytes; }
bool JobOutput::empty() const { return outlets_[0].size() + outlets_[1].size() == 0; }

void JobOutput::add_to(std::vector<pollfd>& polled) const {
  for (const Outlet& outlet : outlets_) {
    polled.push_back({outlet.size() > 0 ? outlet.fd() : -1, POLLOUT, 0});
  }
}

void JobOutput::write_ready(const pollfd* results) {
  for (std::size_t i = 0; i < kNumPolled; ++i) {
    if (results[i].revents != 0) {
      outlets_[i].write_some();
    }
  }
}

void JobOutput::show_late(base::TimePoint now) {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    print(stream, printers_[index(stream)].late(now));
  }
}

std::optional<base::TimePoint> JobOutput::next_due() const {
  const auto first = printers_[0].next_due();
  const auto second = printers_[1].next_due();
  return first && second ? std::min(*first, *second) : (first ? first : second);
}

}  // namespace maypole::cli

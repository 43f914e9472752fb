// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/control_socket.h"

#include "maypole/base/status.h"
#include "maypole/daemon/head_messages.h"
#include "maypole/net/socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace maypole::cli {

namespace {

constexpr std::size_t kMaxGuests = 16;
constexpr std::size_t kMaxLineBytes = 256;
constexpr int kFailed = 1;
constexpr int kWrongUse = 2;
constexpr int kNotNow = 75;

std::string prefix() { return fmt::format("maypole-run-{}-", ::getuid()); }

int exit_code_of(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return kWrongUse;
    case absl::StatusCode::kUnavailable:
      return kNotNow;
    default:
      return kFailed;
  }
}

}  // namespace

absl::StatusOr<ControlSocket> ControlSocket::open(const std::string& run) {
  absl::StatusOr<base::Fd> listener = net::listen_local(prefix() + run);
  if (!listener.ok()) {
    const std::vector<std::string> others = runs_here();
    if (std::ranges::find(others, run) != others.end()) {
      return base::error(absl::StatusCode::kAlreadyExists, "a run named '{}' is under way: give this one another name", run);
    }
    return listener.status();
  }
  return ControlSocket(std::move(listener).value());
}

void ControlSocket::add_to(std::vector<pollfd>& polled) const {
  polled.push_back({guests_.size() < kMaxGuests ? listener_.get() : -1, POLLIN, 0});
  for (const auto& [number, guest] : guests_) {
    polled.push_back({guest.fd.get(), POLLIN, 0});
  }
}

void ControlSocket::take_guest() {
  absl::StatusOr<base::Fd> guest = net::accept_ready(listener_.get());
  if (guest.ok() && guest->valid() && daemon::is_own_user(guest->get())) {
    guests_[next_number_++].fd = std::move(guest).value();
  }
}

std::vector<RunControl::Request> ControlSocket::read_ready(const pollfd* results) {
  std::vector<Request> requests;
  std::vector<std::uint64_t> wrong;
  std::vector<std::uint64_t> gone;
  const pollfd* result = results + 1;
  for (auto& [number, guest] : guests_) {
    if ((result++)->revents == 0) {
      continue;
    }
    std::array<char, kMaxLineBytes> bytes{};
    const ssize_t got = ::recv(guest.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      gone.push_back(number);  // what it asked for goes on
      continue;
    }
    guest.line.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (guest.line.size() > kMaxLineBytes) {
      wrong.push_back(number);
    } else if (guest.line.find('\n') != std::string::npos) {
      std::istringstream words(std::exchange(guest.line, ""));
      std::string verb;
      elastic::SizeRange range;
      if (words >> verb >> range.min >> range.max && verb == "resize") {
        requests.push_back({.number = number, .range = range});
      } else {
        wrong.push_back(number);
      }
    }
  }
  for (const std::uint64_t number : gone) {
    guests_.erase(number);
  }
  for (const std::uint64_t number : wrong) {
    answer(number, base::error(absl::StatusCode::kInvalidArgument, "the run does not understand this: install the same version of maypole"),
           "");
  }
  if (results->revents != 0) {
    take_guest();
  }
  return requests;
}

void ControlSocket::answer(std::uint64_t number, const absl::Status& status, const std::string& text) {
  const auto guest = guests_.find(number);
  if (guest == guests_.end()) {
    return;
  }
  const std::string line = fmt::format("{} {}\n", exit_code_of(status), status.ok() ? text : base::message(status));
  [[maybe_unused]] const ssize_t ignored = ::send(guest->second.fd.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  guests_.erase(guest);
}

absl::StatusOr<ControlAnswer> ask_run(const std::string& run, const std::string& line) {
  const base::TimePoint soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  absl::StatusOr<base::Fd> fd = net::connect_local(prefix() + run, soon);
  if (!fd.ok()) {
    const std::vector<std::string> others = runs_here();
    return base::error(absl::StatusCode::kNotFound, "no elastic run named '{}' of yours is under way on this machine{}", run,
                       others.empty() ? "" : fmt::format(": there {} {}", others.size() == 1 ? "is" : "are", fmt::join(others, ", ")));
  }
  const std::string request = line + "\n";
  MAYPOLE_RETURN_IF_ERROR(net::send_all(fd->get(), std::as_bytes(std::span(request)), soon, "the run"));
  std::string answer;
  while (answer.find('\n') == std::string::npos) {
    pollfd polled{fd->get(), POLLIN, 0};
    ::poll(&polled, 1, -1);
    std::array<char, 1024> bytes{};
    const ssize_t got = ::recv(fd->get(), bytes.data(), bytes.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return base::error(absl::StatusCode::kAborted, "run '{}' ended before it answered", run);
    }
    answer.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  std::istringstream parts(answer);
  ControlAnswer result;
  parts >> result.exit_code >> std::ws;
  std::getline(parts, result.text);
  return result;
}

std::vector<std::string> runs_here() {
  // Each line ends in the socket's name; '@' stands for the zero byte of names that are no files.
  std::vector<std::string> runs;
  std::ifstream sockets("/proc/net/unix");
  const std::string wanted = "@" + prefix();
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find(wanted);
    if (at != std::string::npos) {
      runs.push_back(line.substr(at + wanted.size()));
    }
  }
  std::ranges::sort(runs);
  const auto repeated = std::ranges::unique(runs);  // connections carry the name of the socket that they came by
  runs.erase(repeated.begin(), repeated.end());
  return runs;
}

}  // namespace maypole::cli

// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace maypole::cli {

namespace {

std::size_t number_in(const char* variable, std::size_t otherwise) {
  const char* text = ::getenv(variable);
  const int number = text == nullptr ? 0 : std::atoi(text);
  return number > 0 ? static_cast<std::size_t>(number) : otherwise;
}

}  // namespace

FrameSize terminal_size() {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    return {window.ws_col, window.ws_row};
  }
  return {number_in("COLUMNS", FrameSize().columns), number_in("LINES", FrameSize().lines)};
}

Terminal::Terminal() : screen_(::isatty(STDOUT_FILENO) == 1), keys_(screen_ && ::isatty(STDIN_FILENO) == 1) {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
    ::sigaddset(&handled, signal);
  }
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  signals_ = base::Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (termios now{}; keys_ && ::tcgetattr(STDIN_FILENO, &now) == 0) {
    before_ = now;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  if (screen_) {
    fmt::print("\x1b[?1049h\x1b[?25l");
  }
}

Terminal::~Terminal() {
  if (screen_) {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
  }
  if (before_) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  }
}

void Terminal::show(const std::vector<std::string>& lines) {
  std::string text = screen_ ? "\x1b[H" : first_ ? "" : "\n";
  first_ = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += screen_ && i > 0 ? "\r\n" : "";  // none behind the last line, which would move the first out of sight
    text += lines[i];
    text += screen_ ? "\x1b[K" : "\n";
  }
  text += screen_ ? "\x1b[J" : "";
  fmt::print("{}", text);
  std::fflush(stdout);
}

bool Terminal::wait(double seconds) {
  std::array<pollfd, 2> polled = {pollfd{signals_.get(), POLLIN, 0}, pollfd{keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
  if (::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(seconds * 1000))) <= 0) {
    return true;
  }
  signalfd_siginfo signal{};
  while (::read(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
    if (signal.ssi_signo != SIGWINCH) {
      return false;
    }
  }
  if (polled[1].revents != 0) {
    std::array<char, 64> keys{};
    const ssize_t size = ::read(STDIN_FILENO, keys.data(), keys.size());
    keys_ = size > 0;  // input that has ended is not looked at any more
    return std::string_view(keys.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))).find('q') == std::string_view::npos;
  }
  return true;
}

}  // namespace maypole::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a run that is under way takes orders from other terminals of its user: a local socket whose name is made from the user and the
// run. It lives as long as the launcher and leaves no file. A request and its answer are a line each:
//
//     resize MIN MAX        how many workers there should be, equal where one number is wanted
//     CODE TEXT             the exit code of the command that asked, and what it prints
//
// Whoever connects is asked for by the kernel: only the run's own user, or root, is heard.

#include "maypole/base/fd.h"
#include "maypole/base/units.h"
#include "maypole/cli/run_control.h"

#include <absl/status/statusor.h>
#include <poll.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace maypole::cli {

class ControlSocket final : public RunControl {
 public:
  /// kAlreadyExists: a run of this name is under way.
  [[nodiscard]] static absl::StatusOr<ControlSocket> open(const std::string& run);

  void add_to(std::vector<pollfd>& polled) const override;
  [[nodiscard]] std::size_t num_polled() const override { return 1 + guests_.size(); }
  /// Lines that mean nothing are answered here.
  [[nodiscard]] std::vector<Request> read_ready(const pollfd* results) override;
  void answer(std::uint64_t number, const absl::Status& status, const std::string& text) override;

 private:
  struct Guest {
    base::Fd fd;
    std::string line;
  };
  explicit ControlSocket(base::Fd listener) : listener_(std::move(listener)) {}
  void take_guest();

  base::Fd listener_;
  std::map<std::uint64_t, Guest> guests_;
  std::uint64_t next_number_ = 1;
};

struct ControlAnswer {
  int exit_code = 0;
  std::string text;
};
/// Sends `line` to the run and waits for its answer, however long that takes. kNotFound: there is no such run.
[[nodiscard]] absl::StatusOr<ControlAnswer> ask_run(const std::string& run, const std::string& line);

/// The runs of this user on this machine that take orders.
[[nodiscard]] std::vector<std::string> runs_here();

}  // namespace maypole::cli

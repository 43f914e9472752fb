// SPDX-License-Identifier: Apache-2.0
#pragma once

// `--launcher TEMPLATE`: how to start a program on a host, as `ssh {host} {command}`.

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace maypole::cli {

/// Splits by shell rules: blanks part words, single and double quotes and backslashes keep characters; nothing is expanded.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> split_words(std::string_view text);

/// Checks a template: it splits, and it says where the command goes.
[[nodiscard]] absl::Status check_launcher(std::string_view launcher);

/// Makes the argument list: `{host}` is replaced inside words; a word that is `{command}` becomes the command's words, and inside a
/// longer word it becomes them joined by blanks. `command` must hold only characters that no shell touches (see is_shell_safe).
[[nodiscard]] absl::StatusOr<std::vector<std::string>> expand_launcher(std::string_view launcher, std::string_view host,
                                                                       const std::vector<std::string>& command);

/// True when every character survives any shell unquoted; ssh joins words with blanks and gives them to the remote shell.
[[nodiscard]] bool is_shell_safe(std::string_view word);

/// The words as a person would type them, for messages.
[[nodiscard]] std::string quote_words(const std::vector<std::string>& words);

}  // namespace maypole::cli

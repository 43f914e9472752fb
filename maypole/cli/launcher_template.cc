// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/launcher_template.h"

#include "maypole/base/status.h"

#include <algorithm>
#include <cctype>

namespace maypole::cli {

namespace {

constexpr std::string_view kHost = "{host}";
constexpr std::string_view kCommand = "{command}";

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  while (true) {
    const std::size_t at = text.find(what);
    result += text.substr(0, at);
    if (at == std::string_view::npos) {
      return result;
    }
    result += with;
    text.remove_prefix(at + what.size());
  }
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : " ";
    text += word;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> split_words(std::string_view text) {
  enum class State { kBlank, kPlain, kSingle, kDouble };
  State state = State::kBlank;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (state == State::kBlank) {
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        continue;
      }
      words.emplace_back();
      state = State::kPlain;
    }
    const bool last = i + 1 == text.size();
    if (state == State::kSingle) {
      c == '\'' ? void(state = State::kPlain) : words.back().push_back(c);
    } else if (c == '\\') {
      if (last) {
        return base::error(absl::StatusCode::kInvalidArgument, "'{}' ends in a lone backslash", text);
      }
      const char next = text[++i];
      if (state == State::kDouble && std::string_view("\\\"$`").find(next) == std::string_view::npos) {
        words.back().push_back(c);
      }
      words.back().push_back(next);
    } else if (state == State::kDouble) {
      c == '"' ? void(state = State::kPlain) : words.back().push_back(c);
    } else if (c == '\'') {
      state = State::kSingle;
    } else if (c == '"') {
      state = State::kDouble;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      state = State::kBlank;
    } else {
      words.back().push_back(c);
    }
  }
  if (state == State::kSingle || state == State::kDouble) {
    return base::error(absl::StatusCode::kInvalidArgument, "'{}' has a {} quote that is not closed", text,
                       state == State::kSingle ? "single" : "double");
  }
  return words;
}

absl::Status check_launcher(std::string_view launcher) {
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<std::string> words, split_words(launcher));
  const bool has_command = std::ranges::any_of(words, [](const std::string& word) { return word.find(kCommand) != std::string::npos; });
  if (!has_command) {
    return base::error(absl::StatusCode::kInvalidArgument,
                       "'{}' has no {{command}}: write it where the program goes, as in `ssh {{host}} {{command}}`", launcher);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> expand_launcher(std::string_view launcher, std::string_view host,
                                                         const std::vector<std::string>& command) {
  MAYPOLE_RETURN_IF_ERROR(check_launcher(launcher));
  MAYPOLE_ASSIGN_OR_RETURN(const std::vector<std::string> words, split_words(launcher));
  std::vector<std::string> expanded;
  for (const std::string& word : words) {
    if (word == kCommand) {
      expanded.insert(expanded.end(), command.begin(), command.end());
    } else {
      expanded.push_back(replace_all(replace_all(word, kHost, host), kCommand, join(command)));
    }
  }
  return expanded;
}

bool is_shell_safe(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("/._-+,:@%").find(c) != std::string_view::npos;
  });
}

std::string quote_words(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    quoted.push_back(is_shell_safe(word) || word.find('=') != std::string::npos ? word
                                                                                : fmt::format("'{}'", replace_all(word, "'", "'\\''")));
  }
  return join(quoted);
}

}  // namespace maypole::cli

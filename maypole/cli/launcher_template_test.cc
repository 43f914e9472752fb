// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/launcher_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kAgent = {"/opt/maypole", "agent"};

std::vector<std::string> expand(std::string_view launcher) {
  auto words = expand_launcher(launcher, "s1", kAgent);
  EXPECT_TRUE(words.ok()) << words.status();
  return words.ok() ? *words : std::vector<std::string>{};
}

TEST(LauncherTemplate, SplitsByShellRules) {
  EXPECT_THAT(*split_words("a  b\tc"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(*split_words("a\\ b 'c d'\"e f\" \"\" ''"), ElementsAre("a b", "c de f", "", ""));
  EXPECT_THAT(*split_words(R"("a\"b\\c\d" 'e\f' g\"h)"), ElementsAre(R"(a"b\c\d)", R"(e\f)", R"(g"h)"));
  EXPECT_THAT(*split_words("$HOME * ~"), ElementsAre("$HOME", "*", "~"));
  EXPECT_THAT(*split_words("   "), ElementsAre());
}

TEST(LauncherTemplate, RefusesOpenQuotesAndLoneBackslashes) {
  EXPECT_THAT(std::string(split_words("a 'b").status().message()), HasSubstr("single quote"));
  EXPECT_THAT(std::string(split_words("a \"b").status().message()), HasSubstr("double quote"));
  EXPECT_THAT(std::string(split_words("a \\").status().message()), HasSubstr("backslash"));
}

TEST(LauncherTemplate, TurnsTheCommandIntoPlainWords) {
  EXPECT_THAT(expand("ssh {host} {command}"), ElementsAre("ssh", "s1", "/opt/maypole", "agent"));
  EXPECT_THAT(expand("nsenter --net=/run/netns/{host} {command}"), ElementsAre("nsenter", "--net=/run/netns/s1", "/opt/maypole", "agent"));
  EXPECT_THAT(expand("{command}"), ElementsAre("/opt/maypole", "agent"));
}

TEST(LauncherTemplate, JoinsTheCommandInsideALongerWord) {
  EXPECT_THAT(expand("ssh {host} 'cd /x && exec {command}'"), ElementsAre("ssh", "s1", "cd /x && exec /opt/maypole agent"));
}

TEST(LauncherTemplate, AsksForTheCommand) {
  EXPECT_THAT(std::string(check_launcher("ssh {host}").message()), HasSubstr("has no {command}"));
}

TEST(LauncherTemplate, KnowsWordsThatAShellWouldChange) {
  EXPECT_TRUE(is_shell_safe("/usr/lib/maypole-0.1/bin/maypole"));
  for (const char* word : {"", "a b", "a'b", "$a", "a*", "~a", "a;b", "a&b", "a(b)"}) {
    EXPECT_FALSE(is_shell_safe(word)) << word;
  }
}

}  // namespace
}  // namespace maypole::cli

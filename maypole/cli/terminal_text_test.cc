// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/terminal_text.h"

#include <gtest/gtest.h>

namespace maypole::cli {
namespace {

TEST(TerminalTextTest, ControlCharactersAreShownAndNotObeyed) {
  EXPECT_EQ(printable("a\x1b[2J\n\x7f"), "a?[2J??");
  EXPECT_EQ(printable("é\xc2\x9b"
                      "1m ü"),
            "é?1m ü")
      << "U+009B begins a sequence, too";
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

TEST(TerminalTextTest, ALineIsCutBetweenCharacters) {
  EXPECT_EQ(columns_of("äöü"), 3U);
  EXPECT_EQ(cut_to("äöü", 3), "äöü");
  EXPECT_EQ(cut_to("äöü", 2), "ä~");
  EXPECT_EQ(cut_to("abc", 1), "~");
  EXPECT_EQ(cut_to("abc", 0), "");
}

}  // namespace
}  // namespace maypole::cli

// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

namespace maypole::cli {
namespace {

const base::TimePoint kStart{};

TEST(LinePrinter, PutsTheRankBeforeEachWholeLine) {
  LinePrinter printer({.prefixes = true});
  EXPECT_EQ(printer.add(1, "one\ntwo\nthr", kStart), "[1] one\n[1] two\n");
  EXPECT_EQ(printer.add(0, "zero\n", kStart), "[0] zero\n");
  EXPECT_EQ(printer.add(1, "ee\n", kStart), "[1] three\n");
  EXPECT_EQ(printer.add(1, "\n", kStart), "[1] \n");
}

TEST(LinePrinter, EndsTheLastLineOfARank) {
  LinePrinter printer({.prefixes = true});
  EXPECT_EQ(printer.add(2, "no line end", kStart), "");
  EXPECT_EQ(printer.finish(2), "[2] no line end\n");
  EXPECT_EQ(printer.finish(2), "");
}

TEST(LinePrinter, LeavesTheBytesOfASingleWorkerAlone) {
  LinePrinter printer({.prefixes = false});
  EXPECT_EQ(printer.add(0, "a\nb", kStart), "a\nb");
  EXPECT_EQ(printer.finish(0), "");
}

TEST(LinePrinter, BoundsALongLine) {
  LinePrinter printer({.prefixes = true});
  std::string shown = printer.add(0, std::string(3 * LinePrinter::kMaxLineBytes + 5, 'x'), kStart);
  const std::string part = "[0] " + std::string(LinePrinter::kMaxLineBytes, 'x') + "\n";
  EXPECT_EQ(shown, part + part + part);
  EXPECT_EQ(printer.add(0, "\n", kStart), "[0] xxxxx\n");
}

TEST(LinePrinter, ShowsAnUnfinishedLineOnATerminalAfterAMomentAndGoesOnInIt) {
  LinePrinter printer({.prefixes = true, .terminal = true});
  EXPECT_EQ(printer.add(0, "loading", kStart), "");
  EXPECT_EQ(printer.late(kStart), "");
  ASSERT_TRUE(printer.next_due().has_value());
  EXPECT_EQ(printer.late(*printer.next_due()), "[0] loading");
  EXPECT_EQ(printer.next_due(), std::nullopt);
  EXPECT_EQ(printer.add(0, " done\n", kStart), " done\n");
}

TEST(LinePrinter, EndsAnUnfinishedLineBeforeAnotherRankSpeaks) {
  LinePrinter printer({.prefixes = true, .terminal = true});
  EXPECT_EQ(printer.add(0, "loading", kStart), "");
  EXPECT_EQ(printer.late(kStart + LinePrinter::kPatience), "[0] loading");
  EXPECT_EQ(printer.add(1, "hello\n", kStart), "\n[1] hello\n");
  EXPECT_EQ(printer.add(0, " done\n", kStart), "[0]  done\n");
}

TEST(LinePrinter, KeepsThePrefixWhenAProgressBarStartsItsLineAgain) {
  LinePrinter printer({.prefixes = true, .terminal = true});
  EXPECT_EQ(printer.add(0, "10 %\r20 %", kStart), "");
  EXPECT_EQ(printer.late(kStart + LinePrinter::kPatience), "[0] 10 %\r[0] 20 %");
  EXPECT_EQ(printer.add(0, "\r100 %\r\n", kStart), "\r[0] 100 %\n");
}

TEST(LinePrinter, LosesAndMixesNothingHoweverTheBytesAreCut) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    LinePrinter printer({.prefixes = true});
    std::map<int, std::string> written;
    std::string shown;
    for (int i = 0; i < 200; ++i) {
      const int rank = static_cast<int>(random() % 3);
      std::string piece;
      for (std::size_t length = random() % 12; piece.size() < length;) {
        piece.push_back(random() % 5 == 0 ? '\n' : static_cast<char>('a' + rank));
      }
      written[rank] += piece;
      shown += printer.add(rank, piece, kStart);
    }
    std::map<int, std::string> seen;
    for (const auto& [rank, text] : written) {
      shown += printer.finish(rank);
    }
    std::istringstream lines(shown);
    for (std::string line; std::getline(lines, line);) {
      ASSERT_EQ(line.substr(0, 1), "[");
      seen[line[1] - '0'] += line.substr(4) + "\n";
    }
    for (auto& [rank, text] : written) {
      text += !text.empty() && text.back() != '\n' ? "\n" : "";
      EXPECT_EQ(seen[rank], text);
    }
  }
}

TEST(Tail, KeepsTheLastLines) {
  Tail tail;
  EXPECT_EQ(tail.text(), "");
  for (int i = 0; i < 1000; ++i) {
    tail.add("line " + std::to_string(i) + "\n");
  }
  const std::string text = tail.text();
  EXPECT_TRUE(text.starts_with("line " + std::to_string(1000 - Tail::kMaxLines) + "\n"));
  EXPECT_TRUE(text.ends_with("\nline 999"));
}

TEST(Tail, GivesAShortTextWhole) {
  Tail tail;
  tail.add("one\ntwo");
  EXPECT_EQ(tail.text(), "one\ntwo");
  tail.add("\n\n");
  EXPECT_EQ(tail.text(), "one\ntwo");
}

}  // namespace
}  // namespace maypole::cli

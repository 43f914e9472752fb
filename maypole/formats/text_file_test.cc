// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/text_file.h"

#include "maypole/formats/reading_testing.h"

namespace maypole::formats {
namespace {

using ::testing::HasSubstr;

// `gzip -c` of "hello, world\n".
const std::string& packed() {
  static const std::string bytes(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xd7\x51\x28\xcf\x2f\xca\x49\xe1\x02\x00\x53\x74\x24\xf4\x0d\x00\x00"
      "\x00",
      33);
  return bytes;
}

TEST(TextFileTest, WhatIsWrittenIsRead) {
  const std::string path = ::testing::TempDir() + "/text";
  ASSERT_TRUE(write_text_file(path, "a\nb").ok());
  EXPECT_EQ(read_text_file(path).value(), "a\nb");
}

TEST(TextFileTest, UnpacksWhatGzipPacked) {
  EXPECT_EQ(decode_text(packed(), "a.gz").value(), "hello, world\n");
  EXPECT_EQ(decode_text(packed() + packed(), "a.gz").value(), "hello, world\nhello, world\n") << "several members in a row";
  const std::string path = ::testing::TempDir() + "/text.gz";
  ASSERT_TRUE(write_text_file(path, packed()).ok());
  EXPECT_EQ(read_text_file(path).value(), "hello, world\n");
}

TEST(TextFileTest, DamagedPackagesAreErrors) {
  for (std::size_t length = 2; length < packed().size(); ++length) {
    EXPECT_THAT(decode_text(packed().substr(0, length), "a.gz"), FailsWith("a.gz: its compressed part is damaged or cut off")) << length;
  }
  std::string flipped = packed();
  flipped[15] = static_cast<char>(flipped[15] ^ 1);
  EXPECT_THAT(decode_text(flipped, "a.gz"), FailsWith("a.gz: its compressed part is damaged"));
  EXPECT_THAT(decode_text(packed() + "rubbish", "a.gz"), FailsWith("a.gz: its compressed part is damaged"));
}

TEST(TextFileTest, TakesOffTheByteOrderMark) {
  EXPECT_EQ(decode_text("\xEF\xBB\xBF"
                        "a,b\n",
                        "a.csv")
                .value(),
            "a,b\n");
}

TEST(TextFileTest, OnlyUtf8IsText) {
  const std::string good = "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x99\x82 \xED\x9F\xBF \xF4\x8F\xBF\xBF";
  EXPECT_EQ(decode_text(good, "a.csv").value(), good);
  for (const std::string bad :
       {"\x80", "\xC3", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xFF", "\xE0\x9F\xBF"}) {
    EXPECT_THAT(decode_text("ok\nok " + bad + "\n", "a.csv"), FailsWith("a.csv:2: a byte 0x"));
  }
  EXPECT_THAT(decode_text(std::string("a\0b", 3), "a.csv"), FailsWith("a.csv:1: a byte 0x00 that is not text: save the file as UTF-8"));
}

TEST(TextFileTest, SaysWhyAFileCannotBeOpenedOrWritten) {
  EXPECT_THAT(read_text_file("nowhere/a"), FailsWith("nowhere/a: cannot be opened: No such file or directory"));
  EXPECT_THAT(read_text_file(::testing::TempDir()), FailsWith(": cannot be read: Is a directory"));
  const absl::Status unwritten = write_text_file("nowhere/a", "text");
  EXPECT_THAT(base::message(unwritten), HasSubstr("nowhere/a: cannot be written: No such file or directory"));
}

}  // namespace
}  // namespace maypole::formats

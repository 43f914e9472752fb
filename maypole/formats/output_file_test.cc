// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/output_file.h"

#include "maypole/formats/reading_testing.h"
#include "maypole/formats/text_file.h"

#include <sys/stat.h>

#include <filesystem>

namespace maypole::formats {
namespace {

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/output_file_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/out.json";
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  std::string folder_;
  std::string path_;
};

TEST_F(OutputFileTest, WhatStoodThereStaysUntilTheNewTextIsWhole) {
  ASSERT_TRUE(write_text_file(path_, "old").ok());
  auto file = OutputFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  file->write("new");
  EXPECT_EQ(read_text_file(path_).value(), "old");
  ASSERT_TRUE(file->close().ok());
  EXPECT_EQ(read_text_file(path_).value(), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, AFileThatIsNeverClosedLeavesNothing) {
  {
    auto file = OutputFile::open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    file->write(std::string(1 << 20, 'x'));
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFileTest, ALinkIsFollowedAndPermissionsAreKept) {
  ASSERT_TRUE(write_text_file(path_, "old").ok());
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  const std::string link = folder_ + "/link";
  std::filesystem::create_symlink("out.json", link);
  ASSERT_TRUE(write_text_file(link, "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_text_file(path_).value(), "new");
  struct stat state{};
  ASSERT_EQ(::stat(path_.c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777U, 0640U);
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsNamedBeforeAnythingIsDone) {
  EXPECT_THAT(OutputFile::open(folder_ + "/no/out"), model::FailsWith(folder_ + "/no/out: cannot be written: No such file or directory"));
  EXPECT_THAT(OutputFile::open(folder_), model::FailsWith(folder_ + ": cannot be written: Is a directory"));
}

TEST_F(OutputFileTest, AFullDiskIsAnErrorAtTheLatestAtTheEnd) {
  auto file = OutputFile::open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  file->write(std::string(1 << 20, 'x'));
  file->write("more");
  EXPECT_EQ(file->close().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace maypole::formats

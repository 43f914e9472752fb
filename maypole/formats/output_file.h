// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file that is there whole or not at all: what stood there before stays until close(), also when the program is killed before. Pipes
// and devices are written as they are.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace maypole::formats {

class OutputFile {
 public:
  /// Errors name the path: it may not be written, its folder is missing, it is a folder. Asked early, a long run is not lost in the end.
  [[nodiscard]] static absl::StatusOr<OutputFile> open(const std::string& path);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile() { discard(); }

  /// An error is kept for close().
  void write(std::string_view text);
  /// Puts the file in its place. A full disk may show only here; then nothing is there, and what stood before stays.
  [[nodiscard]] absl::Status close();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  OutputFile() = default;
  void discard();
  [[nodiscard]] absl::Status failure(int error_number) const;

  std::string path_;                            // as given
  std::string target_;                          // what stands there in the end, links followed; empty: written as it is
  std::string partial_;                         // the name of the file until then; empty where it has none
  std::unique_ptr<std::FILE, CloseFile> file_;  // null once closed
  int error_ = 0;
};

}  // namespace maypole::formats

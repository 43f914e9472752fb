// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whole files of text, compressed or not.

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace maypole::formats {

/// The file's text: unpacked where it is gzip (seen from its first bytes), without a byte-order mark. Errors name the file: it cannot
/// be read, its compressed part is damaged, it holds more than 4 GiB, or bytes that are not UTF-8 (with the line).
[[nodiscard]] absl::StatusOr<std::string> read_text_file(const std::string& path);
/// Writes the whole text, or leaves what was there (output_file.h); the error names the file and the reason.
[[nodiscard]] absl::Status write_text_file(const std::string& path, std::string_view text);

/// What read_text_file() does to the bytes of a file called `name`.
[[nodiscard]] absl::StatusOr<std::string> decode_text(std::string bytes, std::string_view name);

/// `file` of `folder/file`: what errors call it.
[[nodiscard]] std::string file_name(std::string_view path);
/// `folder` of `folder/file`; without one `.`.
[[nodiscard]] std::string folder_of(std::string_view path);

}  // namespace maypole::formats

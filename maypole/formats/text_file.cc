// SPDX-License-Identifier: Apache-2.0
#include "maypole/formats/text_file.h"

#include "maypole/base/status.h"
#include "maypole/formats/output_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace maypole::formats {

namespace {

using base::error;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr std::size_t kLargest = std::size_t{4} << 30U;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

absl::StatusOr<std::string> unpack(std::string_view packed, std::string_view name) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) {  // 15: the largest window; 16: a gzip header
    return error(absl::StatusCode::kResourceExhausted, "{}: no memory to unpack it", name);
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string text;
  std::array<char, 1 << 16> buffer;
  // zlib counts in 32 bits, so the input goes in by pieces.
  std::size_t given = 0;
  int state = Z_OK;
  while (true) {
    if (stream.avail_in == 0 && given < packed.size()) {
      const std::size_t piece = std::min<std::size_t>(packed.size() - given, std::size_t{1} << 30U);
      // zlib does not write through next_in; its interface is older than const.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + given));
      stream.avail_in = static_cast<uInt>(piece);
      given += piece;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = buffer.size();
    state = inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END) {
      return error(kInvalid, "{}: its compressed part is damaged or cut off: make the .gz again", name);
    }
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    if (text.size() > kLargest) {
      return error(kInvalid, "{}: holds more than 4 GiB of text: split it", name);
    }
    if (state == Z_STREAM_END) {
      if (stream.avail_in == 0 && given == packed.size()) {
        return text;
      }
      inflateReset(&stream);  // files may be several gzip members in a row
    }
  }
}

// Length of the UTF-8 character at `at`, or 0 where the bytes are none.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(at);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first >= 0xC2 && first <= 0xDF ? 2 : (first & 0xF0U) == 0xE0 ? 3 : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  const unsigned second = byte(at + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "." : std::string(path.substr(0, std::max<std::size_t>(slash, 1)));
}

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

absl::StatusOr<std::string> decode_text(std::string bytes, std::string_view name) {
  if (bytes.starts_with("\x1f\x8b")) {
    MAYPOLE_ASSIGN_OR_RETURN(bytes, unpack(bytes, name));
  }
  if (bytes.starts_with("\xEF\xBB\xBF")) {
    bytes.erase(0, 3);
  }
  std::size_t line = 1;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = character_length(bytes, at);
    if (length == 0 || bytes[at] == '\0') {
      return error(kInvalid, "{}:{}: a byte {:#04x} that is not text: save the file as UTF-8", name, line,
                   static_cast<unsigned char>(bytes[at]));
    }
    line += bytes[at] == '\n' ? 1 : 0;
    at += length;
  }
  return bytes;
}

absl::StatusOr<std::string> read_text_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    return base::errno_error(errno, "{}: cannot be opened", path);
  }
  std::string bytes;
  std::array<char, 1 << 16> buffer;
  std::size_t got = 0;
  while ((got = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    bytes.append(buffer.data(), got);
    if (bytes.size() > kLargest) {
      return error(kInvalid, "{}: holds more than 4 GiB: split it", path);
    }
  }
  if (std::ferror(file.get()) != 0) {
    return base::errno_error(errno, "{}: cannot be read", path);
  }
  return decode_text(std::move(bytes), file_name(path));
}

absl::Status write_text_file(const std::string& path, std::string_view text) {
  MAYPOLE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::open(path));
  file.write(text);
  return file.close();
}

}  // namespace maypole::formats

// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer: gives a target the files of a folder, and damaged copies of each, drawn from a fixed seed.
#include "maypole/base/rng.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  // NOLINT(readability-identifier-naming)

namespace {

constexpr int kDamagedCopies = 300;

int give(const std::string& text) { return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()); }

// Some bytes lost, doubled, or replaced by ones that matter to parsers.
std::string damaged(std::string text, maypole::base::Rng& rng) {
  static const std::string telling = "\"',:{}[]\n\r\t-+.e0919 #&*|>\\\x1f\x8b\xef\xbb\xbf\x80\xff";
  for (std::int64_t change = rng.uniform_int(1, 4); change > 0 && !text.empty(); --change) {
    const auto at = static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(text.size()) - 1));
    const auto length = static_cast<std::size_t>(rng.uniform_int(1, 8));
    switch (rng.uniform_int(0, 3)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(at, length));
        break;
      case 2:
        text[at] = telling[static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(telling.size()) - 1))];
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  int given = 0;
  for (int i = 1; i < argc; ++i) {
    std::set<std::string> paths;  // in an order that does not depend on the file system
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      paths.insert(entry.path().string());
    }
    for (const std::string& path : paths) {
      std::ifstream file(path, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      maypole::base::Rng rng(1, std::filesystem::path(path).filename().string());
      give(text);
      for (int copy = 0; copy < kDamagedCopies; ++copy) {
        give(damaged(text, rng));
      }
      ++given;
    }
  }
  std::printf("%d texts and %d damaged copies of each\n", given, kDamagedCopies);
  return given > 0 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// The measurements are read from a folder, so each input goes through a file.
#include "fuzzing.h"
#include "maypole/formats/pollux_measurements.h"

#include <unistd.h>

#include <filesystem>

namespace {

const std::string& folder() {
  static const std::string path = [] {
    const std::string made = std::filesystem::temp_directory_path().string() + "/maypole-fuzz-" + std::to_string(getpid());
    std::filesystem::create_directories(made);
    const std::string header = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n";
    MAYPOLE_CHECK(maypole::formats::write_text_file(made + "/scalability.csv", header).ok());
    MAYPOLE_CHECK(maypole::formats::write_text_file(made + "/validation-64.csv", "iteration\n10\n").ok());
    return made;
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT(readability-identifier-naming)
  using namespace maypole;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  MAYPOLE_CHECK(formats::write_text_file(folder() + "/placements.csv", bytes).ok());
  const auto measured = formats::read_pollux_measurements(folder());
  if (measured.ok()) {
    for (const double batch : {1.0, 64.0, 100000.0}) {
      MAYPOLE_CHECK_EQ(measured->samples(batch), 640);
      MAYPOLE_CHECK(measured->most_workers(batch) >= 1);
      for (const model::RatePoint& point : measured->rates(batch)) {
        MAYPOLE_CHECK(point.rate >= 0);
      }
    }
  }
  return 0;
}

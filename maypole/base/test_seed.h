// SPDX-License-Identifier: Apache-2.0
#pragma once

// The seed of a test that draws its cases. It is the same in every run, so what fails once fails again, and no run turns red by chance.
// MAYPOLE_TEST_SEED=N gives another one, MAYPOLE_TEST_SEED=random one that nobody has tried. Put it into a SCOPED_TRACE: a failure then
// says it.

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace maypole::base {

[[nodiscard]] inline std::uint32_t test_seed() {
  constexpr std::uint32_t kUsual = 20220201;
  const char* const wanted = std::getenv("MAYPOLE_TEST_SEED");
  if (wanted == nullptr) {
    return kUsual;
  }
  return std::string(wanted) == "random" ? std::random_device{}() : static_cast<std::uint32_t>(std::strtoul(wanted, nullptr, 10));
}

}  // namespace maypole::base

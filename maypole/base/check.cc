// SPDX-License-Identifier: Apache-2.0
#include "maypole/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace maypole::base {

void check_failed(const char* file, int line, std::string_view expression, std::string_view detail) {
  const std::string text = detail.empty() ? fmt::format("{}:{}: check failed: {}\n", file, line, expression)
                                          : fmt::format("{}:{}: check failed: {} ({})\n", file, line, expression, detail);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace maypole::base

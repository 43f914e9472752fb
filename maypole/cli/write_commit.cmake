# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a header with the commit of SOURCE_DIR, when that has changed. Runs at every build; without git it says "unknown".
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
endif()
set(text "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\nnamespace maypole::cli {\n\ninline constexpr const char* kCommit = \"${commit}\";\n\n}  // namespace maypole::cli\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()

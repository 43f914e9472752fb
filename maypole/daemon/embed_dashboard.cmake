# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a source with the bytes of FILES (names in SOURCE_DIR, separated by commas).
string(REPLACE "," ";" names "${FILES}")
set(arrays "")
set(table "")
foreach(name IN LISTS names)
  file(READ ${SOURCE_DIR}/${name} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${hex}")
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(MAKE_C_IDENTIFIER ${name} identifier)
  string(REGEX REPLACE "((\\\\x..)(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?(\\\\x..)?)" "\"\\1\"\n" lines "${bytes}")
  string(APPEND arrays "constexpr char k_${identifier}[] =\n${lines};\n")
  string(APPEND table "      {\"/${name}\", {k_${identifier}, ${length}}},\n")
endforeach()
file(WRITE ${OUTPUT} "// SPDX-License-Identifier: Apache-2.0
#include \"maypole/daemon/pages.h\"

namespace maypole::daemon {

namespace {

${arrays}
}  // namespace

const DashboardFile* dashboard_file(std::string_view path) {
  static constexpr DashboardFile kFiles[] = {
${table}  };
  for (const DashboardFile& file : kFiles) {
    if (file.path == path) {
      return &file;
    }
  }
  return nullptr;
}

}  // namespace maypole::daemon
")

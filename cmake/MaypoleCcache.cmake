# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache where it is present. The two settings make a clone in another folder hit the same cache entries.
if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  find_program(MAYPOLE_CCACHE ccache)
  mark_as_advanced(MAYPOLE_CCACHE)
  if(MAYPOLE_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${MAYPOLE_CCACHE})
  endif()
endif()

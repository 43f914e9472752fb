# SPDX-License-Identifier: Apache-2.0
# maypole_library(NAME HEADERS ... SOURCES ... DEPENDS ...) declares maypole_NAME (alias maypole::NAME).
# maypole_test(NAME SOURCES ... DEPENDS ...) declares a GoogleTest program that ctest runs.

add_library(maypole_flags INTERFACE)
target_compile_options(maypole_flags INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)

function(maypole_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(maypole_${name} STATIC ${ARG_SOURCES})
  add_library(maypole::${name} ALIAS maypole_${name})
  target_sources(maypole_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_include_directories(maypole_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(maypole_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:maypole_flags> ${ARG_PRIVATE})
  set_target_properties(maypole_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY MAYPOLE_LIBRARIES maypole_${name})
endfunction()

function(maypole_test name)
  if(NOT MAYPOLE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main maypole_flags)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# SPDX-License-Identifier: Apache-2.0
# maypole_library(NAME HEADERS ... SOURCES ... DEPENDS ... PRIVATE ...) declares maypole_NAME (alias maypole::NAME).
# maypole_test(NAME SOURCES ... DEPENDS ... [TIMEOUT s] [LABELS ...]) declares a GoogleTest program that ctest runs.
#
# Tests of net, comm and pipeline, where threads meet, get the label `sanitize`: `make test-sanitize` builds and runs those. Give one
# LABELS slow to leave it out there; give any other test LABELS sanitize to have it there too.

add_library(maypole_flags INTERFACE)
target_compile_options(maypole_flags INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)

# All that `ctest -L sanitize` needs.
add_custom_target(sanitize_tests)
# All headers that the build writes; clang-tidy needs them before it can read the sources.
add_custom_target(generated_headers)

function(maypole_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(maypole_${name} STATIC ${ARG_SOURCES})
  add_library(maypole::${name} ALIAS maypole_${name})
  target_sources(maypole_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_include_directories(maypole_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(maypole_${name} PUBLIC cxx_std_20)
  target_link_libraries(maypole_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:maypole_flags> ${ARG_PRIVATE})
  set_target_properties(maypole_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON EXPORT_NAME ${name})
  if(NOT name MATCHES "^(cli|daemon)$")  # the program's own insides are not part of the installed package
    set_property(GLOBAL APPEND PROPERTY MAYPOLE_LIBRARIES maypole_${name})
  endif()
endfunction()

function(maypole_test name)
  if(NOT MAYPOLE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")  # ThreadSanitizer makes a test ten times slower
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  if(folder MATCHES "^(net|comm|pipeline)$" AND NOT "slow" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS sanitize)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main maypole_flags)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if("sanitize" IN_LIST ARG_LABELS)
    add_dependencies(sanitize_tests ${name})
  endif()
endfunction()

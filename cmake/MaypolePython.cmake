# SPDX-License-Identifier: Apache-2.0
# Builds the extension module maypole._core (python/bindings). In a source tree it lands beside the Python files, so that the
# package of the tree can be imported as it is; `pip install .` (SKBUILD is set) installs it into the wheel instead.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "MAYPOLE_PYTHON needs nanobind in ${Python_EXECUTABLE}: run tools/setup.sh build, or pass -DPython_EXECUTABLE=.venv/bin/python")
endif()
find_package(nanobind CONFIG REQUIRED)

if(NOT SKBUILD)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/maypole)
endif()
add_subdirectory(python/bindings)
install(TARGETS _core LIBRARY DESTINATION maypole COMPONENT python EXCLUDE_FROM_ALL)
if(SKBUILD)
  install(TARGETS maypole RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python EXCLUDE_FROM_ALL)
endif()

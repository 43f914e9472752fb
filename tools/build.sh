#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures where needed and builds: build/maypole, the tests, and the extension module in python/maypole. Two jobs at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
# Ninja runs CMake again by itself when a CMake file changed; a new preset file or a new environment asks for it here.
if [ ! -e build/build.ninja ] || [ CMakePresets.json -nt build/build.ninja ] ||
  ! grep -q '^MAYPOLE_PYTHON:BOOL=ON' build/CMakeCache.txt; then
  cmake --preset python -Wno-dev >/dev/null
fi
cmake --build --preset python

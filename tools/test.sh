#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the C++ tests (ctest) and the Python tests (pytest) of a finished build; both run even when the first fails.
# The last lines are both runners' own summaries. Arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/logs
status=0

ctest --preset release 2>&1 | tee build/logs/ctest.log
status=$((status | PIPESTATUS[0]))

folders=()
for folder in tests python/tests; do
  [ -d "$folder" ] && folders+=("$folder")
done
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pytest -ra --durations=5 "${folders[@]}" "$@" 2>&1 | tee build/logs/pytest.log
status=$((status | PIPESTATUS[0]))

echo
tools/summary.sh build/logs/ctest.log build/logs/pytest.log
exit $((status != 0))

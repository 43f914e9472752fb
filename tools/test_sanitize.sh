#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tests labelled `sanitize` with AddressSanitizer + UndefinedBehaviorSanitizer, then with ThreadSanitizer, and runs them.
set -uo pipefail
cd "$(dirname "$0")/.."
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1"
status=0
logs=()
for preset in asan tsan; do
  echo "== $preset"
  [ "build-$preset/build.ninja" -nt CMakePresets.json ] || cmake --preset "$preset" -Wno-dev >/dev/null || exit 1
  cmake --build --preset "$preset" || exit 1
  ctest --preset "$preset" 2>&1 | tee "build-$preset/ctest.log"
  status=$((status | PIPESTATUS[0]))
  logs+=("build-$preset/ctest.log")
done
echo
tools/summary.sh "${logs[@]}"
exit $((status != 0))

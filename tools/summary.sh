#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints again the closing line of each runner (ctest, pytest) in the given logs, as the runner wrote it.
for log in "$@"; do
  line=$(grep -E '^[0-9]+% tests passed|^=* ?[0-9]+ (passed|failed|error|skipped).* in [0-9.]+s|^=* ?no tests ran|^No tests were found' "$log" 2>/dev/null | tail -n 1)
  echo "${line:-$log: the runner wrote no summary}"
done

# SPDX-License-Identifier: Apache-2.0
"""No source file grows over 500 lines, unless it is listed here with a reason."""

from __future__ import annotations

from pathlib import Path

import tree

LIMIT = 500
SUFFIXES = (".h", ".cc", ".py", ".pyi", ".sh", ".cmake", "CMakeLists.txt")
# path: why it is longer. A file that is back under the limit must leave the list.
LONGER: dict[str, str] = {}


def check(root: Path, longer: dict[str, str]) -> list[str]:
    sizes = {str(path): len(tree.lines(root, path)) for path in tree.files(root, *SUFFIXES)}
    problems = [
        f"{path}: {size} lines, over {LIMIT}: split it by idea, or list it in tools/check_limits.py with the reason"
        for path, size in sizes.items()
        if size > LIMIT and not longer.get(path)
    ]
    problems += [
        f"{path}: is listed in tools/check_limits.py, but has {sizes.get(path, 0)} lines: remove it there"
        for path in longer
        if sizes.get(path, 0) <= LIMIT
    ]
    return problems


if __name__ == "__main__":
    root = tree.root_from_arguments()
    raise SystemExit(tree.report("limits", check(root, LONGER), f"no source file over {LIMIT} lines"))

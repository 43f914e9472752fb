# SPDX-License-Identifier: Apache-2.0
"""Includes go one way: which library may include which, over the #include lines of the tree.

Tests and benchmarks beside the code, and the folders tests, benchmarks and examples, may include anything.
"""

from __future__ import annotations

import re
from pathlib import Path

import tree

# A library may include itself and these; an entry with a slash allows one header only.
COMM_INTERFACE = {"comm/communicator.h", "comm/connections.h", "comm/work.h"}
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "net": {"base"},
    "model": {"base"},
    "formats": {"base", "model"},
    "comm": {"base", "net", "model"},
    "overlap": {"base", "model"},
    "pipeline": {"base", "comm", "model", "formats", "overlap"},
    "elastic": {"base", "net", "comm", "model", "overlap", "pipeline"},
    "lp": {"base"},
    "sched": {"base", "model", "lp", "overlap"},
    "sim": {"base", "model", "formats", "overlap", "sched"},
    "daemon": {"base", "net", "model", "formats", "sched"},
    "cli": {"base", "net", "model", "formats", "overlap", "pipeline", "elastic", "lp", "sched", "sim", "daemon"} | COMM_INTERFACE,
    "bindings": {"base", "comm", "model", "overlap", "pipeline", "elastic"},
}
# Slow to compile, and outside our borders: never in a header of ours.
HEAVY = re.compile(r"<(nlohmann/json\.hpp|CLI/.*|Eigen/.*|httplib\.h|yaml-cpp/.*|torch/.*)>")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')


def library_of(path: Path) -> str | None:
    if path.parts[0] == "maypole" and len(path.parts) > 2:
        return path.parts[1]
    return "bindings" if path.parts[:2] == ("python", "bindings") else None


def check(root: Path) -> list[str]:
    problems = []
    for path in tree.files(root, ".h", ".cc"):
        library = library_of(path)
        free = library is None or path.stem.endswith(("_test", "_bench"))
        if library is not None and library not in ALLOWED:
            problems.append(f"{path}: library '{library}' is not in the table of tools/check_includes.py: add it with what it may include")
            continue
        for number, line in enumerate(tree.lines(root, path), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            where, bracket, name = f"{path}:{number}", found[1], found[2]
            if path.suffix == ".h" and not free and HEAVY.match(f"<{name}>"):
                problems.append(f"{where}: <{name}> in a header: keep it in one .cc behind an interface of ours")
            if not name.startswith("maypole/"):
                continue
            if bracket == "<":
                problems.append(f'{where}: write "{name}" in quotes: it is ours')
            inner = name.removeprefix("maypole/")
            target = inner.split("/")[0]
            if not free and target != library and target not in ALLOWED[library] and inner not in ALLOWED[library]:
                allowed = ", ".join(sorted(ALLOWED[library])) or "nothing"
                problems.append(f"{where}: {library} may not include {name}: it may include {allowed}")
    return problems


if __name__ == "__main__":
    root = tree.root_from_arguments()
    raise SystemExit(tree.report("includes", check(root), f"{len(tree.files(root, '.h', '.cc'))} files keep the layers"))

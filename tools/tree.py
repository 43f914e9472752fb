# SPDX-License-Identifier: Apache-2.0
"""The files that the checks read: what git tracks or would track, seen from the root of a tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files(root: Path, *suffixes: str) -> list[Path]:
    """Paths relative to `root` that end in one of `suffixes` (all files when none is given), in order."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    paths = sorted({Path(name) for name in listed if name})
    return [path for path in paths if (not suffixes or path.name.endswith(suffixes)) and (root / path).is_file()]


def lines(root: Path, path: Path) -> list[str]:
    return (root / path).read_text(encoding="utf-8", errors="replace").splitlines()


def report(name: str, problems: list[str], good: str) -> int:
    """Prints one line a problem, or one line that says what was checked; returns the exit code."""
    for problem in problems:
        print(problem)
    print(f"{name}: {len(problems)} problems" if problems else f"{name}: {good}")
    return 1 if problems else 0


def root_from_arguments() -> Path:
    """A checker takes the root of another tree as its only argument; its own tree otherwise."""
    return Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT

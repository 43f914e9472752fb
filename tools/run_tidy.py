# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on every tracked .cc file, two at a time, and remembers clean results by content.

Usage: run_tidy.py BUILD_FOLDER [FILE...]. The key of a result covers the file, all headers of ours that it reaches, its compile
command, .clang-tidy and the version of clang-tidy, so a second run takes a second. A file that no target compiles is a problem.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import tree

TIDY = "clang-tidy-19"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


class Hasher:
    """Digests of files together with all headers of the tree that they include."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._direct = functools.cache(self._read)

    def _read(self, path: Path) -> tuple[str, tuple[Path, ...]]:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = []
        for name in INCLUDE.findall(text):
            for candidate in (self._root / name, path.parent / name):
                if candidate.is_file():
                    found.append(candidate.resolve())
                    break
        return hashlib.sha256(text.encode()).hexdigest(), tuple(found)

    def digest(self, path: Path) -> str:
        reached, waiting = {}, [path]
        while waiting:
            current = waiting.pop()
            if current not in reached:
                reached[current], more = self._direct(current)
                waiting.extend(more)
        return hashlib.sha256("".join(reached[key] for key in sorted(reached)).encode()).hexdigest()


def compile_commands(build: Path) -> dict[Path, str]:
    entries = json.loads((build / "compile_commands.json").read_text())
    return {Path(entry["file"]): entry.get("command", "") for entry in entries}


def tidy(build: Path, path: Path) -> tuple[Path, int, str]:
    ended = subprocess.run([TIDY, "-p", str(build), "--quiet", str(path)], capture_output=True, text=True)
    noise = re.compile(r"^\d+ warnings? (generated|treated as errors?)\.?$|^Suppressed |^Use -header-filter|^Error while processing")
    text = "\n".join(line for line in (ended.stdout + ended.stderr).splitlines() if not noise.match(line))
    return path, ended.returncode, text


def main(root: Path, build: Path, only: list[str]) -> int:
    if not (build / "compile_commands.json").is_file():
        print(f"tidy: {build}/compile_commands.json is missing: run cmake --preset tidy first")
        return 1
    commands = compile_commands(build)
    setup = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout + (root / ".clang-tidy").read_text()
    cache = build / "tidy-cache"
    cache.mkdir(exist_ok=True)
    hasher = Hasher(root)
    problems = 0
    keys: dict[Path, Path] = {}
    sources = [root / path for path in tree.files(root, ".cc") if not only or str(path) in only]
    for path in sources:
        if path not in commands:
            print(f"{path.relative_to(root)}: no CMake target compiles this file: add it to one, or remove it")
            problems += 1
            continue
        key = cache / hashlib.sha256((setup + commands[path] + hasher.digest(path)).encode()).hexdigest()
        if not key.exists():
            keys[path] = key
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(tidy, build, path) for path in keys]
        for done, future in enumerate(as_completed(running), 1):
            path, code, text = future.result()
            print(f"tidy [{done}/{len(keys)}] {path.relative_to(root)}{'' if code == 0 else ': FAILED'}", flush=True)
            if code == 0:
                keys[path].touch()
            else:
                problems += 1
                print(text.replace(f"{root}/", ""), flush=True)
    print(f"tidy: {problems} files with problems" if problems else f"tidy: {len(sources)} files clean, {len(keys)} of them checked now")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(tree.ROOT, Path(sys.argv[1]).resolve(), sys.argv[2:]))

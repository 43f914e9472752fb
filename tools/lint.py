# SPDX-License-Identifier: Apache-2.0
"""`make lint`: every check of the sources that needs no run of the product. Runs all, and fails if any failed.

format    clang-format (repair: tools/lint.py --fix)
includes  the layers                          limits   the length of files        text   licence lines, paths of one machine
ruff      Python
headers   every public header compiles alone, with clang and -Wthread-safety
tidy      clang-tidy by .clang-tidy, results kept by content
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tree

BUILD = tree.ROOT / "build-tidy"


def run(*command: str) -> bool:
    return subprocess.run(command, cwd=tree.ROOT).returncode == 0


def check_format(fix: bool) -> bool:
    sources = [str(path) for path in tree.files(tree.ROOT, ".h", ".cc")]
    if fix:
        return run("clang-format-19", "-i", *sources)
    found = subprocess.run(["clang-format-19", "--dry-run", *sources], cwd=tree.ROOT, capture_output=True, text=True)
    first = {line.split(":")[0]: line for line in reversed(found.stderr.splitlines()) if "[-Wclang-format" in line}
    for name in sorted(first):
        print(f"{':'.join(first[name].split(':')[:2])}: not as clang-format writes it: run tools/lint.py --fix")
    return found.returncode == 0 and not first


def check_ruff(fix: bool) -> bool:
    ruff = str(Path(sys.executable).parent / "ruff")
    return run(ruff, "check", "--quiet", *(["--fix"] if fix else []), ".")


def check_headers() -> bool:
    configured = BUILD / "build.ninja"
    if not configured.exists() or configured.stat().st_mtime < (tree.ROOT / "CMakePresets.json").stat().st_mtime:
        ended = subprocess.run(["cmake", "--preset", "tidy", "-Wno-dev"], cwd=tree.ROOT, capture_output=True, text=True)
        if ended.returncode != 0:
            print(ended.stdout + ended.stderr)
            return False
    return run("cmake", "--build", "--preset", "tidy", "--", "-k", "0")  # every header that fails, and what tidy needs in any case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="let clang-format and ruff repair what they can")
    fix = parser.parse_args().fix
    checks: dict[str, Callable[[], bool]] = {
        "format": lambda: check_format(fix),
        "includes": lambda: run(sys.executable, "tools/check_includes.py"),
        "limits": lambda: run(sys.executable, "tools/check_limits.py"),
        "text": lambda: run(sys.executable, "tools/check_text.py"),
        "ruff": lambda: check_ruff(fix),
        "headers": check_headers,
        "tidy": lambda: run(sys.executable, "tools/run_tidy.py", str(BUILD)),
    }
    failed = []
    for name, check in checks.items():
        begin = time.monotonic()
        print(f"== {name}", flush=True)
        good = check()
        print(f"== {name}: {'good' if good else 'FAILED'} ({time.monotonic() - begin:.1f} s)", flush=True)
        failed += [] if good else [name]
    print(f"lint: {', '.join(failed)} failed" if failed else f"lint: all {len(checks)} checks are good")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

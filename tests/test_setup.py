# SPDX-License-Identifier: Apache-2.0
"""tools/setup.sh says what to do where it may not do it, and costs nothing when all is there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def setup(*parts: str, shims: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if shims:
        environment["PATH"] = f"{shims}:{environment['PATH']}"
    return subprocess.run([ROOT / "tools/setup.sh", *parts], env=environment, capture_output=True, text=True)


def shim(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_without_root_one_line_names_the_command_that_installs_what_is_missing(tmp_path: Path) -> None:
    shim(tmp_path, "dpkg-query", "echo 'cmake installed'; echo 'g++ config-files'")
    shim(tmp_path, "id", "echo 1000")
    ended = setup("build", shims=tmp_path)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "sudo apt-get install g++ " in ended.stderr
    assert " cmake" not in ended.stderr


def test_a_tree_that_is_set_up_is_left_alone_and_nothing_is_said() -> None:
    ended = setup("build")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_an_unknown_part_is_wrong_use() -> None:
    ended = setup("everything")
    assert ended.returncode == 2
    assert "unknown part 'everything': give build, lint, bench or browser" in ended.stderr

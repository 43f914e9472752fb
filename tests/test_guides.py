# SPDX-License-Identifier: Apache-2.0
"""The pages for readers (docs/guide-*.md): their files are written down as they stand, and their commands run, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running import LIMIT_S, PROGRAM, need_program

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDES = sorted(path.name for path in (ROOT / "docs").glob("guide-*.md"))


def blocks(guide: str) -> list[tuple[str, str, str]]:
    """(kind, file name, text) of each fenced block."""
    return BLOCK.findall((ROOT / "docs" / guide).read_text(encoding="utf-8"))


OWN_POLICY = PROGRAM.parent / "maypole_narrow"


def argv(line: str) -> list[str]:
    words = shlex.split(line)
    programs = {"maypole": PROGRAM, "maypole_narrow": OWN_POLICY, "torchrun": Path(sys.executable).parent / "torchrun"}
    words[0] = str(programs.get(words[0], words[0]))
    return [sys.executable if word == "python3" else word for word in words]


def run(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """The script from which a reader comes uses PyTorch alone, and its end aborts now and then: torch.optim imports dynamo while there is a
    process group, which then outlives destroy_process_group() with gloo's threads. That script, and only for this, is tried again."""
    for _ in range(4):
        done = subprocess.run(argv(line), cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode == 0 or "ddp.py" not in line or "terminate called without an active exception" not in done.stderr:
            break
    return done


@pytest.mark.parametrize("guide", GUIDES)
def test_the_files_and_commands_of_a_guide_work_in_the_order_of_the_page(guide, tmp_path):
    need_program()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MAYPOLE_DATA_DIR": str(tmp_path / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), environment.get("PYTHONPATH", "")])
    background = []
    ran = 0
    try:
        for kind, name, text in blocks(guide):
            if name:
                (tmp_path / name).write_text(text, encoding="utf-8")
            elif kind == "sh":
                for line in text.splitlines():
                    if line.endswith("&"):
                        background.append(
                            subprocess.Popen(argv(line.removesuffix("&")), cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
                        )
                        continue
                    done = run(line, tmp_path, environment)
                    assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
                    ran += 1
    finally:
        for process in background:
            if process.poll() is None:
                process.terminate()
            process.wait(LIMIT_S)
    assert ran > 0


def test_the_policy_on_the_page_is_the_one_that_is_built():
    (shown,) = [text for _, name, text in blocks("guide-research.md") if name == "own_policy.cc"]
    assert shown == (ROOT / "examples" / "own_policy.cc").read_text(encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""Each check of `make lint` finds what it is for, and passes what is good."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path / "maypole/base/status.h", SPDX + "#pragma once\n")
    write(tmp_path / "maypole/comm/communicator.h", SPDX + '#include "maypole/base/status.h"\n')
    write(tmp_path / "maypole/comm/ring_plan.h", SPDX)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(checker: str, root: Path) -> tuple[int, str]:
    ended = subprocess.run([sys.executable, str(ROOT / "tools" / checker), str(root)], capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def test_help_says_what_is_checked_and_checks_nothing() -> None:
    code, text = run("lint.py", Path("--help"))
    assert code == 0
    assert "--fix" in text and "clang-tidy" in text and "== format" not in text


def test_includes_accept_a_tree_that_keeps_the_layers(tree: Path) -> None:
    assert run("check_includes.py", tree) == (0, "includes: 3 files keep the layers\n")


@pytest.mark.parametrize(
    ("path", "line", "complaint"),
    [
        ("maypole/base/fd.cc", '#include "maypole/comm/communicator.h"', "base may not include maypole/comm/communicator.h"),
        ("maypole/net/socket.h", '#include "maypole/comm/communicator.h"', "net may not include maypole/comm/communicator.h"),
        ("maypole/cli/run.cc", '#include "maypole/comm/ring_plan.h"', "cli may not include maypole/comm/ring_plan.h"),
        ("maypole/comm/work.h", "#include <maypole/base/status.h>", "in quotes"),
        ("maypole/comm/work.h", "#include <nlohmann/json.hpp>", "<nlohmann/json.hpp> in a header"),
        ("maypole/misc/thing.h", "", "library 'misc' is not in the table"),
    ],
)
def test_includes_refuse(tree: Path, path: str, line: str, complaint: str) -> None:
    write(tree / path, SPDX + line + "\n")
    code, text = run("check_includes.py", tree)
    assert code == 1
    assert complaint in text


@pytest.mark.parametrize("path", ["maypole/base/fd_test.cc", "tests/whole_test.cc", "benchmarks/ring.cc"])
def test_includes_let_tests_and_benchmarks_see_everything(tree: Path, path: str) -> None:
    write(tree / path, SPDX + '#include "maypole/comm/communicator.h"\n')
    assert run("check_includes.py", tree)[0] == 0


def test_limits_refuse_a_file_of_501_lines_and_accept_500(tree: Path) -> None:
    write(tree / "maypole/base/long.cc", "int x;\n" * 500)
    assert run("check_limits.py", tree)[0] == 0
    write(tree / "maypole/base/long.cc", "int x;\n" * 501)
    code, text = run("check_limits.py", tree)
    assert code == 1
    assert "maypole/base/long.cc: 501 lines" in text


def test_text_refuses_a_source_without_its_licence_line(tree: Path) -> None:
    write(tree / "tools/run.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n")
    assert run("check_text.py", tree)[0] == 0
    write(tree / "maypole/base/fd.h", "#pragma once\n")
    code, text = run("check_text.py", tree)
    assert code == 1
    assert "maypole/base/fd.h:1: begin with '// SPDX" in text


@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_text_refuses_a_path_of_one_machine(tree: Path, folder: str) -> None:
    write(tree / "docs/x.md", f"comm/{folder}.h and {folder}/ are fine, ~/{folder} too\n")
    assert run("check_text.py", tree)[0] == 0
    write(tree / "docs/x.md", f"see /{folder}/someone/x\n")
    code, text = run("check_text.py", tree)
    assert code == 1
    assert "docs/x.md:1" in text


def test_text_refuses_a_link_that_leads_nowhere(tree: Path) -> None:
    write(tree / "docs/x.md", "[a](../maypole/base/status.h) [b](https://example.org/none) [c](#part)\n")
    assert run("check_text.py", tree)[0] == 0
    write(tree / "docs/x.md", "\n![d](gone.svg)\n")
    code, text = run("check_text.py", tree)
    assert code == 1
    assert "docs/x.md:2: the link leads to gone.svg" in text


@pytest.mark.skipif(shutil.which("clang-tidy-19") is None, reason="clang-tidy-19 comes with `make lint`")
def test_tidy_finds_a_wrong_name_and_a_lock_not_held_and_remembers_what_is_clean(tree: Path) -> None:
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".clang-tidy", tree)
    source = tree / "maypole/base/counter.cc"
    good = SPDX + "namespace maypole::base {\nint next_count(int count) {\n  return count + 1;\n}\n}  // namespace maypole::base\n"
    locks = """
struct __attribute__((capability("mutex"))) Mutex {};
struct Counter {
  Mutex mutex;
  int value __attribute__((guarded_by(mutex))) = 0;
  int next() { return value++; }
};
"""
    command = f"clang++-19 -std=c++20 -Wthread-safety -c {source}"
    write(tree / "build/compile_commands.json", f'[{{"directory": "{tree}", "file": "{source}", "command": "{command}"}}]')

    def tidy(text: str) -> tuple[int, str]:
        write(source, text)
        ended = subprocess.run([sys.executable, "tools/run_tidy.py", "build"], cwd=tree, capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr

    code, text = tidy(good.replace("next_count", "NextCount"))
    assert code == 1
    assert "readability-identifier-naming" in text
    code, text = tidy(good + locks)
    assert code == 1
    assert "-Wthread-safety" in text or "thread-safety" in text
    assert tidy(good) == (0, "tidy [1/1] maypole/base/counter.cc\ntidy: 1 files clean, 1 of them checked now\n")
    assert tidy(good) == (0, "tidy: 1 files clean, 0 of them checked now\n")
    write(tree / "maypole/base/orphan.cc", SPDX)
    code, text = tidy(good)
    assert code == 1
    assert "maypole/base/orphan.cc: no CMake target compiles this file" in text


def test_the_closing_lines_of_both_runners_are_printed_again(tmp_path: Path) -> None:
    ctest, pytest_log, broken = tmp_path / "ctest.log", tmp_path / "pytest.log", tmp_path / "broken.log"
    ctest.write_text("1/1 Test #1: a ... Passed\n\n100% tests passed, 0 tests failed out of 1\n\nTotal Test time (real) =   0.01 sec\n")
    pytest_log.write_text("....\n======= 4 passed in 0.10s =======\n")
    broken.write_text("Segmentation fault\n")
    ended = subprocess.run([ROOT / "tools/summary.sh", ctest, pytest_log, broken], capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        "100% tests passed, 0 tests failed out of 1",
        "======= 4 passed in 0.10s =======",
        f"{broken}: the runner wrote no summary",
    ]

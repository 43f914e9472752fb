# SPDX-License-Identifier: Apache-2.0
"""`pip install .` gives a user what the source tree gives: the package, the extension module and the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The first run compiles everything once more where ccache is missing.
pytestmark = pytest.mark.timeout(1500)

ROOT = Path(__file__).resolve().parent.parent


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    ended = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built beside the tree's own build (at the same depth, so that ccache hits) and unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--config-settings", f"build-dir={ROOT}/build-wheel", "-w", folder]
    run(*pip, *build, ROOT, CMAKE_BUILD_PARALLEL_LEVEL="2", CXX="c++")
    (wheel,) = folder.glob("maypole-*.whl")
    run(*pip, "install", "--no-deps", "--target", folder / "site", wheel)
    return folder / "site"


def test_the_wheel_holds_every_python_file_of_the_package_and_one_extension_module(installed: Path) -> None:
    tracked = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "python/maypole").split()
    wanted = {name.removeprefix("python/") for name in tracked}
    found = {str(path.relative_to(installed)) for path in (installed / "maypole").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    extensions = {name for name in found if name.endswith(".so")}
    assert len(extensions) == 1
    assert found - extensions == wanted


def test_the_installed_package_imports_and_its_program_runs(installed: Path, tmp_path: Path) -> None:
    # -S leaves out this environment's own site-packages with their path file; torch comes back by PYTHONPATH, after the package.
    torch_folder = run(sys.executable, "-c", "import torch, pathlib; print(pathlib.Path(torch.__file__).parent.parent)").strip()
    where = run(
        sys.executable, "-S", "-c", "import maypole.torch; print(maypole.__file__)", cwd=tmp_path, PYTHONPATH=f"{installed}:{torch_folder}"
    ).strip()
    assert Path(where).is_relative_to(installed)
    assert "usage" in run(installed / "bin/maypole", "--help").lower()

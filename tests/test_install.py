# SPDX-License-Identifier: Apache-2.0
"""An installed Maypole is found and linked by somebody else's CMake project."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(Consumer LANGUAGES CXX)
find_package(Maypole 0.1 REQUIRED)
add_executable(consumer main.cc)
target_link_libraries(consumer PRIVATE maypole::pipeline)
"""

MAIN = """
#include "maypole/comm/ring_communicator.h"
#include "maypole/pipeline/engine.h"

#include <iostream>

int main() {
  auto ring = maypole::comm::make_inproc_ring(1, maypole::comm::InprocKind::kSharedMemory);
  auto engine = maypole::pipeline::Engine::create(std::move(ring->front()), {});
  const auto model = (*engine)->add_model({{.name = "weight", .count = 7}}, {});
  std::cout << (*engine)->communicator().num_ranks() << " " << (*engine)->parameter(*model, 0).size() << "\\n";
  return (*engine)->finalize().ok() ? 0 : 1;
}
"""


def run(*command: object, cwd: Path = ROOT) -> str:
    ended = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_project_of_ten_lines_builds_against_the_installed_package(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    run("cmake", "--install", ROOT / "build", "--prefix", prefix, "--component", "development")
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "CMakeLists.txt").write_text(PROJECT)
    (consumer / "main.cc").write_text(MAIN)
    run("cmake", "-S", consumer, "-B", consumer / "build", "-GNinja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", consumer / "build")
    assert run(consumer / "build/consumer") == "1 28\n"

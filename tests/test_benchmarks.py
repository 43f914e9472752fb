# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmarks and the demonstration that can be wrong without anyone seeing it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import bench_collectives, bench_training, fabric  # noqa: E402

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def load_example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def namespaces() -> set[str]:
    return {path.name for path in fabric.NETNS.glob(f"{fabric.PREFIX}-*")} if fabric.NETNS.exists() else set()


def test_link_names_give_rate_and_delay():
    assert fabric.parse_link("1gbit-5ms") == fabric.Link(1_000_000_000, 0.005)
    assert fabric.parse_link("300mbit").rate == 300_000_000
    with pytest.raises(ValueError, match="fast"):
        fabric.parse_link("fast")


@needs_root
def test_two_fabrics_live_side_by_side_and_leave_nothing():
    before = namespaces()
    with fabric.Fabric(2, "unshaped") as one, fabric.Fabric(2, "100mbit") as two:
        assert not set(one.hosts) & set(two.hosts)
        assert set(one.hosts) | set(two.hosts) <= namespaces()
        shown = two.run(1, ["ip", "-4", "addr", "show", "eth0"], capture_output=True).stdout
        assert two.addresses[1] in shown
    assert not (namespaces() - before) & set(one.hosts + two.hosts)


@needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_nothing_after_the_next_one(number):
    program = (
        "import sys; from benchmarks.fabric import Fabric\nwith Fabric(2, 'unshaped') as f: print(f.hosts[0], flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    host = process.stdout.readline().strip()
    assert host in namespaces()
    process.send_signal(number)
    process.wait(timeout=30)
    process.stdin.close()
    process.stdout.close()
    if number == signal.SIGTERM:
        assert host not in namespaces()
    fabric.remove_leftovers()
    assert host not in namespaces()


def test_the_bound_of_a_half_is_half_of_an_all_reduce():
    whole = bench_collectives.bound("all_reduce", 1000, 4, 100.0)
    assert whole == pytest.approx(15.0)
    assert bench_collectives.bound("all_gather", 1000, 4, 100.0) == pytest.approx(whole / 2)


def test_training_goals_compare_weave_with_the_best_ddp_where_compute_and_communication_balance():
    def row(time):
        return {"iteration_s": time, "bound_s": 1.0, "bound_loaded_s": 1.0}

    peers = {"ddp-1": row(1.4), "ddp-25": row(1.6), "maypole-dear": row(1.2), "maypole-weave": row(1.05), "maypole-weave-bf16": row(0.6)}
    balanced = bench_training.goals("500mbit", 1.0, peers)
    assert all(line.startswith("met") for line in balanced)
    assert any("ddp-1): 1.33x" in line for line in balanced)
    peers["maypole-weave"] = row(1.3)
    assert sum(line.startswith("MISSED") for line in bench_training.goals("500mbit", 1.0, peers)) == 4


def test_the_picture_shows_both_workers_and_the_usual_iteration(tmp_path):
    picture = load_example("timeline_picture")
    events = []
    for rank in range(2):
        for track, name in enumerate(["compute", "reduce-scatter", "all-gather", "update", "wait"]):
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": name}})
        begin = 1e15
        for iteration in range(10):
            length = 100_000 if iteration != 8 else 900_000  # one disturbed iteration, which must not be chosen
            events.append({"ph": "X", "name": "forward", "pid": rank, "tid": 0, "ts": begin, "dur": 30_000})
            events.append({"ph": "X", "name": "backward", "pid": rank, "tid": 0, "ts": begin + 30_000, "dur": 40_000})
            events.append({"ph": "X", "name": "RS 1", "pid": rank, "tid": 1, "ts": begin + 50_000, "dur": 15_000})
            begin += length
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    panel = picture.make_panel("weave", path)
    assert sorted(panel.workers) == [0, 1]
    assert panel.iteration_ends == pytest.approx([0.1, 0.2])
    svg = picture.draw([panel], "heading", "a < b")
    assert "a &lt; b" in svg and "worker 1" in svg and "100 ms" in svg and svg.count("RS 1: 15.0 ms") == 4

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

from benchmarks import (  # noqa: E402
    bench_collectives,
    bench_plan,
    bench_scheduling,
    bench_training,
    fabric,
    scheduling_goals,
    scheduling_growth,
)

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


def scheduling_row(case: str, policy: str, **values) -> dict:
    row = {"case": case, "policy": policy, "utility": 1.0, "bound": 1.0, "violations": 0, "seed": 1, "jobs": 400, "commit": "c"}
    return row | {"servers": 50, "decision_p50_s": 0.01, "decision_p99_s": 0.01, "gap": 0.0} | values


def test_a_baseline_counts_in_its_strongest_variant():
    rows = [scheduling_row("contended-sigmoid", name, utility=reached, bound=100.0)
            for name, reached in (("gadget", 98.0), ("drf", 40.0), ("drf:topology", 49.0), ("fifo", 30.0))]
    lines = scheduling_goals.goals(rows)
    assert any(line.startswith("met") and "98.00% of the horizon" in line for line in lines)
    assert any(line.startswith("MISSED") and "2.000x drf:topology" in line and "exceed 2.041x" in line for line in lines)
    assert any(line.startswith("met") and "3.267x fifo" in line for line in lines)


def test_a_violation_misses_but_where_violations_are_meant():
    published = scheduling_row("paper-algorithm", "gadget-paper:published", violations=3)
    assert scheduling_goals.goals([published])[-1].startswith("met    0 violations")
    own = scheduling_row("tiny", "gadget", proven=0.1, violations=1)
    assert scheduling_goals.goals([published, own])[-1].startswith("MISSED 1 violations")


def test_an_optimum_that_was_not_found_counts_by_its_bound():
    reached = {"utility": 0.96, "exact": 0.96}
    rows = [scheduling_row("tight", "gadget", **reached, bound=bound, exact_limited=bound > 0.96) for bound in (0.96, 0.96, 1.0)]
    lines = scheduling_goals.goals(rows)
    assert "median 1.0000" in lines[0] and "worst, p5, p25, p50, p75: 0.9600" in lines[0]
    assert "cut by its limit of nodes 1 times" in lines[1] and "4.000%" in lines[1]


def test_a_part_replaces_its_own_rows_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.common.ROOT", tmp_path)
    first = bench_scheduling.PartRows("scheduling")
    for part in ("tiny", "tight"):
        first.start(part)
        first.add(case=part, seed=1)
    again = bench_scheduling.PartRows("scheduling")
    again.start("tiny")
    again.add(case="tiny", seed=2)
    kept = json.loads((tmp_path / "bench" / "scheduling.json").read_text())
    assert [(row["part"], row["seed"]) for row in kept] == [("tight", 1), ("tiny", 2)]


def test_parts_are_chosen_by_their_beginnings():
    known = [bench_scheduling.Part(name, None, 1, quick=name != "itp-b") for name in ("tiny", "itp-a", "itp-b")]
    assert [part.name for part in bench_scheduling.chosen("itp,tiny", known, quick=False)] == ["itp-a", "itp-b", "tiny"]
    assert [part.name for part in bench_scheduling.chosen("", known, quick=True)] == ["tiny", "itp-a"]
    with pytest.raises(SystemExit, match="'it' is none of tiny"):
        bench_scheduling.chosen("it", known, quick=False)


def test_growth_is_drawn_where_there_are_sizes_to_compare():
    rows = [scheduling_row("speed-slack", "gadget", servers=servers, decision_p50_s=servers / 1e5) for servers in (100, 1000)]
    assert scheduling_growth.growth_svg(rows[:1]) == ""
    picture = scheduling_growth.growth_svg(rows)
    assert "1,000" in picture and picture.count("<circle") == 2 and "10 ms" in picture


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


def test_predictions_are_ranked_as_measured_unless_two_took_the_same(capsys):
    def rows(**cell: tuple[float, float]) -> list[dict]:
        return [
            {"link": "1gbit", "model": "cnn", "batch": 32, "schedule": name, "predicted_s": predicted, "measured_s": measured,
             "contention_s_per_gb": 3.0}
            for name, (predicted, measured) in cell.items()
        ]

    bench_plan.report_predictions(rows(weave=(1.0, 1.0), dear=(0.99, 1.01), wfbp=(1.2, 1.4)))
    assert "2 of 3" in (said := capsys.readouterr().out) and "1 of 1" in said
    bench_plan.report_predictions(rows(weave=(1.0, 1.0), dear=(0.9, 1.1)))
    assert "0 of 1" in capsys.readouterr().out

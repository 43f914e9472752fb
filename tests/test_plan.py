# SPDX-License-Identifier: Apache-2.0
"""The commands about one job: plan, trace, and the evaluation of DeAR's paper."""

from __future__ import annotations

import json
import subprocess

import pytest
from running import LIMIT_S, PROGRAM, need_program

ROW = {"model", "workers", "network", "schedule", "iteration_s", "bound_s", "exposed_s"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    need_program()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def maypole(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_S)


def profile(folder) -> dict:
    assert maypole("plan", "--model", "resnet50", "--save-profile", "p.json").returncode == 0
    return json.loads((folder / "p.json").read_text())


def refused(*arguments: str) -> str:
    done = maypole("plan", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("maypole plan: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_plan_answers_for_every_schedule_and_number_of_workers(folder):
    assert len(profile(folder)["tensors"]) == 161
    done = maypole("plan", "--profile", "p.json", "--network", "10GbE", "--workers", "64,8", "--json", "--html", "f.html")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["modelled"] is True
    assert [row["workers"] for row in answer["rows"]] == [8] * 7 + [64] * 7
    for row in answer["rows"]:
        assert row["iteration_s"] >= row["bound_s"] * (1 - 1e-9)
        assert sum(row["groups"]) >= 102.2e6
    page = (folder / "f.html").read_text()
    assert "<svg" in page and "modelled, not measured" in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_plan_names_what_is_wrong_with_a_profile(folder):
    good = profile(folder)

    def broken(**changes) -> str:
        (folder / "bad.json").write_text(json.dumps({**good, **changes}))
        return refused("--profile", "bad.json", "--network", "10GbE")

    assert "bad.json:1: version: this program reads version 1, the file has 7" in broken(version=7)
    layers = [dict(layer) for layer in good["layers"]]
    layers[3]["forward_s"] = -1
    assert "bad.json: layers[3].forward_s: " in broken(layers=layers)
    del layers[3]["forward_s"]
    assert "bad.json:1: layers[3].forward_s: is missing" in broken(layers=layers)
    idle = [{**layer, "forward_s": 0, "backward_s": 0} for layer in good["layers"]]
    assert "bad.json: layers: forward and backward of all layers take no time" in broken(layers=idle)
    assert "no layer owns the tensor" in broken(layers=good["layers"][:-1])
    (folder / "bad.json").write_text((folder / "p.json").read_text()[:5000])
    assert "bad.json" in refused("--profile", "bad.json", "--network", "10GbE")


def test_plan_names_what_is_wrong_with_its_options(folder):
    profile(folder)
    assert "above zero" in refused("--profile", "p.json", "--network", "0Gbps")
    assert "--network: network 'wet string' is unknown" in refused("--profile", "p.json", "--network", "wet string")
    assert "1000000 groups are more than the 390 blocks" in refused("--profile", "p.json", "--network", "10GbE", "--groups", "1000000")
    for option in ("--groups", "--workers-per-host"):
        for wrong in ("-1", "0", "1000000000000000000"):
            assert option in refused("--profile", "p.json", "--network", "10GbE", f"{option}={wrong}")
    assert "--workers" in refused("--profile", "p.json", "--network", "10GbE", "--workers", "8,none")
    assert "give --network" in refused("--profile", "p.json")
    assert "either --profile or --model" in refused("--network", "10GbE")


def cluster_and_job(bits: float, progress: dict) -> dict:
    """Four servers of one GPU on links of so many bits per second, and one job that may have them all."""
    names = [f"s{i}" for i in range(4)]
    links = [(name, "switch") for name in names] + [("switch", name) for name in names]
    return {
        "version": 1, "slot_s": 60, "slots": 1, "seed": 1,
        "servers": [{"id": name, "capacity": {"gpu": 1}} for name in names],
        "links": [{"id": f"{a}>{b}", "from": a, "to": b, "bandwidth": bits / 8} for a, b in links],
        "jobs": [{
            "id": "job", "arrival_s": 0, "min_workers": 1, "workers": 1, "max_workers": 4, "demand": {"gpu": 1},
            "edge_bandwidth": bits / 8, "work": None, "budget": None, "weight": 1, "utility": {"kind": "linear"}, "progress": progress,
        }],
    }


def test_the_scheduler_knows_what_workers_and_edges_bring_to_a_profiled_job(folder):
    profile(folder)
    arguments = ["plan", "--profile", "p.json", "--network", "10GbE", "--workers", "4", "--json"]
    done = maypole(*arguments, "--progress", "progress.json", "--schedule", "dear", "--group-size", "4MB")
    assert done.returncode == 0, done.stderr
    progress = json.loads((folder / "progress.json").read_text())
    assert progress["kind"] == "profile"
    chosen = {}
    for bits in (2e8, 1e10):
        (folder / "i.json").write_text(json.dumps(cluster_and_job(bits, progress)))
        done = maypole("simulate", "--workload", "i.json", "--policy", "gadget", "--decisions", "d.jsonl")
        assert done.returncode == 0, done.stderr
        chosen[bits] = json.loads((folder / "d.jsonl").read_text().splitlines()[0])["jobs"]["job"]["workers"]
    assert chosen == {2e8: 1, 1e10: 4}
    assert "--schedule requires --progress" in maypole(*arguments, "--schedule", "dear").stderr
    assert "schedule 'hurry' is unknown" in refused(*arguments[1:], "--progress", "x.json", "--schedule", "hurry")
    assert "--group-size" in refused(*arguments[1:], "--progress", "x.json", "--group-size", "some")
    assert "no sharded updates" in refused(*arguments[1:], "--progress", "x.json", "--schedule", "wfbp", "--sharded")
    assert "nowhere/x.json" in maypole(*arguments, "--progress", "nowhere/x.json").stderr
    assert "above" in refused(*arguments[1:], "--contention", "-1")


def test_paper_dear_has_a_row_for_each_cell_and_keeps_the_order_of_schedules(folder):
    done = maypole("paper", "dear", "--json", "--searches", "2", "--html", "dear.html")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    cells = {}
    for row in result["rows"]:
        assert row.keys() >= ROW
        assert row["workers"] == 64
        cells.setdefault((row["model"], row["network"]), {})[row["schedule"]] = row["iteration_s"]
        assert row["iteration_s"] >= row["bound_s"] * (1 - 1e-9)
    assert len(cells) == 10
    segment_s = {"10GbE": 128 * 1024 * 9.64e-10 * 64 / 126, "100GbIB": 128 * 1024 * 5.89e-10 * 64 / 126}
    for (_, network), schedules in cells.items():
        assert schedules.keys() == {"wfbp", "mg-wfbp", "horovod", "priority", "dear", "weave"}
        assert schedules["weave"] <= schedules["dear"] + segment_s[network]
    assert {row["search"] for row in result["search"]} == {"bayes", "random", "grid"}
    assert "not measured" in (folder / "dear.html").read_text()


def test_trace_draws_a_recorded_timeline(folder):
    events = []
    for i in range(4):
        begin = 1e6 + 1e5 * i
        events += [
            {"ph": "X", "name": "backward", "pid": 0, "tid": 0, "ts": begin, "dur": 6e4},
            {"ph": "X", "name": "RS group 0", "pid": 0, "tid": 1, "ts": begin + 2e4, "dur": 3e4},
        ]
    (folder / "run.json").write_text(json.dumps({"traceEvents": events}))
    done = maypole("trace", "run.json", "--json", "--html", "run.html")
    assert done.returncode == 0, done.stderr
    rank = json.loads(done.stdout)["ranks"][0]
    assert rank["iterations"] == 3
    assert rank["iteration_s"] == pytest.approx(0.1)
    assert "RS group 0" in (folder / "run.html").read_text()
    (folder / "run.json").write_text("[")
    assert maypole("trace", "run.json").returncode == 2

# SPDX-License-Identifier: Apache-2.0
"""The commands that schedule in virtual time: simulate, compare, check, replay, convert, paper."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from running import LIMIT_S, PROGRAM, need_program

FIELDS = {
    "policy", "total_utility", "utility_bound", "jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "makespan_s", "jobs_finished",
    "resizes", "decision_p50_s", "decision_p99_s", "gap_mean", "violations",
}
CLUSTER = """version: 1
racks:
  - {id: r0, uplink: 10Gbps}
  - {id: r1, uplink: 10Gbps}
servers:
  - {id: s0, rack: r0, capacity: {gpu: 4}, bandwidth: 10Gbps}
  - {id: s1, rack: r1, capacity: {gpu: 4}, bandwidth: 10Gbps}
"""
HEADER = "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n"
# Work is worker-seconds. Eight GPUs: a takes six of them for 100 s; b needs four and waits; c fits beside a.
JOBS = HEADER + "a,0,1,6,6,1,600,,linear,1\nb,0,1,4,4,1,400,,linear,1\nc,30,1,2,2,1,60,,linear,1\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    need_program()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def maypole(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_S)


def simulated(*arguments: str) -> dict:
    done = maypole("simulate", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lines(path) -> list[dict]:
    """Decisions without what no two runs share."""
    return [{**json.loads(line), "seconds": 0} for line in path.read_text().splitlines()]


def test_a_dumped_decision_keeps_every_option_of_its_policy(files):
    setting = ("--cluster", "cluster.yaml", "--workload", "jobs.csv", "--policy", "exact:nodes=7")
    done = maypole("simulate", *setting, "--dump-decision", "0", "d.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((files / "d.json").read_text())["options"]["exact_nodes"] == 7
    assert maypole("replay", "d.json").returncode == 0


def test_a_small_trace_gives_what_is_worked_out_by_hand(files):
    result = simulated("--cluster", "cluster.yaml", "--workload", "jobs.csv", "--policy", "fifo", "--slot", "10s")
    # a: 0 to 100 s. c arrives at 30 s, 2 workers beside a's 6, done at 60 s. b: waits for a, 100 to 200 s.
    assert result["jobs_finished"] == 3
    assert result["makespan_s"] == pytest.approx(200)
    assert result["jct_mean_s"] == pytest.approx((100 + 200 + 30) / 3)
    assert result["gpu_hours"] == pytest.approx((600 + 400 + 60) / 3600)
    assert result["violations"] == 0 and result["preemptions"] == 0
    assert result["notes"], "what was assumed is not said"


def test_the_json_has_the_promised_fields_and_open_ones_are_null(files):
    result = simulated("--cluster", "paper", "--workload", "paper", "--jobs", "40", "--policy", "fifo", "--slots", "200", "--slot", "60s")
    assert result.keys() >= FIELDS
    assert result["makespan_s"] is None and result["jct_mean_s"] is None  # worker-slots never run out in the paper's setting
    assert 0 < result["total_utility"] <= result["utility_bound"] * (1 + 1e-9)
    assert result["utility_bound"] <= result["reach_alone"] * (1 + 1e-9)


@pytest.mark.parametrize("policy", ["gadget", "fifo", "drf", "las", "srtf", "optimus"])
def test_the_checker_finds_nothing_wrong_with_what_is_written(files, policy):
    arguments = ["--workload", "paper-contended", "--jobs", "120", "--slots", "80", "--seed", "3", "--policy", policy]
    result = simulated(*arguments, "--instance", "i.json", "--decisions", "d.jsonl")
    assert result["violations"] == 0
    assert [line["slot"] for line in lines(files / "d.jsonl")] == list(range(80))
    checked = maypole("check", "--instance", "i.json", "--decisions", "d.jsonl")
    assert (checked.returncode, checked.stdout) == (0, "80 slots, 0 violations\n")


def test_the_checker_names_what_is_wrong(files):
    simulated("--cluster", "cluster.yaml", "--workload", "jobs.csv", "--policy", "fifo", "--slot", "10s", "--instance", "i.json",
              "--decisions", "d.jsonl")
    text = (files / "d.jsonl").read_text().splitlines()
    first = json.loads(text[0])
    first["jobs"]["a"]["bandwidth"] = 5
    (files / "wrong.jsonl").write_text("\n".join([json.dumps(first), *text[1:]]) + "\n")
    checked = maypole("check", "--instance", "i.json", "--decisions", "wrong.jsonl", "--json")
    assert checked.returncode == 1
    assert any("job a" in violation for violation in json.loads(checked.stdout)["violations"])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(files):
    runs = {}
    for name, seed in {"one": "7", "two": "7", "other": "8"}.items():
        runs[name] = simulated("--workload", "paper-contended", "--jobs", "60", "--slots", "60", "--policy", "gadget", "--seed", seed,
                               "--instance", f"{name}.json", "--decisions", f"{name}.jsonl")
    assert (files / "one.json").read_bytes() == (files / "two.json").read_bytes()
    assert lines(files / "one.jsonl") == lines(files / "two.jsonl")
    timed = {name for name in runs["one"] if name.startswith("decision_")}
    assert {k: v for k, v in runs["one"].items() if k not in timed} == {k: v for k, v in runs["two"].items() if k not in timed}
    assert (files / "one.json").read_bytes() != (files / "other.json").read_bytes()


def test_skipped_slots_change_nothing(files):
    for name, flags in {"few": [], "all": ["--every-slot"]}.items():
        simulated("--cluster", "cluster.yaml", "--workload", "jobs.csv", "--policy", "fifo", "--slot", "1s", "--decisions",
                  f"{name}.jsonl", *flags)
    assert lines(files / "few.jsonl") == lines(files / "all.jsonl")


@pytest.mark.parametrize("policy", ["gadget", "gadget-blind", "las:continuous:topology", "drf"])
def test_a_dumped_decision_repeats_bit_for_bit(files, policy):
    utility = "linear" if policy == "gadget-blind" else "sigmoid"  # what it learns from jobs that ended counts there
    simulated("--workload", "paper-contended", "--jobs", "100", "--slots", "60", "--utility", utility, "--policy", policy,
              "--dump-decision", "50", "dump.json")
    replayed = maypole("replay", "dump.json")
    assert replayed.returncode == 0, replayed.stderr
    assert "slot 50" in replayed.stdout
    dump = json.loads((files / "dump.json").read_text())
    assert dump["states"], "nobody was there"
    dump["decision"]["jobs"].popitem()
    (files / "changed.json").write_text(json.dumps(dump))
    changed = maypole("replay", "changed.json")
    assert changed.returncode == 1
    assert re.search(r"slot 50 .* does not repeat: jobs", changed.stderr)


def test_a_report_stands_alone_and_shows_every_policy(files):
    done = maypole("compare", "--workload", "paper-contended", "--jobs", "40", "--slots", "60", "--policies", "gadget,fifo,las:topology",
                   "--html", "report.html")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["gadget", "fifo", "las:topology"]
    page = (files / "report.html").read_text()
    assert "<title>paper-contended on the paper's cluster: gadget, fifo, las:topology</title>" in page
    assert page.count("<svg") == 3 + 3  # utility, completion, utilisation; a Gantt chart each
    assert not re.search(r"(src|href)=|<script|@import|url\(", page)
    for policy in ("gadget", "fifo", "las:topology"):
        assert f"{policy}: workers per job" in page


def test_convert_gives_a_workload_that_runs_the_same(files):
    (files / "itp.csv").write_text("job_id,submission_time,duration,num_gpu\nx,100,500,2\ny,160,250,8\nz,160,100,1\n")
    converted = maypole("convert", "--cluster", "cluster.yaml", "--workload", "itp.csv", "--slot", "10s", "-o", "ours.csv")
    assert converted.returncode == 0, converted.stderr
    arguments = ["--cluster", "cluster.yaml", "--policy", "fifo", "--slot", "10s", "--workload"]
    theirs, ours = simulated(*arguments, "itp.csv"), simulated(*arguments, "ours.csv")
    assert theirs["jct_mean_s"] == pytest.approx(ours["jct_mean_s"])
    assert theirs["jobs_finished"] == 3


def test_an_overloaded_trace_ends_and_says_by_how_much(files):
    rows = "".join(f"j{i},{i},1,8,8,1,8000,,linear,1\n" for i in range(20))
    (files / "many.csv").write_text(HEADER + rows)
    done = maypole("simulate", "--cluster", "cluster.yaml", "--workload", "many.csv", "--policy", "fifo", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    # 20 jobs of 8 x 1000 s, while 8 GPUs are there for the 60 s (one slot) in which they arrive
    assert result["offered_load"] == pytest.approx(20 * 8000 / (8 * 60))
    assert result["overloaded"] and result["jobs_finished"] == 20
    assert "overloaded" in done.stderr and "333.33 times" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["simulate", "--workload", "none.csv"], "none.csv"),
        (["simulate", "--workload", "paper", "--policy", "best"], "'best' is not a policy"),
        (["simulate", "--workload", "paper", "--policy", "las:fast"], "'fast' is no option of las"),
        (["simulate", "--workload", "paper", "--slot", "0s"], "--slot: duration '0s' must be above zero"),
        (["simulate", "--workload", "jobs.csv", "--cluster", "cluster.yaml", "--budget", "iterations"], "--budget"),
        (["simulate", "--workload", "paper", "--elastic"], "--elastic: is for traces"),
        (["simulate", "--workload", "paper", "--dump-decision", "x", "f"], "'x' is not a slot"),
        (["compare", "--workload", "paper", "--policies", "fifo,fifo"], "'fifo' is there twice"),
        (["check", "--instance", "cluster.yaml", "--decisions", "jobs.csv"], "cluster.yaml"),
        (["replay", "cluster.yaml"], "a dump is made by"),
        (["paper", "gadget", "--figure", "3"], "--figure"),
        (["simulate", "--workload", "large.csv", "--cluster", "cluster.yaml"], "large.csv:2"),
    ],
)
def test_wrong_input_is_answered_with_one_line(files, arguments, sentence):
    (files / "large.csv").write_text(HEADER + "big,0,9,9,9,1,10,,linear,1\n")  # nine GPUs where there are eight
    done = maypole(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and sentence in done.stderr
    assert done.stderr.startswith(f"maypole {arguments[0]}: ")


def test_the_papers_figures_stand_beside_the_published_values(files):
    done = maypole("paper", "gadget", "--figure", "4", "--seeds", "1", "--policy", "gadget", "--json", "--html", "figure.html")
    assert done.returncode == 0, done.stderr
    figure = json.loads(done.stdout)
    curves = {curve["name"]: curve for curve in figure["curves"]}
    assert curves["fifo"]["published"] == [1170, 1346, 1433, 1436]
    reach = curves["all that jobs can reach"]["ours"]
    assert all(len(curve["ours"]) == 4 for curve in curves.values())
    assert all(value <= most * (1 + 1e-9) for curve in curves.values() for value, most in zip(curve["ours"], reach, strict=True))
    assert figure["remarks"]
    assert "<svg" in (files / "figure.html").read_text()


def test_every_command_is_listed():
    need_program()
    text = maypole("--help").stdout
    for command in ("simulate", "compare", "paper", "check", "replay", "convert"):
        assert re.search(rf"^  {command} ", text, re.MULTILINE)

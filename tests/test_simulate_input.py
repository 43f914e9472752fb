# SPDX-License-Identifier: Apache-2.0
"""What people get wrong when they call the scheduling commands: one line that says what and where, and the right exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from running import LIMIT_S, PROGRAM, need_program

CLUSTER = "version: 1\nservers:\n  - {id: s0, capacity: {gpu: 4}}\n  - {id: s1, capacity: {gpu: 4}}\n"
HEADER = "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n"
JOBS = HEADER + "a,0,1,2,4,1,600,,linear,1\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    need_program()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def maypole(*arguments: str, **files) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, *arguments], text=True, stderr=subprocess.PIPE, timeout=LIMIT_S, **({"stdout": subprocess.PIPE} | files)
    )


def refused(*arguments: str) -> str:
    done = maypole("simulate", *arguments)
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


SMALL = ("--cluster", "cluster.yaml", "--workload", "jobs.csv")


@pytest.mark.parametrize(
    "option, wrong",
    [
        ("--slots", "-1"),
        ("--slots", "99999999999"),
        ("--slots", "x"),
        ("--jobs", "0"),
        ("--seed", "-1"),
        ("--seed", "18446744073709551616"),
        ("--gpus-per-server", "nan"),
        ("--gpus-per-server", "0"),
    ],
)
def test_a_wrong_number_is_named_with_what_is_wanted(files, option, wrong):
    message = refused(*SMALL, f"{option}={wrong}")
    assert option in message and f"'{wrong}'" in message and len(message) < 200


@pytest.mark.parametrize("slot", ["99999999999999999999999", "", "-1", "x"])
def test_a_slot_to_dump_that_is_no_number_is_named(files, slot):
    assert f"'{slot}' is not a slot" in refused(*SMALL, "--dump-decision", slot, "dump.json")


def test_a_command_after_dashes_is_for_run_and_profile_alone(files):
    assert "takes no command after `--`" in refused(*SMALL, "--", "python3", "train.py")


def test_rings_that_reserve_nothing_are_not_unlimited(files):
    assert "0.0 rack crossings, nothing reserved" in maypole("simulate", *SMALL).stdout


def test_a_utility_of_the_command_line_stands_in_place_of_the_files(files):
    def utility(*arguments: str) -> float:
        done = maypole("simulate", *SMALL, "--policy", "fifo", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["total_utility"]

    assert utility() == pytest.approx(600)
    assert utility("--utility", "sqrt") == pytest.approx(600**0.5)
    assert utility("--utility", "{kind: sigmoid, sensitivity: 1, expected: 600}") == pytest.approx(0.5)
    # 600 worker-seconds by two workers: one minute of five is on time.
    assert utility("--utility", "{kind: deadline, deadline_s: 1min}") == pytest.approx(0.2)
    assert "--utility: kind: there is no kind 'cube'" in refused(*SMALL, "--utility", "cube")
    assert "--utility: sensitivity: is missing" in refused(*SMALL, "--utility", "sigmoid")
    assert "'energy' is none of the paper's" in refused("--workload", "paper", "--utility", "energy")


def test_options_that_the_cluster_makes_useless_are_refused(files):
    assert "cluster.yaml says it itself" in refused(*SMALL, "--gpus-per-server", "8")
    assert "--server-bandwidth" in refused(*SMALL, "--server-bandwidth", "1Gbps")


@pytest.mark.parametrize(
    "policy, part",
    [
        ("fifo:continuous", "write topology"),
        ("gadget:published", "write ageing=R"),
        ("exact:topology", "write nodes=N"),
        ("exact:nodes=-1", "numbers of at least 0"),
        ("las:threshold=1:threshold=2", "twice"),
        ("las:threshold=-1", "'threshold=-1'"),
        ("las:threshold=inf", "'threshold=inf'"),
        ("gadget:ageing=inf", "'ageing=inf'"),
        ("las:continuous:threshold=5", "continuous means no threshold"),
    ],
)
def test_options_that_mean_nothing_to_a_policy_are_refused(files, policy, part):
    assert part in refused(*SMALL, "--policy", policy)


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", *SMALL),
        ("convert", *SMALL),
        ("convert", "--workload", "paper", "--jobs", "4000"),
        ("--version",),
    ],
)
def test_output_that_gets_lost_is_a_failure(files, arguments):
    with open("/dev/full", "w") as full:
        done = maypole(*arguments, stdout=full)
    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr


WRITERS = [
    ("simulate", *SMALL, "--instance"),
    ("simulate", *SMALL, "--decisions"),
    ("simulate", *SMALL, "--dump-decision", "0"),
    ("compare", *SMALL, "--policies", "fifo", "--html"),
    ("paper", "gadget", "--figure", "7", "--seeds", "1", "--html"),
    ("convert", *SMALL, "--output"),
    ("convert", *SMALL, "--instance"),
]


@pytest.mark.parametrize("writer", WRITERS)
def test_every_file_that_cannot_be_written_is_named_with_its_option(files, writer):
    before = set(files.iterdir())
    for target, code, reason in (("/dev/full", 1, "No space left"), ("no/f", 2, "No such file"), (".", 2, "Is a directory")):
        done = maypole(*writer, target)
        option = "--dump-decision" if "--dump-decision" in writer else writer[-1]
        assert done.returncode == code, (target, done)
        assert f"{option}: {target}: cannot be written: {reason}" in done.stderr.splitlines()[-1]
        assert done.stdout == "" or target == "/dev/full"
    assert set(files.iterdir()) == before


def test_a_run_that_is_interrupted_leaves_no_half_of_a_file(files):
    (files / "d.jsonl").write_text("old\n")
    before = set(files.iterdir())
    endless = ("--workload", "paper-contended", "--slots", "1000000", "--every-slot", "--utility", "sqrt")
    # A shell that started this test in the background has made its children deaf to SIGINT.
    running = subprocess.Popen([PROGRAM, "simulate", *endless, "--decisions", "d.jsonl", "--dump-decision", "5", "slot.json"],
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    # The run is under way when its files are open, however slow the machine is.
    folder = f"/proc/{running.pid}/fd"
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and not any(str(files) in os.path.realpath(f"{folder}/{fd}") for fd in os.listdir(folder)):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=LIMIT_S)
    assert running.returncode == -signal.SIGINT
    assert set(files.iterdir()) == before
    assert (files / "d.jsonl").read_text() == "old\n"


@pytest.mark.parametrize("command", [("check", "--decisions", "cluster.yaml", "--instance"), ("replay",), ("simulate", "--workload"),
                                     ("simulate", "--workload", "jobs.csv", "--cluster"), ("convert", "--workload")])
def test_a_folder_is_no_file_to_read(files, command):
    (files / "folder.json").mkdir()
    done = maypole(*command, "folder.json")
    assert done.returncode == 2, done
    assert "folder.json: cannot be read: Is a directory" in done.stderr


def test_a_damaged_dump_says_where_it_is_damaged(files):
    assert maypole("simulate", *SMALL, "--dump-decision", "0", "slot.json").returncode == 0
    text = (files / "slot.json").read_text()

    def said(damaged: str) -> str:
        (files / "damaged.json").write_text(damaged)
        done = maypole("replay", "damaged.json")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert "exception" not in done.stderr and "simulate --dump-decision" in done.stderr
        return done.stderr

    number = text[: text.index('"policy_name"')].count("\n") + 1
    name = '"policy_name": "gadget"'
    assert f"damaged.json:{number}: policy_name: '7' is a number: give text" in said(text.replace(name, '"policy_name": 7'))
    assert "damaged.json: policy_name: is missing" in said(text.replace(name + ",", ""))
    assert "the JSON text ends too early: the file is cut off" in said(text[: len(text) // 2])
    assert "states[0].progress: is missing" in said(text.replace('"progress": 0.0,', "", 1))
    assert "states[0].id" in said(text.replace('"id": 0,', '"id": -1,', 1))
    assert "states[0].id" in said(text.replace('"id": 0,', '"id": 2000000000,', 1))
    assert "options.max_pivots" in said(text.replace('"max_pivots": ', '"max_pivots": -1e99, "x": ', 1))
    assert "no JSON from" in said(text.replace(":", "=", 1))
    assert "instance" in said("{}") or "version" in said("{}")


def test_a_count_is_no_size(files):
    (files / "cluster.yaml").write_text(CLUSTER.replace("{gpu: 4}", "{gpu: 4GB}", 1))
    assert "cluster.yaml:3: servers[0].capacity.gpu: '4GB' is a size, and gpu are counted: give a number" in refused(*SMALL)


@pytest.mark.parametrize("deep", ["[" * 200_000, "[" * 300 + "]" * 300, "\n" + "".join(" " * i + "a:\n" for i in range(1, 2000))])
def test_a_cluster_that_nests_without_end_is_refused(files, deep):
    (files / "deep.yaml").write_text("version: 1\nservers: " + deep)
    assert "lists and maps nest deeper than 64" in refused("--cluster", "deep.yaml", "--workload", "jobs.csv")


@pytest.mark.parametrize("row", ["a,0,1,2,4,1,1e300,,,", "a,1e18,1,2,4,1,600,,,", "a,1e300,1,2,4,1,600,,,"])
def test_a_run_of_more_slots_than_fit_is_refused(files, row):
    (files / "jobs.csv").write_text(HEADER + row + "\n")
    assert "job 'a' ends after" in refused(*SMALL)
    assert "the horizon has 2000000000 slots" in refused(*SMALL, "--slots", "2000000000")


def test_an_instance_can_be_run_again(files):
    first = maypole(
        "simulate",
        "--workload",
        "paper-contended",
        "--jobs",
        "20",
        "--slots",
        "30",
        "--seed",
        "4",
        "--instance",
        "i.json",
        "--decisions",
        "one.jsonl",
        "--json",
    )
    again = maypole("simulate", "--workload", "i.json", "--instance", "j.json", "--decisions", "two.jsonl", "--json")
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert (files / "i.json").read_bytes() == (files / "j.json").read_bytes()
    one, two = (
        [{**json.loads(line), "seconds": 0} for line in (files / name).read_text().splitlines()] for name in ("one.jsonl", "two.jsonl")
    )
    assert one == two
    assert "--slot: the instance i.json says that itself" in refused("--workload", "i.json", "--slot", "5s")
    assert "--cluster" in refused("--workload", "i.json", "--cluster", "cluster.yaml")


@pytest.mark.parametrize("policy", ["gadget", "fifo", "drf", "exact"])
def test_the_order_of_lines_of_a_topology_changes_no_answer(files, policy):
    racks = [f"  - {{id: r{i}, uplink: 10Gbps}}" for i in range(3)]
    servers = [f"  - {{id: s{i}, rack: r{i // 4}, capacity: {{gpu: 1}}, bandwidth: 10Gbps}}" for i in range(12)]
    (files / "jobs.csv").write_text(HEADER + "ten,0,10,10,10,1,600,10000000,,\n")
    answers = []
    for name, step in (("one", 1), ("other", -1)):
        lines = ["version: 1", "racks:", *racks[::step], "servers:", *servers[::step]]
        (files / f"{name}.yaml").write_text("\n".join(lines) + "\n")
        done = maypole("simulate", "--cluster", f"{name}.yaml", "--workload", "jobs.csv", "--policy", policy, "--decisions", "d.jsonl")
        assert done.returncode == 0, done.stderr
        answers.append(json.loads((files / "d.jsonl").read_text().splitlines()[0])["jobs"])
    assert answers[0] == answers[1]


def test_pollux_measurements_may_lie_elsewhere(files):
    (files / "pollux.csv").write_text("name,time,application,num_replicas,batch_size\na,0,app,1,10\n")
    (files / "elsewhere" / "app").mkdir(parents=True)
    (files / "elsewhere/app/placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,10,1,0\n")
    (files / "elsewhere/app/scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,10,1,0\n")
    (files / "elsewhere/app/validation-10.csv").write_text("progress,iteration,metric\n1,100,0\n")
    assert "--measured" in refused("--workload", "pollux.csv")
    found = maypole("simulate", "--workload", "pollux.csv", "--measured", "elsewhere")
    assert found.returncode == 0, found.stderr

# SPDX-License-Identifier: Apache-2.0
"""What the daemon does with real jobs: `make bench-cluster` writes bench/cluster.json and prints its goals.

Rows by kind:
  links     two jobs whose rings share one shaped link, `reserved` or not: payload bytes per second of an edge, `asked` and `got`
  store     `submits_per_s` that are durable, `restart_s` with so many jobs, and how long `queue` and `top` take then
  start     `up_s` on a small store; `first_line_s` from the call of `submit` to the worker's first line; `interpreter_s`, its own start
  policies  the same arrivals under each policy: `total_utility` at the horizon and `jct_mean_s`, measured and as `maypole simulate` has it;
            a job's work is a timed step (sleep), so that virtual servers need no cores
  chaos     so many faults over so many jobs, on servers that are network namespaces: what became of the jobs

--only measures one part and keeps the others' rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cluster_daemon import Client, Daemon
from benchmarks.common import ROOT, Rows, maypole_program, progress, worker_environment
from benchmarks.fabric import Fabric

PARTS = ("links", "store", "start", "policies", "chaos")
PAYLOAD_SHARE = 0.95  # of a nominal rate (formats.md)


# --- links ---

LINK = "200mbit"
ASKED = {"a": 120e6, "b": 60e6}  # bits per second, nominal
ALL_REDUCE_BYTES = 4_000_000
MEASURE_S = 12
RING = """
import sys, time, pathlib
import torch
import maypole.torch as maypole
name, count, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
maypole.init()
data = torch.ones(int(sys.argv[4]) // 4)
for _ in range(2):
    maypole.all_reduce(data)
(folder / f"ready-{name}-{maypole.rank()}").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
maypole.barrier()
ends = [time.monotonic()]
for _ in range(count):
    maypole.all_reduce(data)
    ends.append(time.monotonic())
if maypole.rank() == 0:
    (folder / f"ends-{name}").write_text(" ".join(map(str, ends)))
"""


def servers_of(fabric: Fabric, cpus: int) -> str:
    bandwidth = f"{fabric.link.rate // 10**6}Mbps"
    lines = [f"  - {{id: {host}, rack: r, capacity: {{cpu: {cpus}}}, bandwidth: {bandwidth}, launcher: '{fabric.launcher}'}}"
             for host in fabric.hosts]  # fmt: skip
    return "version: 1\nracks:\n  - {id: r, uplink: 10Gbps}\nservers:\n" + "\n".join(lines) + "\n"


def measure_links(rows: Rows) -> None:
    for reserved in (True, False):
        with tempfile.TemporaryDirectory() as name, Fabric(2, LINK) as fabric:
            folder = Path(name)
            (folder / "ring.py").write_text(RING)
            # Three cores a server, two for a worker of one job and one for the other's: both rings have to cross the link.
            with Daemon(folder, servers_of(fabric, 3)) as daemon:
                jobs = {}
                for job, cpus in (("a", 2), ("b", 1)):
                    count = round(ASKED[job] / 8 * PAYLOAD_SHARE * MEASURE_S / ALL_REDUCE_BYTES)
                    fields = {"edge_bandwidth": f"{ASKED[job] / 1e6:g}Mbps"} if reserved else {}
                    jobs[job] = daemon.submit(
                        [sys.executable, "ring.py", job, str(count), name, str(ALL_REDUCE_BYTES)],
                        name=job, workers=2, per_worker={"cpu": cpus}, env=worker_environment(), **fields,
                    )  # fmt: skip
                while len(list(folder.glob("ready-*"))) < 4:
                    for job in jobs.values():
                        if daemon.job(job)["state"] in ("failed", "cancelled"):
                            raise RuntimeError(f"job {job} failed: {daemon.job(job)['reason']}\n{daemon.output(job)}")
                    time.sleep(0.05)
                (folder / "go").touch()
                for job in jobs.values():
                    daemon.wait_for(job)
            ends = {job: [float(word) for word in (folder / f"ends-{job}").read_text().split()] for job in jobs}
            until = min(times[-1] for times in ends.values())  # while both run
            for job, times in ends.items():
                inside = [moment for moment in times if moment <= until]
                # In a ring of two an edge carries the whole buffer once an all-reduce.
                got = ALL_REDUCE_BYTES * (len(inside) - 1) / (inside[-1] - inside[0])
                asked = ASKED[job] / 8 * PAYLOAD_SHARE
                rows.add(kind="links", link=LINK, job=job, reserved=reserved, asked=asked, got=got, off=got / asked - 1)


# --- store ---

QUEUED = 10_000
CLIENTS = 8


def submit_many(daemon: Daemon, count: int) -> None:
    client = Client(daemon)
    for _ in range(count):
        client.submit(["true"], "/", per_worker={"cpu": 1})


def median_of(measure, times: int = 5) -> float:
    return statistics.median(measure() for _ in range(times))


def measure_store(rows: Rows) -> None:
    with tempfile.TemporaryDirectory(dir=ROOT / "bench") as name:  # on a real disk: durable has its price
        daemon = Daemon(Path(name), "version: 1\nservers:\n  - {id: s0, capacity: {cpu: 1}}\n")
        with daemon:
            daemon.submit(["sleep", "100000"], per_worker={"cpu": 1})  # all others wait
            clients = [multiprocessing.Process(target=submit_many, args=(daemon, QUEUED // CLIENTS)) for _ in range(CLIENTS)]
            began = time.monotonic()
            for client in clients:
                client.start()
            for client in clients:
                client.join()
                if client.exitcode:
                    raise RuntimeError("a client failed")
            took = time.monotonic() - began
            daemon.kill()
            restart = daemon.up()
            kept = len(json.loads(daemon.run("queue", "--json"))["jobs"])
            if kept != QUEUED + 1:
                raise RuntimeError(f"{kept} jobs are in the queue, {QUEUED + 1} were acknowledged")
            rows.add(
                kind="store", jobs=QUEUED, clients=CLIENTS, submits_per_s=QUEUED / took, restart_s=restart,
                queue_s=median_of(lambda: daemon.command_s("queue")), top_s=median_of(lambda: daemon.command_s("top", "--once")),
            )  # fmt: skip


# --- start ---


def measure_start(rows: Rows) -> None:
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        with Daemon(Path(name)) as daemon:
            up_s = time.monotonic() - began

            def first_line() -> float:
                began = time.time()
                job = daemon.run("submit", "--", sys.executable, "-c", "print('first')").strip()
                output = daemon.data / "jobs" / job / "1" / "0" / "output.0"
                while not output.exists() or output.stat().st_size == 0:
                    time.sleep(0.001)
                took = time.time() - began
                daemon.wait_for(job)
                return took

            def interpreter() -> float:
                began = time.monotonic()
                subprocess.run([sys.executable, "-c", "print('first')"], stdout=subprocess.DEVNULL, check=True)
                return time.monotonic() - began

            daemon.kill()
            rows.add(
                kind="start", up_s=up_s, up_again_s=daemon.up(), first_line_s=median_of(first_line, 11),
                interpreter_s=median_of(interpreter, 11),
            )  # fmt: skip


# --- policies ---

POLICIES = ("gadget", "fifo", "drf", "las")
HORIZON_S = 40
STEP_S = 0.25
STEPS = """
steps={steps}; step=0
while [ $step -lt $steps ]; do sleep {step_s}; step=$((step+1)); [ $RANK -ne 0 ] || echo $(date +%s.%N) >> steps-{job}; done
"""


def arrivals(seed: int = 7, count: int = 24) -> list[dict]:
    """Twice what eight GPUs can do until the horizon, so that the policies have to choose."""
    draw = random.Random(seed)
    jobs, at = [], 0.0
    for number in range(count):
        workers = draw.choice((1, 1, 2, 2, 4))
        jobs.append({"id": f"j{number}", "arrival_s": round(at, 2), "workers": workers, "work": workers * draw.choice((6, 10, 16)),
                     "weight": draw.choice((1, 1, 3))})  # fmt: skip
        at += draw.uniform(0.3, 1.7)
    return jobs


def run_policy(policy: str, jobs: list[dict], cluster: str) -> dict:
    with tempfile.TemporaryDirectory() as name, Daemon(Path(name), cluster, "--policy", policy, "--slot", "1s") as daemon:
        began, began_wall = time.monotonic(), time.time()
        ids = {}
        for job in jobs:
            time.sleep(max(0.0, began + job["arrival_s"] - time.monotonic()))
            steps = round(job["work"] / job["workers"] / STEP_S)
            ids[job["id"]] = daemon.submit(
                ["sh", "-c", STEPS.format(steps=steps, step_s=STEP_S, job=job["id"])],
                workers=job["workers"], per_worker={"gpu": 1}, utility={"kind": "sqrt", "weight": job["weight"]},
            )  # fmt: skip
        utility, completion = 0.0, []
        for job in jobs:
            found = daemon.wait_for(ids[job["id"]])
            if found["state"] != "finished":
                raise RuntimeError(f"{policy}: job {job['id']} {found['state']}: {found['reason']}")
            completion.append(found["finished_s"] - found["submitted_s"])
            made = [float(line) for line in (Path(name) / f"steps-{job['id']}").read_text().split()]
            done = sum(moment <= began_wall + HORIZON_S for moment in made) * STEP_S * job["workers"]
            utility += job["weight"] * done**0.5
        return {"total_utility": utility, "jct_mean_s": statistics.mean(completion)}


def simulate_policy(policy: str, folder: Path) -> dict:
    def simulate(slots: int) -> dict:
        done = subprocess.run(
            [maypole_program(), "simulate", "--cluster", folder / "cluster.yaml", "--workload", folder / "jobs.csv", "--policy", policy,
             "--slot", "1s", "--slots", str(slots), "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    whole = simulate(0)
    return {"total_utility": simulate(HORIZON_S)["total_utility"], "jct_mean_s": whole["jct_mean_s"], "preemptions": whole["preemptions"]}


def measure_policies(rows: Rows) -> None:
    jobs = arrivals()
    cluster = "version: 1\nservers:\n  - {id: s0, capacity: {gpu: 4}}\n  - {id: s1, capacity: {gpu: 4}}\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(cluster)
        (folder / "jobs.csv").write_text(
            "job_id,arrival_s,min_workers,workers,max_workers,gpus_per_worker,work,edge_bandwidth,utility,weight\n"
            + "".join("{id},{arrival_s},{workers},{workers},{workers},1,{work},,sqrt,{weight}\n".format(**job) for job in jobs)
        )
        for policy in POLICIES:
            predicted = simulate_policy(policy, folder)
            progress(f"{policy}: {predicted}")
            measured = run_policy(policy, jobs, cluster)
            rows.add(kind="policies", policy=policy, jobs=len(jobs), horizon_s=HORIZON_S, step=f"sleep {STEP_S}",
                     **measured, **{f"predicted_{key}": value for key, value in predicted.items()})  # fmt: skip


# --- chaos ---


def measure_chaos(rows: Rows, faults: int, seed: int) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    chaos = importlib.import_module("daemon_chaos")
    with tempfile.TemporaryDirectory() as name, Fabric(4, "500mbit") as fabric:
        row = chaos.long_chaos(Path(name), fabric.hosts, servers_of(fabric, 3), seed, faults)
    rows.add(kind="chaos", seed=seed, faults=faults, **row)


# --- goals ---


def goals(rows: list[dict]) -> list[tuple[str, str, bool]]:
    found = []
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in PARTS}
    for row in of["links"]:
        if row["reserved"]:
            found.append((f"job {row['job']} gets what it reserved, within 5 %", f"{row['off']:+.1%}", abs(row["off"]) <= 0.05))
    for row in of["store"]:
        found += [
            ("1,000 durable submits a second", f"{row['submits_per_s']:.0f}", row["submits_per_s"] >= 1000),
            ("restart with 10,000 jobs under 5 s", f"{row['restart_s']:.2f} s", row["restart_s"] < 5),
            ("queue under 200 ms then", f"{row['queue_s'] * 1e3:.0f} ms", row["queue_s"] < 0.2),
            ("top under 200 ms then", f"{row['top_s'] * 1e3:.0f} ms", row["top_s"] < 0.2),
        ]
    for row in of["start"]:
        found += [
            ("up answers within 2 s", f"{max(row['up_s'], row['up_again_s']):.2f} s", max(row["up_s"], row["up_again_s"]) < 2),
            ("first line under 1.5 s", f"{row['first_line_s']:.2f} s, interpreter {row['interpreter_s']:.2f}", row["first_line_s"] < 1.5),
        ]
    for row in of["policies"]:
        for what in ("total_utility", "jct_mean_s"):
            off = row[what] / row[f"predicted_{what}"] - 1
            found.append((f"{row['policy']}: {what} as simulated, within 15 %", f"{row[what]:.1f} ({off:+.0%})", abs(off) <= 0.15))
    for row in of["chaos"]:  # a row exists only where every job ended or said why, no two epochs committed, and nothing was left
        enough = row["faults"] >= 200 and row["jobs"] >= 30
        reached = f"{row['faults']} over {row['jobs']}, {row['finished']} finished"
        found.append(("200 faults over 30 jobs: all end or say why", reached, enough))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.bench_cluster", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--faults", type=int, default=200, help="of chaos")
    parser.add_argument("--seed", type=int, default=1, help="of chaos")
    arguments = parser.parse_args()
    if os.geteuid() != 0 and arguments.only in (None, "links", "chaos"):
        parser.error("network namespaces need root: run as root, or choose another part by --only")
    rows = Rows("cluster", "cluster")
    if arguments.only and rows.path.exists():
        rows.rows = [row for row in json.loads(rows.path.read_text()) if row["kind"] != arguments.only]
    rows.path.parent.mkdir(exist_ok=True)
    measures = {"links": measure_links, "store": measure_store, "start": measure_start, "policies": measure_policies,
                "chaos": lambda to: measure_chaos(to, arguments.faults, arguments.seed)}  # fmt: skip
    for part in [arguments.only] if arguments.only else PARTS:
        progress(f"{part} ...")
        measures[part](rows)
    for what, value, met in goals(rows.rows):
        print(f"{what:60} {value:30} {'met' if met else 'MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

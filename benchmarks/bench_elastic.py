# SPDX-License-Identifier: Apache-2.0
"""What it costs when workers come, go and are lost: `make bench-elastic` writes bench/elastic.json and prints a table.

Rows by kind:
  resize     one planned change: `stall_s`, for which no step was committed, from the last one before it to the first one after it on the
             slowest worker, less an ordinary iteration; from and to how many workers; `asked_s`, from the order to its end
  failure    a worker killed, or frozen, anywhere in an iteration: `lost_s`, from the fault to the next step committed by every survivor
  overhead   `iteration_s` of a fixed number of workers, in the loop and without it, in alternating rounds; on shared memory, and with every
             edge paced to `bandwidth`, where communication takes about as long as computing
  chaos      one run with many random faults and resizes (python/tests/chaos.py): `events`; `between_s`, the median of an iteration's time
             between them with 4 workers, and `calm_s`, that of a run beside it to which nothing happens; how much memory a process gained
`peer` is maypole where there is none; torchrun's elastic agents are measured beside it. --only measures one
part, and keeps the others' rows.
State is 100 MB (parameters and both moments of AdamW, float32) on one host.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import ROOT, Rows, maypole_program, progress, worker_environment
from benchmarks.elastic_peers import measure_torchrun, steps_written

STATE_BYTES = 100_000_000
CHAOS_WINDOW = 20  # steps
STEPS_PER_EVENT = 25  # at most
PACE = "2Gbps"  # of a ring edge
LIMIT_S = 120


class Job:
    """A run of benchmarks/elastic_worker.py."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        most: int,
        kind: str = "loop",
        retries: int = 0,
        update: str = "replicated",
        bandwidth: str = "",
    ):
        self.folder = folder
        self.name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        options = ["--elastic", "--workers", f"1:{most}", "--name", self.name, "--retries", str(retries)] if kind == "loop" else []
        options += ["--bandwidth", bandwidth] if bandwidth else []
        script = [sys.executable, "-m", "benchmarks.elastic_worker", str(folder), str(STATE_BYTES), kind, update]
        self.output = (folder / "output").open("w")
        self.process = subprocess.Popen(
            [maypole_program(), "run", "-n", str(workers), *options, "--", *script],
            cwd=ROOT, env=worker_environment(), stdout=self.output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def steps(self) -> dict[int, list[dict]]:
        return steps_written(self.folder)

    def wait_until(self, condition, what: str):
        deadline = time.monotonic() + LIMIT_S
        while not (value := condition(self.steps())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{what} did not come:\n{(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(0.02)
        return value

    def wait_for_more(self, count: int) -> None:
        """Until every worker that trains now has committed `count` more steps."""
        newest = max((line["step"] for lines in self.steps().values() for line in lines), default=-1)
        self.wait_until(lambda steps: any(line["step"] >= newest + count for lines in steps.values() for line in lines[-1:]), "more steps")

    def resize(self, workers: int) -> float:
        began = time.monotonic()
        subprocess.run([maypole_program(), "resize", self.name, str(workers)], check=True, capture_output=True, timeout=LIMIT_S)
        return time.monotonic() - began

    def workers(self) -> dict[int, int]:
        """Process ids by worker number."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if b"benchmarks.elastic_worker" in command and str(self.folder).encode() in command and b"run" not in command:
                    variables = dict(v.split(b"=", 1) for v in (entry / "environ").read_bytes().split(b"\0") if b"=" in v)
                    found[int(variables[b"RANK"])] = int(entry.name)
            except OSError:
                continue
        return found

    def end(self) -> None:
        (self.folder / "end").touch()
        if self.process.wait(LIMIT_S) != 0:
            raise RuntimeError((self.folder / "output").read_text()[-3000:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(LIMIT_S)
        self.output.close()


def iteration_s(lines: list[dict]) -> float:
    gaps = [b["at"] - a["at"] for a, b in zip(lines, lines[1:]) if a["workers"] == b["workers"]]
    return statistics.median(gaps)


def measure_resizes(rows: Rows, count: int, most: int, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, Job(Path(name), 2, most) as job:
        job.wait_for_more(5)
        now = 2
        for _ in range(count):
            target = rng.choice([n for n in range(1, most + 1) if n != now])
            asked = job.resize(target)
            job.wait_for_more(4)
            steps = job.steps()
            stalls = []
            for lines in steps.values():
                for before, after in zip(lines, lines[1:]):
                    if (before["workers"], after["workers"]) == (now, target):
                        stall = after["at"] - before["at"]  # the last such change is this one
                        found = (after["step"], stall)
                        stalls.append(found)
            last = max(step for step, _ in stalls)
            stall = max(stall for step, stall in stalls if step == last)
            usual = max(iteration_s(lines[-8:]) for lines in steps.values() if len(lines) > 8 and lines[-1]["step"] >= last)
            rows.add(kind="resize", workers=now, to=target, stall_s=max(0.0, stall - usual), asked_s=asked, state_bytes=STATE_BYTES)
            progress(f"{now} -> {target}: {stall - usual:.3f} s, {asked:.1f} s after it was asked for")
            now = target
        job.end()


def measure_failures(rows: Rows, count: int, workers: int, seed: int, update: str) -> None:
    """One worker after the other, killed and frozen in turn, until one is left; then a new run."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        with tempfile.TemporaryDirectory() as name, Job(Path(name), workers, workers, update=update) as job:
            job.wait_for_more(5)
            for size in range(workers, 1, -1):
                job.wait_for_more(5)
                alive = job.workers()
                time.sleep(rng.uniform(0, max(iteration_s(job.steps()[worker][-4:]) for worker in alive)))  # anywhere in an iteration
                fault = ("killed", "frozen")[made % 2]
                victim, pid = rng.choice(sorted(alive.items()))
                at = time.time()
                os.kill(pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
                survivors = [worker for worker in alive if worker != victim]

                def resumed(steps, survivors=survivors, at=at, size=size):
                    first = [next((l["at"] for l in steps[w] if l["at"] > at and l["workers"] < size), None) for w in survivors]  # noqa: E741
                    return max(first) if None not in first else None

                lost = job.wait_until(resumed, "the next step") - at
                rows.add(kind="failure", fault=fault, update=update, workers=size, victim=victim, lost_s=lost, state_bytes=STATE_BYTES)
                progress(f"{update}, {fault} worker {victim} of {size}: {lost:.2f} s")
                made += 1
                if made == count:
                    break
            job.end()


def measure_overhead(rows: Rows, workers: int, rounds: int) -> None:
    for _ in range(rounds):
        for bandwidth, kind in itertools.product(("", PACE), ("plain", "loop")):
            with tempfile.TemporaryDirectory() as name, Job(Path(name), workers, workers, kind, bandwidth=bandwidth) as job:
                job.wait_for_more(5)
                job.wait_for_more(30)
                job.end()
                usual = max(iteration_s(lines[5:]) for lines in job.steps().values())
            facts = {"workers": workers, "bandwidth": bandwidth or None, "state_bytes": STATE_BYTES}
            rows.add(kind="overhead", peer=f"maypole-{kind}", iteration_s=usual, **facts)
            progress(f"{kind}, {bandwidth or 'not paced'}: {usual * 1e3:.1f} ms an iteration")


def measure_chaos(rows: Rows, events: int, seed: int, update: str) -> None:
    """4 to 8 workers; what is lost is replaced. The end is compared with one undisturbed process. A run of 4 workers to which nothing
    happens trains in turn with it, so that what else the machine does is in both times of an iteration."""
    sys.path[:0] = [str(ROOT / "python" / "tests"), str(ROOT / "python")]
    from chaos import EVENTS, Chaos

    began = time.monotonic()
    calm_s, between_s = [], []
    settings = {"start": 4, "heartbeat": "4s", "samples": 20 * (STEPS_PER_EVENT * (events + 5) // 3), "update": update}
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        chaos = stack.enter_context(Chaos(folders[0], seed, least=4, most=8, most_leave=4, replace=True, **settings))
        calm = stack.enter_context(Chaos(folders[1], seed, **settings))
        order = [event for _ in range(-(-events // len(EVENTS))) for event in chaos.random.sample(EVENTS, len(EVENTS))]
        for k, event in enumerate(order[:events]):
            chaos.happen(event)
            chaos.note_usage()
            if len(chaos.members) == 4:
                between_s.append(chaos.iteration_s(CHAOS_WINDOW))
                calm_s.append(calm.iteration_s(CHAOS_WINDOW))
            else:
                calm.settle()  # it gives up when it has to wait for too long
            progress(f"{k + 1} of {events}: {event} at step {chaos.newest()}, {len(chaos.members)} workers, {chaos.happened[-1][-1]} s")
        chaos.finish()
        rows.add(
            kind="chaos", update=update, events=events, workers=4, calm_s=statistics.median(calm_s), between_s=statistics.median(between_s),
            windows=len(calm_s), real_disk=chaos.has_disk, most_descriptors=max(chaos.most_descriptors.values()),
            memory_growth=max(found[-1] - found[0] for found in chaos.memory.values()), seconds=time.monotonic() - began, seed=seed,
        )  # fmt: skip


def show(rows: list[dict]) -> None:
    for peer in ("maypole", "torchrun"):
        own = [row for row in rows if row.get("peer", "maypole") == peer]
        stalls = sorted(row["stall_s"] for row in own if row["kind"] == "resize")
        if stalls:
            late = stalls[min(len(stalls) - 1, int(0.99 * len(stalls)))]
            print(f"{peer}, planned resizes: {len(stalls)}, no step for {statistics.median(stalls):.3f} s (median), {late:.3f} s (p99)")
        for update, fault in ((update, fault) for update in (*UPDATES, None) for fault in ("killed", "frozen")):
            lost = [r["lost_s"] for r in own if r["kind"] == "failure" and r["fault"] == fault and r.get("update") == update]
            if lost:
                times = f"{statistics.median(lost):.2f} s, at most {max(lost):.2f} s"
                print(f"{' '.join(filter(None, (peer, update, fault)))} workers: {len(lost)}, next step after {times}")
    for row in rows:
        if row["kind"] == "chaos":
            kept = f"{row['calm_s'] / row['between_s']:.0%} of the undisturbed throughput"
            print(f"chaos, {row['update']}: {row['events']} events in {row['seconds']:.0f} s, parity at the end, {kept} between them")
    by_peer = {}
    for row in rows:
        if row["kind"] == "overhead":
            by_peer.setdefault((row["peer"], row.get("bandwidth") or "not paced"), []).append(row["iteration_s"])
    for (peer, pace), values in by_peer.items():
        print(f"{peer}, {pace}: {statistics.median(values) * 1e3:.2f} ms an iteration ({len(values)} rounds)")


UPDATES = ("replicated", "sharded")
def show_goals(rows: list[dict]) -> None:
    """What the numbers of the elastic slice are to be. A row of chaos exists only where the end had numeric parity and nothing was left."""
    own = [row for row in rows if row.get("peer", "maypole") != "torchrun"]
    goals = []
    stalls = sorted(row["stall_s"] for row in own if row["kind"] == "resize")
    if stalls:
        median, late = statistics.median(stalls), stalls[min(len(stalls) - 1, int(0.99 * len(stalls)))]
        goals.append(("planned resize, median, at most 0.3 s", f"{median:.3f} s", median <= 0.3))
        goals.append((f"planned resize, p99 (of {len(stalls)}; 50), at most 1 s", f"{late:.3f} s", late <= 1 and len(stalls) >= 50))
    for update in UPDATES:
        lost = [(row["lost_s"], row["workers"]) for row in own if row["kind"] == "failure" and row.get("update") == update]
        if lost:
            worst, most = max(lost)[0], max(workers for _, workers in lost)
            goals.append((f"lost worker, {update}, up to 8, at most 5 s", f"{worst:.2f} s (up to {most})", worst <= 5 and most >= 8))
        for row in own:
            if row["kind"] == "chaos" and row["update"] == update:
                kept = row["calm_s"] / row["between_s"]
                goals.append((f"chaos, {update}, 200 events", f"{row['events']}, with parity", row["events"] >= 200))
                goals.append((f"chaos, {update}, throughput kept, at least 90 %", f"{kept:.1%}", kept >= 0.9))
    for pace in dict.fromkeys(row["bandwidth"] for row in own if row["kind"] == "overhead"):
        times = {kind: [row["iteration_s"] for row in own if row.get("peer") == f"maypole-{kind}" and row["bandwidth"] == pace]
                 for kind in ("loop", "plain")}  # fmt: skip
        if times["loop"] and times["plain"]:
            cost = statistics.median(times["loop"]) / statistics.median(times["plain"]) - 1
            goals.append((f"machinery without faults, {pace or 'not paced'}, less than 1 %", f"{cost:+.2%}", cost < 0.01))
    for goal, figure, met in goals:
        print(f"{goal:<60} {figure:>24}  {'met' if met else 'MISSED'}")


PARTS = ("resize", "failure", "overhead", "torchrun", "chaos")


def part_of(row: dict) -> str:
    return "torchrun" if row.get("peer") == "torchrun" else row["kind"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--resizes", type=int, default=50)
    parser.add_argument("--failures", type=int, default=7, help="for each kind of update")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=3, help="of torchrun")
    parser.add_argument("--faults", type=int, default=200, help="of the chaos run")
    parser.add_argument("--sizes", type=int, default=4, help="workers at most, in resizes")
    parser.add_argument("--workers", type=int, default=8, help="at first, in failures: one after the other is lost")
    parser.add_argument("--updates", nargs="+", choices=UPDATES, default=UPDATES, help="of the chaos run and of failures")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows = Rows("elastic", "resize")
    if arguments.only and rows.path.exists():
        rows.rows = [row for row in json.loads(rows.path.read_text()) if part_of(row) != arguments.only]
    for part in [arguments.only] if arguments.only else PARTS:
        if part == "resize":
            measure_resizes(rows, arguments.resizes, arguments.sizes, arguments.seed)
        elif part == "failure":
            for update in arguments.updates:
                measure_failures(rows, arguments.failures, arguments.workers, arguments.seed, update)
        elif part == "overhead":
            measure_overhead(rows, 2, arguments.rounds)
        elif part == "torchrun":
            measure_torchrun(rows, arguments.restarts, STATE_BYTES)
        else:
            for update in arguments.updates:
                measure_chaos(rows, arguments.faults, arguments.seed, update)
    show(rows.rows)
    show_goals(rows.rows)


if __name__ == "__main__":
    main()

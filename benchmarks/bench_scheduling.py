# SPDX-License-Identifier: Apache-2.0
"""Scheduling policies against their bounds: `make bench-scheduling` writes bench/scheduling.json and prints goals, met or MISSED.

paper-*        the paper's setting, both readings of F: of what the jobs can reach alone; the published ratios beside ours; Algorithm 1
contended-*    of the horizon's LP bound; against every baseline in its strongest variant
tight, tiny    a slot's objective against the integer optimum, on links that bind; whole runs against the offline optimum
speed-*        seconds a slot, up to 10,000 servers, and the gap to the bound; how both grow (bench/scheduling-growth.svg)
itp-*          ten clusters of Microsoft, where MAYPOLE_TRACES names the folder that holds them
pollux-*       Pollux' workloads at four loads, from the same folder

Each part has a time limit of its own: what it has measured by then stands, and its goals say how much that is. Parts can be run one by
one: rows of the others stay in the file (--quick has a file of its own). Bounds come from the same run. Every run is verified by the
schedule checker.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked
from benchmarks.scheduling_goals import BASELINES, PAPER_POLICIES, THRESHOLDS, goals
from benchmarks.scheduling_growth import growth_svg

WHOLE_S = 44 * 60  # the limit of the whole run, with a minute left for the build
QUICK_S = 170


class PartRows(Rows):
    """Rows of which a part replaces its own and leaves the others."""

    def __init__(self, name: str):
        super().__init__(name, "scheduling")
        self.part = ""
        if self.path.exists():
            self.rows = json.loads(self.path.read_text())

    def start(self, part: str) -> None:
        self.rows = [row for row in self.rows if row.get("part") != part]
        self.part = part

    def add(self, **values) -> None:
        super().add(part=self.part, **values)


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class TimeUpError(Exception):
    pass


class Bench:
    """One part while it is measured: runs programs within the part's time and keeps their rows."""

    def __init__(self, quick: bool):
        self.quick = quick
        self.rows = PartRows("scheduling-quick" if quick else "scheduling")
        self.deadline = 0.0

    def left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeUpError
        return left

    def run(self, command: list[str], what: str) -> str:
        try:
            return run_checked(command, what, self.left())
        except RuntimeError:
            self.left()  # ended by the part's limit, not by a fault of its own
            raise

    def keep(self, case: str, result: dict, **more) -> None:
        copied = ("servers", "jobs", "decision_p50_s", "decision_p99_s", "seed", "reach_alone", "jct_mean_s", "jct_p50_s", "jct_p99_s",
                  "makespan_s", "jobs_finished", "gap_mean", "resizes_per_job", "preemptions_per_job", "utilisation", "violations",
                  "offered_load", "stopped", "notes")
        self.rows.add(case=case, policy=result["policy"], utility=result["total_utility"], bound=result["utility_bound"],
                      **{name: result[name] for name in copied}, **more)

    def compare(self, case: str, policies: tuple[str, ...], *arguments: str) -> None:
        """All policies on one instance: its bound is found once."""
        output = self.run([maypole_program(), "compare", "--json", "--policies", ",".join(policies), *arguments], case)
        for result in json.loads(output[output.index("[") : output.rindex("]") + 1]):
            self.keep(case, result)

    def simulate(self, case: str, policy: str, *arguments: str, **more) -> None:
        before = children_s()
        output = self.run([maypole_program(), "simulate", "--json", "--policy", policy, *arguments], f"{case} under {policy}")
        cpu_s = children_s() - before  # of one thread: what it takes on a quiet machine
        self.keep(case, json.loads(output[output.index("{") : output.rindex("}") + 1]), cpu_s=cpu_s, **more)

    def slots(self, case: str, *arguments: str) -> list[dict]:
        program = Path(maypole_program()).parent / "benchmarks" / "bench_slots"
        if not program.exists():
            raise SystemExit(f"{program} is missing: run `make build` first")
        output = self.run([str(program), *arguments], case)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def paper(budget: str) -> Callable[[Bench], None]:
    def measure(bench: Bench) -> None:
        for seed in range(1, 2 if bench.quick else 21):
            for jobs in (40, 60, 80, 100):
                bench.compare(f"paper-{budget}", PAPER_POLICIES, "--workload", "paper", "--jobs", str(jobs), "--budget", budget, "--seed",
                              str(seed))

    return measure


def paper_algorithm(bench: Bench) -> None:
    for seed in range(1, 2 if bench.quick else 4):
        for jobs in (40, 60, 80, 100):
            policies = ("gadget-paper", "gadget-paper:published")
            bench.compare("paper-algorithm", policies, "--workload", "paper", "--jobs", str(jobs), "--seed", str(seed))


def contended(utility: str) -> Callable[[Bench], None]:
    def measure(bench: Bench) -> None:
        for seed in range(1, 2 if bench.quick else 11):
            bench.compare(f"contended-{utility}", ("gadget", *BASELINES), "--workload", "paper-contended", "--utility", utility, "--seed",
                          str(seed))

    return measure


def tight(bench: Bench) -> None:
    for seed in range(1, 11 if bench.quick else 201):  # one by one: a cut part keeps what it has
        for result in bench.slots("tight", "tight", "1", str(seed), "gadget"):
            bench.rows.add(
                case="tight", policy="gadget", servers=result["servers"], jobs=result["jobs"], decision_p50_s=result["seconds"],
                decision_p99_s=result["seconds"], utility=result["utility"], bound=result["exact_bound"], seed=result["seed"],
                exact=result["exact"], exact_limited=result["exact_limited"], exact_s=result["exact_seconds"],
                violations=result["violations"],
            )


def tiny(bench: Bench) -> None:
    for result in bench.slots("tiny", "tiny", str(20 if bench.quick else 200), "1", "gadget"):
        bench.rows.add(
            case="tiny", policy="gadget", servers=3, jobs=3, decision_p50_s=None, decision_p99_s=None, utility=result["utility"],
            bound=result["offline"], seed=result["seed"], proven=result["proven"], violations=result["violations"],
        )


def speed_paper(bench: Bench) -> None:
    for seed in range(1, 4 if bench.quick else 21):
        for _ in range(3):  # one preemption of the process costs a tick of the kernel, more than most slots take
            bench.simulate("speed-paper", "gadget", "--workload", "paper", "--jobs", "100", "--seed", str(seed))


def speed_row(bench: Bench, case: str, result: dict) -> None:
    bench.rows.add(
        case=case, policy="gadget", servers=result["servers"], jobs=result["jobs"], decision_p50_s=result["seconds"],
        decision_p99_s=result["seconds_max"], utility=result["utility"], bound=result["bound"], gap=result["gap"],
        running=result["running"], embedded=result["embedded"], limited=result["limited"], violations=result["violations"],
    )


def speed_servers(kind: str) -> Callable[[Bench], None]:
    def measure(bench: Bench) -> None:
        for servers in (100, 300, 1000) if bench.quick else (100, 200, 500, 1000, 2000, 5000, 10000):
            speed_row(bench, f"speed-{kind}", bench.slots("speed", "large", str(servers), str(servers // 2), kind, "1")[0])

    return measure


def speed_jobs(bench: Bench) -> None:
    for jobs in (125, 500) if bench.quick else (125, 250, 500, 1000, 2000, 4000):
        for kind in ("slack", "tight"):
            speed_row(bench, f"speed-jobs-{kind}", bench.slots("speed", "large", "1000", str(jobs), kind, "1")[0])


def speed_lingjun(bench: Bench) -> None:
    topology = traces("alibaba-lingjun-2023/topo.csv")
    if topology:
        speed_row(bench, "speed-lingjun", bench.slots("lingjun", "hosts", "8", "500", "1", str(topology))[0])
    else:
        progress("       speed-lingjun: left out: MAYPOLE_TRACES does not name a folder that holds its topology")


def traces(inner: str) -> Path | None:
    folder = os.environ.get("MAYPOLE_TRACES")
    path = Path(folder) / inner if folder else None
    return path if path and path.exists() else None


def itp(path: Path) -> Callable[[Bench], None]:
    name = path.name.split(".")[0]

    def measure(bench: Bench) -> None:
        setting = ("--workload", str(path), "--slot", "300s")
        las = ("las:continuous", *(f"las:threshold={threshold}" for threshold in THRESHOLDS))
        for policy in ("fifo", "srtf", "drf", "optimus", *las, "gadget", "gadget-blind"):
            bench.simulate(f"itp-{name}-rigid", policy, *setting)
        for policy in ("optimus", "gadget"):
            bench.simulate(f"itp-{name}-elastic", policy, *setting, "--elastic")

    return measure


def pollux(folder: Path, load: str) -> Callable[[Bench], None]:
    workloads = folder / ("workloads" if load == "1.0" else f"workloads-{load}")

    def measure(bench: Bench) -> None:
        for number in (1,) if bench.quick else range(1, 9):
            setting = ("--workload", str(workloads / f"workload-{number}.csv"), "--slot", "60s", "--elastic")
            published = {}
            for policy in ("pollux", "tiresias", "optimus"):
                means = json.loads((folder / "published-results" / f"{policy}-{load}.json").read_text())["avgs"]
                published[policy] = means.get(f"workload-{number}")
            for policy in ("las", "optimus", "gadget"):
                bench.simulate(f"pollux-{load}", policy, *setting, workload=number, published_jct_mean_s=published)

    return measure


@dataclass
class Part:
    name: str
    measure: Callable[[Bench], None]
    limit_s: float
    quick: bool = True


def parts() -> list[Part]:
    made = [Part(f"paper-{budget}", paper(budget), 180) for budget in ("worker-slots", "iterations")]
    made.append(Part("paper-algorithm", paper_algorithm, 90))
    made += [Part(f"contended-{utility}", contended(utility), 180) for utility in ("sigmoid", "sqrt")]
    made += [Part("tiny", tiny, 60), Part("speed-paper", speed_paper, 90)]
    made += [Part(f"speed-{kind}", speed_servers(kind), 150) for kind in ("slack", "tight")]
    made += [Part("speed-jobs", speed_jobs, 100), Part("speed-lingjun", speed_lingjun, 30)]
    made.append(Part("tight", tight, 600))
    folder = traces("microsoft-itp-elasticflow/raw")
    for path in sorted(folder.glob("cluster*.csv*")) if folder else []:
        name = path.name.split(".")[0]
        made.append(Part(f"itp-{name}", itp(path), 150, quick=name in ("cluster05", "cluster10")))
    if folder := traces("pollux-osdi21"):
        made += [Part(f"pollux-{load}", pollux(folder, load), 300, quick=load == "0.5") for load in ("0.5", "1.0", "1.5", "2.0")]
    return made


def chosen(wanted: str, known: list[Part], quick: bool) -> list[Part]:
    """The parts that begin with one of the words; a word that fits none ends the program."""
    if not wanted:
        return [part for part in known if part.quick or not quick]
    picked = []
    for word in wanted.split(","):
        fitting = [part for part in known if part.name == word or part.name.startswith(word + "-")]
        if not fitting:
            hint = "; traces need MAYPOLE_TRACES" if not traces("") else ""
            raise SystemExit(f"--parts: '{word}' is none of {', '.join(part.name for part in known)}{hint}")
        picked += [part for part in fitting if part not in picked]
    return picked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under 3 minutes: fewer seeds, smaller clusters, two traces")
    parser.add_argument("--parts", default="", help="comma-separated names or their beginnings, as in `paper,speed-slack`; default: all")
    parser.add_argument("--patience", type=float, default=1, help="a factor on every time limit: for a machine that is busy otherwise")
    parser.add_argument("--goals", action="store_true", help="measure nothing: judge the rows that are there")
    options = parser.parse_args()
    bench = Bench(options.quick)
    end = time.monotonic() + (QUICK_S if options.quick else WHOLE_S) * options.patience
    selected = [] if options.goals else chosen(options.parts, parts(), options.quick)
    if selected and not traces(""):
        progress("       real traces are left out: MAYPOLE_TRACES does not name their folder")
    for number, part in enumerate(selected, 1):
        began = time.monotonic()
        bench.rows.start(part.name)
        bench.deadline = min(end, began + part.limit_s * options.patience)
        try:
            part.measure(bench)
            cut = ""
        except TimeUpError:
            cut = ", cut by its time limit"
        progress(f"[{number}/{len(selected)}] {part.name}: {time.monotonic() - began:.0f} s{cut}")
    print("\n".join(goals(bench.rows.rows)))
    if picture := growth_svg(bench.rows.rows):
        path = bench.rows.path.with_name(f"{bench.rows.path.stem}-growth.svg")
        path.write_text(picture)
        print(f"growth in {path.relative_to(ROOT)}")
    print(f"{len(bench.rows.rows)} rows in {bench.rows.path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

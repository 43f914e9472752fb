# SPDX-License-Identifier: Apache-2.0
"""Collectives against gloo and Open MPI: `make bench-collectives` writes bench/collectives.json and prints a table.

Every peer runs the same cases with the same checks of every element (collective_cases.h) and the same allocator settings, each worker
in its own namespace behind a shaped link; the goodput of the link is measured in the same run by one plain TCP stream, and
bound_s = 2 (P-1)/P * bytes / goodput for all-reduce, half of it for each half. median_s is the median over repetitions of the slowest rank.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.common import ALLOCATOR, ROOT, Rows, maypole_program, progress, run_checked, tagged_results, worker_environment
from benchmarks.fabric import Fabric, build_program

KIB, MIB = 1 << 10, 1 << 20
OPS = ("all_reduce", "reduce_scatter", "all_gather")
PEERS = ("maypole", "gloo", "openmpi")
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
# link -> largest size. Slower links stop earlier: a repetition of one case stays below about six seconds.
LARGEST = {
    "shm": 64 * MIB, "unshaped": 64 * MIB, "100mbit": 16 * MIB, "500mbit": 64 * MIB, "1gbit": 256 * MIB, "1gbit-5ms": 64 * MIB,
}
NOMINAL = {"100mbit": 12e6, "500mbit": 60e6, "1gbit": 119e6, "1gbit-5ms": 119e6}


def repetitions(link: str, size: int, quick: bool) -> tuple[int, int]:
    """(repetitions, inner): small buffers run back to back, slow cases less often."""
    if size <= 64 * KIB:
        slow = link in ("100mbit", "1gbit-5ms")
        return (5 if quick else 9), (10 if slow else 50)
    seconds = 2 * size / NOMINAL.get(link, 2e9)
    return (3 if quick else int(max(3, min(9, 9 / seconds))) if seconds else 9), 1


def cases(link: str, ops: list[str], sizes: list[int], quick: bool) -> list[str]:
    return [f"{op}:{size}:{':'.join(map(str, repetitions(link, size, quick)))}" for size in sizes for op in ops]


def run_maypole(fabric: Fabric | None, workers: int, work: list[str], timeout: float) -> str:
    where = ["--hosts", fabric.hosts_option, "--launcher", fabric.launcher] if fabric else ["-n", str(workers), "--transport", "shm"]
    command = [maypole_program(), "run", *where, "--", build_program("bench_ring"), *work]
    return run_checked(command, f"maypole with {workers} workers", timeout, env=worker_environment())


def run_gloo(fabric: Fabric | None, workers: int, work: list[str], timeout: float) -> str:
    program = [sys.executable, str(ROOT / "benchmarks" / "gloo_collectives.py"), *work]
    processes = []
    for rank in range(workers):
        environment = worker_environment(
            RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR=fabric.addresses[0] if fabric else "127.0.0.1", MASTER_PORT="29511",
            GLOO_SOCKET_IFNAME="eth0" if fabric else "lo",
        )
        command = fabric.enter(rank, program) if fabric else program
        processes.append((command, environment))
    return run_together(processes, f"gloo with {workers} workers", timeout)


def run_together(processes: list[tuple[list[str], dict]], what: str, timeout: float) -> str:
    """Runs one command a rank; all must succeed. Returns the output of rank 0."""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(len(processes)) as pool:
        runs = [pool.submit(run_checked, command, f"{what}, rank {r}", timeout, env=env) for r, (command, env) in enumerate(processes)]
        return [run.result() for run in runs][0]


def run_openmpi(fabric: Fabric | None, workers: int, work: list[str], timeout: float) -> str:
    """Open MPI at its defaults over tcp between namespaces, over shared memory on one host."""
    export = [word for name in [*ALLOCATOR, "OMP_NUM_THREADS"] for word in ("-x", name)]
    common = ["mpirun", "--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1", *export]
    program = [build_program("openmpi_collectives"), *work]
    if fabric is None:
        command = [*common, "--mca", "btl", "vader,self", "-n", str(workers), "--oversubscribe", *program]
        return run_checked(command, f"Open MPI with {workers} workers", timeout, env=worker_environment())
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "agent"
        arms = "".join(f"{address}) n={host};; " for address, host in zip(fabric.addresses, fabric.hosts))
        agent.write_text(f'#!/bin/bash\nh=$1; shift; case $h in {arms}esac\nexec nsenter --net=/run/netns/$n bash -c "$*"\n')
        agent.chmod(0o755)
        command = fabric.enter(0, [
            *common, "--mca", "plm_rsh_agent", str(agent), "-H", ",".join(f"{address}:1" for address in fabric.addresses),
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none",
            *program,
        ])
        return run_checked(command, f"Open MPI with {workers} workers", timeout, env=worker_environment())


RUN = {"maypole": run_maypole, "gloo": run_gloo, "openmpi": run_openmpi}


def bound(op: str, size: int, workers: int, goodput: float) -> float:
    return (2 if op == "all_reduce" else 1) * (workers - 1) / workers * size / goodput


def measure(rows: Rows, link: str, workers: int, peers: list[str], ops: list[str], sizes: list[int], quick: bool) -> None:
    sizes = [size for size in sizes if size <= LARGEST[link]]
    work = cases(link, ops, sizes, quick)

    def run_all(fabric: Fabric | None) -> list[tuple[str, dict]]:
        results = []
        for peer in peers:
            progress(f"{link}, {workers} workers, {peer} ...")
            try:
                output = RUN[peer](fabric, workers, work, 900)
            except RuntimeError as error:
                progress(f"{peer} failed on {link} with {workers} workers: {error}")
                rows.failed = True
                continue
            results += [(peer, result) for result in tagged_results(output)]
        return results

    goodput = None
    if link == "shm":
        results = run_all(None)
    else:
        with Fabric(workers, link) as fabric:
            # A disturbed measurement would make the bound too easy: the larger of one before and one after counts.
            before = fabric.goodput(1.5 if quick else 3)
            results = run_all(fabric)
            goodput = max(before, fabric.goodput(1.5 if quick else 3))
        progress(f"{link}: a plain TCP stream carries {goodput * 8 / 1e6:.1f} Mbit/s of payload")
    for peer, result in results:
        times = [time / 1e6 for time in result["times_us"]]
        rows.add(
            op=result["op"], bytes=result["bytes"], workers=workers, link=link, peer=peer, median_s=statistics.median(times),
            bound_s=bound(result["op"], result["bytes"], workers, goodput) if goodput else None, min_s=min(times), max_s=max(times),
            goodput=goodput,
        )


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e6:.1f} us" if value < 1e-3 else f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.3f} s"


def size_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def goal_of(row: dict, peers: dict[str, dict]) -> tuple[str, bool | None]:
    """The issue's goal for a row of ours and whether it is met; (\"\", None) where there is none."""
    ours, link, size = row["median_s"], row["link"], row["bytes"]
    others = {name: peers[name]["median_s"] for name in ("gloo", "openmpi") if name in peers}
    if link in ("100mbit", "500mbit", "1gbit") and size >= 4 * MIB:
        return ">= 97 % of the bound", row["bound_s"] / ours >= 0.97
    if link == "1gbit-5ms" and size == 16 * MIB:
        return ">= 90 % of the bound", row["bound_s"] / ours >= 0.90
    if link == "unshaped" and row["workers"] == 2 and size <= 64 * KIB and len(others) == 2:
        return "<= gloo/3, <= 2x Open MPI", ours <= others["gloo"] / 3 and ours <= 2 * others["openmpi"]
    if link == "shm" and row["op"] == "all_reduce" and row["workers"] == 2 and "openmpi" in others and size in (16 * MIB, 64 * MIB):
        factor = 3 if size == 16 * MIB else 1.6
        return f">= {factor}x faster than Open MPI", others["openmpi"] / ours >= factor
    return "", None


def print_table(rows: list[dict]) -> None:
    """Prints one line a case with all peers, and how many of the goals are met."""
    table: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        table.setdefault((row["link"], row["workers"], row["op"], row["bytes"]), {})[row["peer"]] = row
    print(f"{'link':10} {'P':>1} {'op':15} {'size':>8} {'bound':>10} {'maypole':>10} {'of bound':>8} {'gloo':>10} {'openmpi':>10}  goal")
    missed = judged = 0
    for (link, workers, op, size), peers in sorted(table.items(), key=lambda item: (list(LARGEST).index(item[0][0]), *item[0][1:])):
        cells = {peer: seconds(peers[peer]["median_s"]) if peer in peers else "-" for peer in PEERS}
        bound_s = next(iter(peers.values()))["bound_s"]
        share, goal, met = "-", "", None
        if "maypole" in peers:
            if bound_s:
                share = f"{100 * bound_s / peers['maypole']['median_s']:.1f} %"
            goal, met = goal_of(peers["maypole"], peers)
        missed += met is False
        judged += met is not None
        verdict = "" if met is None else f"{goal}: {'met' if met else 'MISSED'}"
        print(f"{link:10} {workers:1} {op:15} {size_text(size):>8} {seconds(bound_s):>10} {cells['maypole']:>10} {share:>8} "
              f"{cells['gloo']:>10} {cells['openmpi']:>10}  {verdict}")
    print(f"{judged - missed} of {judged} goals met")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two workers, few sizes and repetitions: under three minutes")
    parser.add_argument("--links", default=",".join(LARGEST), help="which of " + ", ".join(LARGEST))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--sizes", default="", help="bytes, separated by commas")
    arguments = parser.parse_args()
    links, peers, ops = arguments.links.split(","), arguments.peers.split(","), arguments.ops.split(",")
    for name, given, known in (("--links", links, LARGEST), ("--peers", peers, PEERS), ("--ops", ops, OPS)):
        for word in given:
            if word not in known:
                parser.error(f"{name} {word} is none of {', '.join(known)}")
    if "openmpi" in peers and not shutil.which("mpirun"):
        progress("mpirun is missing (Debian: openmpi-bin, libopenmpi-dev): Open MPI is left out")
        peers.remove("openmpi")
    sizes = [int(size) for size in arguments.sizes.split(",")] if arguments.sizes else SIZES
    worker_counts = [int(count) for count in arguments.workers.split(",")]
    if arguments.quick:
        sizes = [size for size in sizes if size in (4 * KIB, 64 * KIB, 4 * MIB, 16 * MIB)] or sizes
        worker_counts = worker_counts[:1]
    rows = Rows("collectives", "collectives")
    rows.failed = False
    for link in links:
        for workers in worker_counts:
            if link == "shm" and workers > 2:
                continue  # two cores
            measure(rows, link, workers, peers, ops, sizes, arguments.quick)
    print_table(rows.rows)
    progress(f"rows are in {rows.path}")
    return 1 if rows.failed else 0


if __name__ == "__main__":
    sys.exit(main())

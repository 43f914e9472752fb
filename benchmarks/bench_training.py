# SPDX-License-Identifier: Apache-2.0
"""Training against DDP and FSDP2: `make bench-training` writes bench/training.json and prints a table.

Two hosts, one thread each, SGD with momentum. Peers take turns in rounds, because machines are noisy; iteration_s is the median over all
rounds. compute_s is F+B+step of both ranks at once without communication; bound_s = max(F+B, C) with C = bytes / goodput (half the bytes
for bf16); bound_loaded_s the same with F+B measured beside a TCP stream that fills the link in both directions. After the same steps
from the same seed all peers' weights must agree.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_collectives import run_together
from benchmarks.common import ROOT, Rows, maypole_program, progress, run_checked, tagged_results, worker_environment
from benchmarks.fabric import Fabric

CELLS = [
    ("1gbit", "cnn", 32), ("1gbit", "gpt", 16), ("1gbit", "gpt", 8),
    ("500mbit", "cnn", 32), ("500mbit", "gpt", 16), ("500mbit", "gpt", 8),
    ("200mbit", "cnn", 64), ("250mbit", "gpt", 16),
]
PEERS = ["ddp-1", "ddp-5", "ddp-25", "ddp-100", "ddp-1-bf16", "ddp-25-bf16",
         "maypole-sync", "maypole-wfbp", "maypole-dear", "maypole-weave", "maypole-weave-bf16"]
OPTIONAL = ["fsdp2", "maypole-weave-sharded", "maypole-dear-sharded", "maypole-dear-bf16", "ddp-5-bf16"]
WARMUP = 4


def worker(model: str, batch: int, peers: list[str], iterations: int, weights: str) -> list[str]:
    return [
        sys.executable, "-m", "benchmarks.training_worker", "--peers", ",".join(peers), "--model", model, "--batch", str(batch),
        "--warmup", str(WARMUP), "--iterations", str(iterations), "--weights", weights,
    ]


def run_torch(fabric: Fabric, command: list[str]) -> list[dict]:
    """Runs one process a host over gloo; returns rank 0's results."""
    processes = [
        (fabric.enter(rank, command), worker_environment(
            RANK=str(rank), WORLD_SIZE=str(len(fabric.hosts)), MASTER_ADDR=fabric.addresses[0], MASTER_PORT="29512",
            GLOO_SOCKET_IFNAME="eth0", PYTHONPATH=str(ROOT)))
        for rank in range(len(fabric.hosts))
    ]
    return tagged_results(run_together(processes, "torch.distributed", 600))


def run_maypole(fabric: Fabric, command: list[str]) -> list[dict]:
    run = [maypole_program(), "run", "--hosts", fabric.hosts_option, "--launcher", fabric.launcher, "--", *command]
    environment = worker_environment()
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'python'}" if (ROOT / "python").exists() else str(ROOT)
    return tagged_results(run_checked(run, "maypole run", 600, env=environment))


def launches(peers: list[str]) -> list[list[str]]:
    """Peers that share a process: all of DDP, but one of ours and FSDP2 each."""
    ddp = [peer for peer in peers if peer.startswith("ddp")]
    return ([ddp] if ddp else []) + [[peer] for peer in peers if not peer.startswith("ddp")]


def check_weights(folder: Path, model: str) -> str:
    """Compares the final weights of all peers and ranks; returns what differs, or nothing."""
    import torch

    from benchmarks.training_models import make_model

    files = sorted(folder.glob("*.pt"))
    exact = [file for file in files if "bf16" not in file.name]
    if not exact:
        return ""
    reference = torch.load(exact[0])
    start = make_model(model).state_dict()
    moved = sum((reference[key] - start[key]).double().square().sum() for key in start).sqrt()
    for file in files:
        weights = torch.load(file)
        off = sum((weights[key] - reference[key]).double().square().sum() for key in reference).sqrt() / moved
        limit = 0.1 if "bf16" in file.name else 0.01
        if not off <= limit:
            return f"{file.stem} is off {exact[0].stem} by {off:.2g} of the distance trained (limit {limit})"
    return ""


def median(results: list[dict], *names: str) -> float:
    return sum(statistics.median([value for result in results for value in result[name]]) for name in names)


def measure_cell(rows: Rows, link: str, model: str, batch: int, peers: list[str], rounds: int, iterations: int) -> None:
    from benchmarks.training_models import make_model

    num_bytes = 4 * sum(parameter.numel() for parameter in make_model(model).parameters())
    samples: dict[str, list[dict]] = {peer: [] for peer in [*peers, "compute"]}
    with Fabric(2, link) as fabric, tempfile.TemporaryDirectory() as folder:
        goodput = fabric.goodput(2)
        for number in range(rounds):
            progress(f"{link} {model} {batch}: round {number + 1} of {rounds} ...")
            for group in [["compute"], *launches(peers)]:
                command = worker(model, batch, group, iterations, folder)
                for result in (run_maypole if group[0].startswith("maypole") else run_torch)(fabric, command):
                    samples[result["peer"]].append(result)
        with fabric.background_stream():
            loaded = run_torch(fabric, worker(model, batch, ["compute"], iterations, folder))
        goodput = max(goodput, fabric.goodput(2))
        wrong = check_weights(Path(folder), model)
    if wrong:
        rows.failed = True
        progress(f"WRONG: {link} {model} {batch}: {wrong}")
    compute = median(samples["compute"], "forward_s", "backward_s", "step_s")
    fb = median(samples["compute"], "forward_s", "backward_s")
    fb_loaded = median(loaded, "forward_s", "backward_s")
    for peer in peers:
        communication = num_bytes / goodput / (2 if peer.endswith("bf16") else 1)
        rows.add(
            model=model, batch=batch, link=link, workers=2, peer=peer, iteration_s=median(samples[peer], "iteration_s"),
            compute_s=compute, bound_s=max(fb, communication), bound_loaded_s=max(fb_loaded, communication),
            forward_backward_s=fb, forward_backward_loaded_s=fb_loaded, communication_s=communication, goodput=goodput,
            weights_agree=not wrong,
        )


def print_table(rows: list[dict]) -> None:
    cells: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        cells.setdefault((row["link"], row["model"], row["batch"]), {})[row["peer"]] = row
    for (link, model, batch), peers in cells.items():
        one = next((row for peer, row in peers.items() if not peer.endswith("bf16")), next(iter(peers.values())))
        ratio = one["communication_s"] / one["forward_backward_s"]
        ms = {name: f"{1e3 * value:.0f}" for name, value in one.items() if name.endswith("_s")}
        print(f"\n{link} {model} {batch}: F+B {ms['forward_backward_s']} ms ({ms['forward_backward_loaded_s']} beside a full link), "
              f"F+B+step {ms['compute_s']}, C {ms['communication_s']}, bound {ms['bound_s']} ({ms['bound_loaded_s']} loaded)"
              f"{'' if one['weights_agree'] else ', WEIGHTS DIFFER'}")
        for peer, row in peers.items():
            print(f"  {peer:22} {row['iteration_s'] * 1e3:7.1f} ms   {row['iteration_s'] / row['bound_s']:5.2f} x bound   "
                  f"{row['iteration_s'] / row['bound_loaded_s']:5.2f} x loaded bound")
        for line in goals(link, ratio, peers):
            print(f"  {line}")


def above(time: float, reference: float) -> str:
    return f"{100 * (time / reference - 1):+.1f} %"


def goals(link: str, ratio: float, peers: dict[str, dict]) -> list[str]:
    """What the issue asks of a cell, beside what was measured."""
    weave = peers.get("maypole-weave")
    if not weave:
        return []
    t = weave["iteration_s"]
    exact = {peer: row["iteration_s"] for peer, row in peers.items() if not peer.endswith("bf16") and not peer.endswith("sharded")}
    lines = []

    def judge(text: str, met: bool) -> None:
        lines.append(f"{'met   ' if met else 'MISSED'} {text}")

    fastest = min(exact, key=exact.get)
    judge(f"weave within 2 % of the fastest ({fastest}): {above(t, exact[fastest])}", t <= 1.02 * exact[fastest])
    if "maypole-dear" in exact:
        judge(f"weave at most 2 % behind dear: {above(t, exact['maypole-dear'])}", t <= 1.02 * exact["maypole-dear"])
    ddp = {peer: time for peer, time in exact.items() if peer.startswith("ddp")}
    if 0.75 <= ratio <= 1.33:
        gain, share = (1.15, 1.18) if link == "1gbit" else (1.25, 1.10)
        if ddp:
            best = min(ddp, key=ddp.get)
            judge(f"weave >= {gain}x over the best DDP ({best}): {ddp[best] / t:.2f}x", ddp[best] / t >= gain)
        judge(f"weave within {100 * (share - 1):.0f} % of the bound: {above(t, weave['bound_s'])}", t <= share * weave["bound_s"])
    else:
        loaded = weave["bound_loaded_s"]
        judge(f"weave within 10 % of the loaded bound: {above(t, loaded)}", t <= 1.10 * loaded)
    return lines


def parse_cell(text: str) -> tuple[str, str, int]:
    try:
        link, model, batch = text.split(":")
        if model not in ("cnn", "gpt"):
            raise ValueError
        return link, model, int(batch)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not LINK:cnn|gpt:BATCH, for instance 1gbit:gpt:8") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two cells, one round, few peers: under five minutes")
    parser.add_argument("--cells", nargs="+", type=parse_cell, metavar="LINK:MODEL:BATCH", help="instead of the eight cells of the table")
    parser.add_argument("--peers", help=f"separated by commas; {', '.join(PEERS + OPTIONAL)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=8, help="measured in each round, after warm-up")
    arguments = parser.parse_args()
    cells = arguments.cells or ([CELLS[3], CELLS[4]] if arguments.quick else CELLS)
    quick_peers = ["ddp-1", "ddp-25", "maypole-sync", "maypole-dear", "maypole-weave"]
    peers = arguments.peers.split(",") if arguments.peers else quick_peers if arguments.quick else PEERS
    rows = Rows("training", "training")
    rows.failed = False
    for link, model, batch in cells:
        try:
            measure_cell(rows, link, model, batch, peers, 1 if arguments.quick else arguments.rounds, arguments.iterations)
        except RuntimeError as error:
            rows.failed = True
            progress(f"{link} {model} {batch} failed: {error}")
    print_table(rows.rows)
    progress(f"rows are in {rows.path}")
    return 1 if rows.failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Peak memory and the world of one: `make bench-memory` writes bench/memory.json and prints a table.

Memory: two workers train a transformer of 43 M parameters with AdamW; ours replicated and sharded, against DDP with
gradient_as_bucket_view. `peak_bytes` is the worker's peak resident memory (VmHWM) above what it used before the model was made, the larger
of the two ranks; workers are joined by TCP so that no page is shared and counted twice. `pss_bytes` is the peak of the sum of both
workers' proportional shares, sampled, with ours on shared memory.

World of one: the CNN of bench-training on one process, plain PyTorch against a script with the three lines, in alternating rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.common import ROOT, Rows, maypole_program, progress, tagged_results, worker_environment

PEERS = ["ddp", "maypole-replicated", "maypole-sharded"]
STEPS = 6


# --- one worker ---


def status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory_worker(peer: str) -> None:
    import torch
    from torch import nn

    from benchmarks.training_models import SEQUENCE, VOCABULARY, Gpt

    torch.set_num_threads(1)
    if peer.startswith("maypole"):
        import maypole.torch as maypole

        maypole.init()
    else:
        torch.distributed.init_process_group("gloo")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    base = status_bytes("VmRSS")
    torch.manual_seed(0)
    model = module = Gpt(blocks=24)
    if peer == "ddp":
        module = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
    if peer.startswith("maypole"):
        optimizer = maypole.DistributedOptimizer(optimizer, model, update=peer.split("-")[1])
    tokens = torch.randint(VOCABULARY, (2, SEQUENCE + 1), generator=torch.Generator().manual_seed(int(os.environ["RANK"])))
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(module(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    number = sum(parameter.numel() for parameter in model.parameters())
    print("RESULT", json.dumps({"base": base, "peak": status_bytes("VmHWM"), "parameters": number, "loss": loss.item()}), flush=True)
    if not peer.startswith("maypole"):
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def single_worker(peer: str) -> None:
    import torch

    from benchmarks.training_models import make_batches, make_model
    from benchmarks.training_worker import SGD, train

    torch.set_num_threads(1)
    model = make_model("cnn")
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    if peer == "maypole-one":
        import maypole.torch as maypole

        maypole.init()
        optimizer = maypole.DistributedOptimizer(optimizer, model)
    times = train(model, optimizer, make_batches("cnn", 32, 0), 24)
    print("RESULT", json.dumps({"iteration_s": times["iteration_s"][4:], "peak": status_bytes("VmHWM")}), flush=True)


# --- the harness ---


def proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def workers_of(root: int, marker: str) -> list[int]:
    """Ids of the processes below `root` whose command line holds `marker` and which are Python's."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if marker.encode() in words and b"python" in words[0]:
                found.append(pid)
    return found


def run_sampled(commands: list[tuple[list[str], dict]]) -> tuple[list[dict], int]:
    """Runs the commands together; returns their results and the peak of the sum of their workers' proportional memory."""
    processes = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command, env in commands
    ]
    peak = 0

    def sample() -> None:
        nonlocal peak
        while any(process.poll() is None for process in processes):
            pids = [pid for process in processes for pid in workers_of(process.pid, "--worker")]
            peak = max(peak, sum(proportional_bytes(pid) for pid in pids))
            time.sleep(0.02)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        sampler.join()
    for process, output in zip(processes, outputs):
        if process.returncode:
            raise RuntimeError(f"a worker ended with code {process.returncode}:\n{output[-3000:]}")
    return [result for output in outputs for result in tagged_results(output)], peak


def worker_command(mode: str, peer: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.bench_memory", "--worker", mode, "--peers", peer]


def environment(**extra: str) -> dict[str, str]:
    # No allocator settings here: memory kept on purpose would be counted.
    path = f"{ROOT}:{ROOT / 'python'}" if (ROOT / "python").exists() else str(ROOT)
    kept = {name: value for name, value in worker_environment().items() if not name.startswith("MALLOC_")}
    return {**kept, "PYTHONPATH": path, **extra}


def measure_memory(rows: Rows, peers: list[str]) -> None:
    for peer in peers:
        progress(f"memory of {peer} ...")
        command = worker_command("memory", peer)
        if peer == "ddp":
            pair = [
                (command, environment(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29513", GLOO_SOCKET_IFNAME="lo"))
                for r in range(2)
            ]
            results, pss = run_sampled(pair)
        else:
            def run(transport: str, command: list[str] = command) -> tuple[list[dict], int]:
                return run_sampled([([maypole_program(), "run", "-n", "2", "--transport", transport, "--", *command], environment())])

            results, _ = run("tcp")
            _, pss = run("shm")
        rows.add(
            peer=peer, workers=2, optimizer="adamw", parameters=results[0]["parameters"],
            peak_bytes=max(result["peak"] - result["base"] for result in results),
            base_bytes=max(result["base"] for result in results), pss_bytes=pss,
        )


def measure_single(rows: Rows, rounds: int) -> None:
    samples: dict[str, list[dict]] = {"plain": [], "maypole-one": []}
    for number in range(rounds):
        progress(f"world of one: round {number + 1} of {rounds} ...")
        for peer in list(samples)[:: 1 if number % 2 == 0 else -1]:
            samples[peer] += run_sampled([(worker_command("single", peer), environment())])[0]
    for peer, results in samples.items():
        times = [value for result in results for value in result["iteration_s"]]
        rows.add(peer=peer, workers=1, model="cnn", batch=32, iteration_s=statistics.median(times),
                 spread_s=statistics.quantiles(times, n=4)[2] - statistics.quantiles(times, n=4)[0],
                 peak_bytes=statistics.median(result["peak"] for result in results))


def print_table(rows: list[dict]) -> None:
    memory = {row["peer"]: row for row in rows if row["workers"] == 2}
    for peer, row in memory.items():
        print(f"{peer:20} peak {row['peak_bytes'] / 1e6:7.1f} MB a worker above {row['base_bytes'] / 1e6:.0f} MB of Python and torch, "
              f"{row['peak_bytes'] / row['parameters']:.2f} bytes a parameter; proportional share of both {row['pss_bytes'] / 1e6:.0f} MB")
    if {"ddp", "maypole-sharded"} <= memory.keys():
        met = all(memory["maypole-sharded"][field] < memory["ddp"][field] for field in ("peak_bytes", "pss_bytes"))
        print(f"{'met   ' if met else 'MISSED'} sharded below DDP with gradient_as_bucket_view")
    single = {row["peer"]: row for row in rows if row["workers"] == 1}
    if len(single) == 2:
        plain, ours = single["plain"], single["maypole-one"]
        met = ours["iteration_s"] - plain["iteration_s"] <= max(plain["spread_s"], 0.01 * plain["iteration_s"])
        slower = 100 * (ours["iteration_s"] / plain["iteration_s"] - 1)
        print(f"{'met   ' if met else 'MISSED'} world of one: {ours['iteration_s'] * 1e3:.1f} ms an iteration against "
              f"{plain['iteration_s'] * 1e3:.1f} ms of plain PyTorch ({slower:+.1f} %, quartiles {plain['spread_s'] * 1e3:.1f} ms apart), "
              f"peak {ours['peak_bytes'] / 1e6:.0f} against {plain['peak_bytes'] / 1e6:.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=5, help="of the world of one; 0 leaves it out")
    parser.add_argument("--worker", choices=("memory", "single"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        (memory_worker if arguments.worker == "memory" else single_worker)(arguments.peers)
        return 0
    rows = Rows("memory", "memory")
    measure_memory(rows, arguments.peers.split(","))
    if arguments.rounds:
        measure_single(rows, arguments.rounds)
    print_table(rows.rows)
    progress(f"rows are in {rows.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""gloo's collectives through torch.distributed, measured as collective_cases.h says: the same cases, checks and output."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist


def gather(value: float) -> torch.Tensor:
    """Every rank's number."""
    values = torch.empty(dist.get_world_size(), dtype=torch.float64)
    dist.all_gather_into_tensor(values, torch.tensor([value], dtype=torch.float64))
    return values


def start_together() -> None:
    """As start_together in collective_cases.h."""
    start = float(gather(time.perf_counter() + 0.02).max())
    time.sleep(max(0.0, start - time.perf_counter() - 1e-4))
    while time.perf_counter() < start:
        pass


def run_repetition(op: str, count: int, inner: int, data: torch.Tensor, shard: torch.Tensor, values: torch.Tensor) -> float:
    rank, size = dist.get_rank(), dist.get_world_size()
    begin, end = count // size * rank, count // size * (rank + 1)
    data, values = data[:count], values[:count]
    shard = shard[: end - begin]
    torch.add(values, rank + 1, out=data)
    if op == "all_gather":
        shard.copy_(data[begin:end])
        data.fill_(-1)
    dist.barrier()
    if inner == 1:
        start_together()
    start = time.perf_counter()
    for _ in range(inner):
        if op == "all_reduce":
            dist.all_reduce(data)
        elif op == "reduce_scatter":
            dist.reduce_scatter_tensor(shard, data)
        else:
            dist.all_gather_into_tensor(data, shard)
    seconds = (time.perf_counter() - start) / inner
    ranks = size * (size + 1) / 2
    if op == "all_reduce":
        right = torch.equal(data, (values * size + ranks) * float(size) ** (inner - 1))
    elif op == "reduce_scatter":
        right = torch.equal(shard, values[begin:end] * size + ranks)
    else:
        right = all(
            torch.equal(data[count // size * r : count // size * (r + 1)], values[count // size * r : count // size * (r + 1)] + r + 1)
            for r in range(size)
        )
    if not right:
        sys.exit(f"rank {rank}: wrong elements after {op} of {count * 4} bytes")
    return float(gather(seconds).max())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = []
    for text in sys.argv[1:]:
        op, size, repetitions, inner = text.split(":")
        cases.append((op, int(size), int(repetitions), int(inner)))
    largest = max(case[1] for case in cases) // 4
    data = torch.zeros(largest)
    shard = torch.zeros(largest // dist.get_world_size())
    values = (torch.arange(largest) % 1021).float()
    for op, size, repetitions, inner in cases:
        run_repetition(op, size // 4, inner, data, shard, values)
        times = [run_repetition(op, size // 4, inner, data, shard, values) * 1e6 for _ in range(repetitions)]
        if dist.get_rank() == 0:
            print("RESULT", json.dumps({"op": op, "bytes": size, "times_us": times}), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads may outlive their peer's sockets


if __name__ == "__main__":
    main()

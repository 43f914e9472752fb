# SPDX-License-Identifier: Apache-2.0
"""One rank of a training benchmark: trains for a number of steps and says how long an iteration took.

Every peer starts from the same seed and sees the same batches, so that after the same number of steps the weights must agree; each rank
writes its final weights to FOLDER/PEER-RANK.pt. Peers: ddp-N (bucket in MB), fsdp2, maypole-SCHEDULE, each optionally with -bf16, and
`compute` (no communication). Rank 0 prints `RESULT {json}` a peer.
"""

import argparse
import json
import os
import time
import warnings

import torch
from torch import nn

from benchmarks.training_models import make_batches, make_model

SGD = {"lr": 0.01, "momentum": 0.9}


def wrap(peer: str, model: nn.Module):
    """(module to call, optimizer) of a peer."""
    name, *rest = peer.split("-")
    bf16 = rest[-1:] == ["bf16"]
    if name == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=float(rest[0]), gradient_as_bucket_view=True)
        if bf16:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            # DDP refuses the hook itself on gloo, by its name; the same under another name works.
            def compress_to_bf16(state, bucket):
                return bf16_compress_hook(state, bucket)

            wrapped.register_comm_hook(torch.distributed.group.WORLD, compress_to_bf16)
        return wrapped, torch.optim.SGD(wrapped.parameters(), **SGD)
    if name == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in getattr(model, "blocks", []):
            fully_shard(block, reshard_after_forward=False)
        fully_shard(model, reshard_after_forward=False)
        return model, torch.optim.SGD(model.parameters(), **SGD)
    if name == "maypole":
        import maypole.torch as maypole

        sharded = "sharded" in rest
        return model, maypole.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), **SGD), model, schedule=rest[0], compression="bf16" if bf16 else None,
            update="sharded" if sharded else "auto", group_size="1MiB",  # the default's first groups: a run is too short to tune them
        )
    return model, torch.optim.SGD(model.parameters(), **SGD)


def train(module, optimizer, batches, steps: int) -> dict[str, list[float]]:
    times = {"iteration_s": [], "forward_s": [], "backward_s": [], "step_s": []}
    begin = time.perf_counter()
    for step in range(steps):
        inputs, targets = batches[step % len(batches)]
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(module(inputs), targets)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        end = time.perf_counter()
        times["iteration_s"].append(end - begin)
        times["forward_s"].append(forward - start)
        times["backward_s"].append(backward - forward)
        times["step_s"].append(end - backward)
        begin = end
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True, help="all of one front end")
    parser.add_argument("--model", choices=("cnn", "gpt"), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--weights", required=True, help="folder for the final weights")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    rank = int(os.environ["RANK"])
    ours = arguments.peers.startswith("maypole")
    if ours:
        import maypole.torch as maypole

        maypole.init()
    else:
        torch.distributed.init_process_group("gloo")
    batches = make_batches(arguments.model, arguments.batch, rank)
    for peer in arguments.peers.split(","):
        model = make_model(arguments.model)
        module, optimizer = wrap(peer, model)
        maypole.barrier() if ours else torch.distributed.barrier()
        times = train(module, optimizer, batches, arguments.warmup + arguments.iterations)
        if rank == 0:
            print("RESULT", json.dumps({"peer": peer, **{k: v[arguments.warmup:] for k, v in times.items()}}), flush=True)
        if peer != "compute":
            state = {
                key: value.full_tensor() if hasattr(value, "full_tensor") else value.detach().clone()
                for key, value in model.state_dict().items()
            }
            torch.save(state, os.path.join(arguments.weights, f"{peer}-{rank}.pt"))
        del module, optimizer, model
    if not ours:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""A worker of the peer of bench_elastic: the model of elastic_worker.py under DistributedDataParallel and torchrun, which starts all
workers anew when their number changes or one of them dies. Rank 0 keeps a snapshot of every 10th step, with which they begin.

Arguments: FOLDER, bytes of state. Each worker appends to FOLDER/steps-PID.jsonl, and ends when FOLDER/end appears.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn

from benchmarks.elastic_worker import BATCH, make_model

SNAPSHOT_STEPS = 10


def main() -> None:
    folder, state_bytes = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    size = distributed.get_world_size()
    model = make_model(state_bytes)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step = 0
    snapshot = folder / "snapshot.pt"
    if snapshot.exists():
        loaded = torch.load(snapshot, weights_only=True)
        step = loaded["step"]
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
    width = model[0].in_features
    with (folder / f"steps-{os.getpid()}.jsonl").open("a") as log:
        ended = torch.zeros(1)
        while ended.item() == 0:
            inputs = torch.randn(max(1, BATCH // size), width)
            optimizer.zero_grad()
            (parallel(inputs) - inputs).square().mean().backward()
            optimizer.step()
            step += 1
            log.write(json.dumps({"at": time.time(), "step": step, "workers": size}) + "\n")
            log.flush()
            if distributed.get_rank() == 0 and step % SNAPSHOT_STEPS == 0:
                aside = folder / "snapshot.new"
                torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, aside)
                aside.rename(snapshot)
            ended.fill_(float((folder / "end").exists()))
            distributed.all_reduce(ended)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""A worker of bench_elastic: a multi-layer perceptron with AdamW of a given size, over synthetic samples. It appends a line for each
committed step to FOLDER/steps-N.jsonl: when, which step, how many workers; and trains until FOLDER/end appears.

Arguments: FOLDER, bytes of state (parameters and both moments), "loop" or "plain" (a fixed ring with the same batches, without the loop),
and "replicated" or "sharded" updates.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import maypole.torch as maypole
import torch
from torch import nn

LAYERS = 4
BATCH = 32
SAMPLES = 1 << 16


class Noise(torch.utils.data.Dataset):
    """Samples cut from one block of random numbers."""

    def __init__(self, width: int):
        self.values = torch.randn(SAMPLES + width, generator=torch.Generator().manual_seed(1))
        self.width = width

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return self.values[i : i + self.width]


def make_model(state_bytes: int) -> nn.Sequential:
    width = max(8, int((state_bytes / (3 * 4 * LAYERS)) ** 0.5))
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.Tanh())))


def main() -> None:
    folder, state_bytes, kind, update = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    number = int(os.environ.get("RANK", 0))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    maypole.init()
    model = make_model(state_bytes)
    optimizer = maypole.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4), model, update=update)
    data = Noise(model[0].in_features)
    log = (folder / f"steps-{number}.jsonl").open("a")

    def train(inputs):
        optimizer.zero_grad()
        (model(inputs) - inputs).square().mean().backward()
        optimizer.step()
        log.write(json.dumps({"at": time.time(), "step": step, "workers": maypole.size()}) + "\n")
        log.flush()
        return maypole.all_reduce(float((folder / "end").exists()), "sum") > 0

    ended = False
    if kind == "loop":
        loop = maypole.elastic.Loop(model, optimizer, data, batch_size=BATCH, epochs=1 << 20)
        for batch in loop:
            step = loop.step
            with batch as inputs:
                ended = train(inputs)
            if ended:
                break
    else:
        sampler = maypole.DistributedSampler(data)
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH // maypole.size(), sampler=sampler)
        step = 0
        while not ended:
            for inputs in loader:
                ended = train(inputs)
                step += 1
                if ended:
                    break


if __name__ == "__main__":
    main()

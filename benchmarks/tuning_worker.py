# SPDX-License-Identifier: Apache-2.0
"""One rank of the tuning benchmark: the same network under several values of group_size, whose iterations take turns in blocks.

In the first block everybody runs, behind a warm-up in which `auto` and `plan` come to an end. Of the sizes that are fixed only the best one
goes on to the other blocks, beside those to --keep and all that are tuned. Rank 0 prints `RESULT {json}` for each.
"""

import argparse
import json
import os
import statistics
import time

import maypole.torch as maypole
import torch
from torch import nn

from benchmarks.training_models import make_batches, make_model
from benchmarks.training_worker import SGD

WARMUP = {"auto": 62, "plan": 12, "": 2}  # iterations


class Contender:
    def __init__(self, model: str, schedule: str, size: str):
        self.size = size
        word = size.partition(":")[0]
        self.tuned = word in WARMUP
        self.warmup = WARMUP[word if self.tuned else ""]
        self.blocks: list[list[float]] = []
        self.model = make_model(model)
        inner = torch.optim.SGD(self.model.parameters(), **SGD)
        group_size = int(size) if size.isdecimal() else size
        self.optimizer = maypole.DistributedOptimizer(inner, self.model, schedule=schedule, group_size=group_size)

    def run(self, batches, iterations: int) -> None:
        unseen = 1 + (0 if self.blocks else self.warmup)
        times = []
        for k in range(unseen + iterations):
            begin = time.perf_counter()
            inputs, targets = batches[k % len(batches)]
            nn.functional.cross_entropy(self.model(inputs), targets).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if k >= unseen:
                times.append(time.perf_counter() - begin)
        self.blocks.append(times)
        self.optimizer.flush()
        maypole.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="values of group_size, separated by commas")
    parser.add_argument("--keep", default="", help="those that go on in any case")
    parser.add_argument("--model", choices=("cnn", "gpt"), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--schedule", default="weave")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=4, help="timed in each block, after one that is not")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["MAYPOLE_TUNING_CACHE"] = "off"
    maypole.init()
    batches = make_batches(arguments.model, arguments.batch, maypole.rank())
    contenders = [Contender(arguments.model, arguments.schedule, size) for size in arguments.sizes.split(",")]
    for contender in contenders:
        contender.run(batches, arguments.iterations)
    fixed = [contender for contender in contenders if not contender.tuned]
    best = maypole.broadcast_object(min(fixed, key=lambda c: statistics.median(c.blocks[0])).size)
    for _ in range(arguments.blocks - 1):
        for contender in contenders:
            if contender.tuned or contender.size in (best, *arguments.keep.split(",")):
                contender.run(batches, arguments.iterations)
    for contender in contenders:
        report = contender.optimizer.report()
        result = {"size": contender.size, "blocks": contender.blocks, "groups": len(report["groups"]), "fusion": report["fusion"]}
        if maypole.rank() == 0:
            print("RESULT", json.dumps({**result, "best": contender.size == best}), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Trains a convolutional network on the 1,797 handwritten digits that scikit-learn ships.

    python3 examples/digits.py                                  on one process
    maypole run -n 2 -- python3 examples/digits.py              on two workers: the lines marked with (1), (2), (3) are all it takes
"""

import argparse
import time

import maypole.torch as maypole
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def make_model() -> nn.Sequential:
    return nn.Sequential(
        conv(1, 64), conv(64, 64), nn.MaxPool2d(2),
        conv(64, 128), conv(128, 256), nn.MaxPool2d(2),
        conv(256, 256), nn.Flatten(),
        nn.Linear(1024, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10),
    )


def load_data() -> tuple[TensorDataset, TensorDataset]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    targets = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(images[train], targets[train]), TensorDataset(images[test], targets[test])


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, targets = data.tensors
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == targets).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="samples of one worker in one iteration")
    parser.add_argument("--lr", type=float, default=2e-3)
    arguments = parser.parse_args()

    maypole.init()                                                                              # (1)
    torch.manual_seed(maypole.rank())
    train, test = load_data()
    sampler = maypole.DistributedSampler(train)                                                 # (2)
    loader = DataLoader(train, batch_size=arguments.batch, sampler=sampler, drop_last=True)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.01)
    optimizer = maypole.DistributedOptimizer(optimizer, model)                                  # (3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, arguments.lr, total_steps=arguments.epochs * len(loader))

    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        total = 0.0
        for images, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        milliseconds = (time.perf_counter() - start) / len(loader) * 1e3
        if maypole.rank() == 0:
            print(f"epoch {epoch + 1:2}/{arguments.epochs}  loss {total / len(loader):.4f}  {milliseconds:.0f} ms an iteration", flush=True)

    right = accuracy(model, test)  # the same on every worker: weights and BatchNorm's buffers are
    if maypole.rank() == 0:
        print(f"test accuracy {100 * right:.1f} %", flush=True)


if __name__ == "__main__":
    main()

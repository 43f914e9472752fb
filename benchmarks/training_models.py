# SPDX-License-Identifier: Apache-2.0
"""The two networks of the training benchmarks, and their synthetic data."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, SEQUENCE, WIDTH, BLOCKS, HEADS = 256, 64, 384, 6, 6


def make_cnn() -> nn.Module:
    """4 convolutions, 2 linear layers, 5.2 M parameters (20.7 MB), most of them in the first linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4096, 1168), nn.ReLU(), nn.Linear(1168, 10),
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """6 blocks of width 384 on sequences of 64: 10.9 M parameters (43.5 MB), spread evenly."""

    def __init__(self, blocks: int = BLOCKS):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def make_model(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make_cnn() if name == "cnn" else Gpt()


def make_batches(name: str, batch: int, rank: int, count: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1000 + rank)
    if name == "cnn":
        return [
            (torch.randn(batch, 3, 32, 32, generator=generator), torch.randint(10, (batch,), generator=generator)) for _ in range(count)
        ]
    tokens = torch.randint(VOCABULARY, (count, batch, SEQUENCE + 1), generator=generator)
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]

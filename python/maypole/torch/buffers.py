# SPDX-License-Identifier: Apache-2.0
"""Rank 0's buffers (running statistics) become everyone's once an iteration, as DistributedDataParallel does."""

import torch

from maypole.torch.collectives import as_bytes


class BufferBroadcast:
    """start() sends from a copy while the script goes on; finish() unpacks, before the next forward looks at the buffers."""

    def __init__(self, module, transport, rank):
        self._owners = [owner for owner in module.modules() if owner._buffers]
        self._transport = transport
        self._rank = rank
        self._staging = {}
        self._pending = None

    @property
    def owners(self):
        return self._owners

    def _buffers(self):
        seen = {}
        for owner in self._owners:
            for buffer in owner._buffers.values():
                if buffer is not None and buffer.numel() > 0:
                    seen[id(buffer)] = buffer
        return list(seen.values())

    def start(self):
        self.finish()
        buffers = self._buffers()
        if not buffers:
            return
        layout = tuple((buffer.dtype, buffer.shape) for buffer in buffers)
        if self._staging.get("layout") != layout:
            # Every buffer starts at a multiple of 16 bytes, so that its bytes can be viewed in its own dtype.
            ends, total = [], 0
            for buffer in buffers:
                ends.append((total, total + buffer.numel() * buffer.element_size()))
                total = -(-ends[-1][1] // 16) * 16
            flat = torch.zeros(total, dtype=torch.uint8, device=self._transport.device)
            views = [flat[begin:end].view(buffer.dtype).view(buffer.shape) for (begin, end), buffer in zip(ends, buffers)]
            self._staging = {"layout": layout, "flat": flat, "views": views}
        if self._rank == 0:
            torch._foreach_copy_(self._staging["views"], [buffer.detach() for buffer in buffers])
        self._pending = (self._transport.broadcast(as_bytes(self._staging["flat"]), 0), buffers)

    def finish(self):
        if self._pending is None:
            return
        work, buffers = self._pending
        self._pending = None
        work.wait()
        if self._rank != 0:
            torch._foreach_copy_([buffer.detach() for buffer in buffers], self._staging["views"])

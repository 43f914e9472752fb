# SPDX-License-Identifier: Apache-2.0
"""Collectives on flat, contiguous CPU tensors over the native ring. c10d.py has the same class over a process group.

Each method starts an operation and returns a handle; handle.wait(limit_s=-1) returns False when limit_s passed first. The handle
keeps the tensor alive, because the ring reads and writes it until the operation ends.
"""

from maypole.torch.dtypes import BYTE, NUMBERS


class Handle:
    def __init__(self, work, tensor):
        self._work = work
        self._tensor = tensor

    def done(self):
        return self._work.done()

    def wait(self, limit_s=-1.0):
        return self._work.wait(limit_s)


class RingTransport:
    device = "cpu"

    def __init__(self, communicator):
        self._communicator = communicator

    def all_reduce(self, flat, average):
        return Handle(self._communicator.all_reduce(flat.data_ptr(), flat.numel(), NUMBERS[flat.dtype], average), flat)

    def all_gather(self, flat):
        """flat: bytes of all ranks, each rank's at its place, equally many of each."""
        return Handle(self._communicator.all_gather(flat.data_ptr(), flat.numel(), BYTE), flat)

    def broadcast(self, flat, root):
        return Handle(self._communicator.broadcast(flat.data_ptr(), flat.numel() * flat.element_size(), root), flat)

    def barrier(self):
        return Handle(self._communicator.barrier(), None)

# SPDX-License-Identifier: Apache-2.0
"""Collectives on flat, contiguous CPU tensors over the native ring. c10d.py has the same class over a process group.

Each method starts an operation and returns a handle; handle.wait(limit_s=-1) returns False when limit_s passed first.
"""

from maypole.torch.dtypes import BYTE, NUMBERS


class RingTransport:
    device = "cpu"

    def __init__(self, communicator):
        self._communicator = communicator
        self._running = []  # the ring reads and writes a tensor until its operation ends, whether or not anyone waits for it

    def _started(self, work, tensor):
        self._running = [(other, kept) for other, kept in self._running if not other.done()]
        self._running.append((work, tensor))
        return work

    def all_reduce(self, flat, average):
        return self._started(self._communicator.all_reduce(flat.data_ptr(), flat.numel(), NUMBERS[flat.dtype], average), flat)

    def all_gather(self, flat):
        """flat: bytes of all ranks, each rank's at its place, equally many of each."""
        return self._started(self._communicator.all_gather(flat.data_ptr(), flat.numel(), BYTE), flat)

    def broadcast(self, flat, root):
        return self._started(self._communicator.broadcast(flat.data_ptr(), flat.numel() * flat.element_size(), root), flat)

    def close(self):
        """Nothing is started any more, and the ring may end. Returns what it may still write to until then."""
        self._communicator = None
        running, self._running = self._running, []
        return running

    def barrier(self):
        return self._communicator.barrier()

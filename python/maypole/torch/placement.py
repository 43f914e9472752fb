# SPDX-License-Identifier: Apache-2.0
"""Where parameters and gradients live once the engine knows them: each a tensor with its own storage over its part of an arena."""

import ctypes
import mmap

import torch

from maypole.errors import UsageError

# Inside, p.grad and p.data_ptr() are read as they are, without asking the guard.
unguarded = torch._C.DisableTorchFunctionSubclass

_POPULATE = 23  # MADV_POPULATE_WRITE


class FreedMemory:
    """Gives memory back to the system while tensors move into the arenas: original and copy are never there at once, whatever the
    allocator keeps. Without glibc it does nothing."""

    _EVERY = 32 << 20  # bytes

    def __init__(self):
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
        self._freed = 0

    def add(self, size):
        self._freed += size
        if self._freed >= self._EVERY:
            self._freed = 0
            self._trim(0)


def touch(tensor):
    """Gives a tensor in fresh memory its pages at once, which is cheaper than one by one; an old kernel refuses, and nothing is lost."""
    if tensor.device.type != "cpu":
        return
    page = mmap.PAGESIZE
    begin = tensor.data_ptr() // page * page
    size = tensor.data_ptr() + tensor.numel() * tensor.element_size() - begin
    if size >= page:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _POPULATE)


class Placement:
    def __init__(self, engine, model, parameters):
        """Moves parameters, one by one, and makes a view for each gradient. Strides stay, so channels_last does."""
        self._homes = []
        self.gradients = []
        freed = FreedMemory()
        for i, parameter in enumerate(parameters):
            strides = torch.empty_like(parameter).stride()
            home = _shaped(engine.parameter_tensor(model, i), parameter.shape, strides)
            touch(home)
            home.copy_(parameter.detach())
            parameter.data = home
            freed.add(home.nbytes)
            self._homes.append((home, home.data_ptr()))
            self.gradients.append(_shaped(engine.gradient_tensor(model, i), parameter.shape, strides))

    def keep(self, parameters, names):
        """A script may have given a parameter other memory (`p.data = ...`): its values count, in our memory."""
        with unguarded():
            for parameter, name, (home, address) in zip(parameters, names, self._homes):
                if parameter.data_ptr() != address:
                    _move(parameter, name, home)


def _move(parameter, name, home):
    values = parameter.detach()
    if values.dtype != home.dtype or values.shape != home.shape or values.device != home.device:
        raise UsageError(
            f"parameter '{name}' became {values.dtype} {tuple(values.shape)} on {values.device}; it was {home.dtype} "
            f"{tuple(home.shape)} on {home.device}: convert the model before the DistributedOptimizer is made"
        )
    home.copy_(values)
    parameter.data = home


def _shaped(flat, shape, strides):
    return torch.empty(0, dtype=flat.dtype, device=flat.device).set_(flat.untyped_storage(), flat.storage_offset(), shape, strides)

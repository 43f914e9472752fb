# SPDX-License-Identifier: Apache-2.0
"""Collectives that a script calls. Every rank must call them in the same order."""

import numbers
import pickle

import torch

from maypole.errors import MismatchError, TimeoutError, UsageError
from maypole.torch import runtime
from maypole.torch.dtypes import REDUCIBLE


def as_bytes(tensor):
    """The memory of a contiguous tensor as a flat uint8 tensor."""
    return tensor.reshape(-1).view(torch.uint8)


def all_reduce(value, op="average"):
    """Averages (or sums) over all ranks: a tensor in place, a Python number by value. Integer tensors can be summed, exactly."""
    if op not in ("average", "sum"):
        raise UsageError(f"all_reduce: op is 'average' or 'sum', not {op!r}")
    if isinstance(value, numbers.Real) and not isinstance(value, torch.Tensor):
        integer = isinstance(value, numbers.Integral) and op == "sum"
        total = all_reduce(torch.tensor(value, dtype=torch.int64 if integer else torch.float64), op)
        return total.item()
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"all_reduce takes a tensor or a number, not {type(value).__name__}")
    if value.is_complex():
        all_reduce(torch.view_as_real(value.detach()), op)
        return value
    if value.is_floating_point() and value.dtype not in REDUCIBLE:
        raise UsageError(f"all_reduce does not know {value.dtype}; convert to float32 first")
    if not value.is_floating_point() and op == "average":
        raise UsageError(f"all_reduce: the average of {value.dtype} is not {value.dtype}; convert to float first or use op='sum'")
    if runtime.size() == 1:
        return value
    if value.dtype in REDUCIBLE:
        _reduce_floats(value.detach(), op == "average")
    elif value.dtype == torch.bool:
        raise UsageError("all_reduce: the sum of torch.bool is a count; convert to an integer dtype first")
    else:
        _sum_integers(value.detach())
    return value


def _transport_for(value):
    """Counts what a script sends by itself: it may be what keeps its replicas equal."""
    here = runtime.current()
    if here.apart is not None:
        here.apart.sent += value.numel()
    return here.transport


def _reduce_floats(value, average):
    transport = _transport_for(value)
    flat = value.to(transport.device).contiguous().view(-1)
    transport.all_reduce(flat, average).wait()
    if flat.data_ptr() != value.data_ptr():
        value.copy_(flat.view(value.shape))


def _sum_integers(value):
    """Sums halves of 32 bits in float64, where they are exact."""
    wide = value.to(torch.int64)
    halves = torch.stack([wide >> 32, wide & 0xFFFFFFFF]).to(torch.float64)
    _reduce_floats(halves, average=False)
    high, low = halves.to(torch.int64)
    value.copy_((high << 32) + low)


def broadcast(tensor, root=0):
    """Makes `tensor` equal to rank `root`'s, in place, and returns it."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"broadcast takes a tensor, not {type(tensor).__name__}; broadcast_object takes anything")
    _check_root(root)
    if runtime.size() > 1:
        transport = _transport_for(tensor)
        plain = tensor.detach()
        flat = as_bytes(plain.to(transport.device).contiguous())
        transport.broadcast(flat, root).wait()
        if flat.data_ptr() != plain.data_ptr():
            plain.copy_(flat.view(plain.dtype).view(plain.shape))
    return tensor


def all_gather(tensor):
    """Stacks equally shaped tensors of all ranks: the result has shape (size(), *tensor.shape)."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"all_gather takes a tensor, not {type(tensor).__name__}")
    plain = tensor.detach()
    num_ranks = runtime.size()
    if num_ranks == 1:
        return plain.clone().unsqueeze(0)
    transport = _transport_for(plain)
    result = torch.empty((num_ranks, *plain.shape), dtype=plain.dtype, device=transport.device)
    result[runtime.rank()].copy_(plain)
    transport.all_gather(as_bytes(result)).wait()
    return result.to(plain.device)


def broadcast_object(value, root=0):
    """Rank `root`'s object, pickled, on every rank. Only for objects of one's own job: unpickling runs code."""
    _check_root(root)
    if runtime.size() == 1:
        return value
    transport = runtime.transport()
    if runtime.rank() == root:
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(transport.device)
        transport.broadcast(as_bytes(torch.tensor([data.numel()], dtype=torch.int64, device=transport.device)), root).wait()
        transport.broadcast(data, root).wait()
        return value
    length = torch.zeros(1, dtype=torch.int64, device=transport.device)
    transport.broadcast(as_bytes(length), root).wait()
    data = torch.empty(int(length.item()), dtype=torch.uint8, device=transport.device)
    transport.broadcast(data, root).wait()
    return pickle.loads(data.cpu().numpy().tobytes())


def barrier(timeout=None):
    """Returns when every rank has called it; raises TimeoutError after `timeout` seconds."""
    if runtime.size() > 1 and not runtime.transport().barrier().wait(-1.0 if timeout is None else float(timeout)):
        raise TimeoutError(f"barrier: not every rank arrived within {float(timeout):g} s")


def check_agreement(what, value, remedy="every rank must build the same"):
    """Raises MismatchError on every rank when `value` (a list of strings) is not equal on all; names the first difference."""
    reference = broadcast_object(value)
    difference = ""
    if reference != value:
        difference = f"rank {runtime.rank()} has {len(value)} where rank 0 has {len(reference)}"
        for mine, theirs in zip(value, reference):
            if mine != theirs:
                difference = f"rank {runtime.rank()} has '{mine}' where rank 0 has '{theirs}'"
                break
    if all_reduce(1 if difference else 0, "sum") == 0:
        return
    for other in range(runtime.size()):
        text = broadcast_object(difference, other)
        if text:
            raise MismatchError(f"the ranks disagree on {what}: {text}; {remedy}")


def _check_root(root):
    if not 0 <= root < runtime.size():
        raise UsageError(f"root {root} is not a rank of this job of {runtime.size()}")

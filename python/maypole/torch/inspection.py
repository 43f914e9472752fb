# SPDX-License-Identifier: Apache-2.0
"""What a DistributedOptimizer looks at before it takes a model: names, what it cannot take, agreement between ranks, rank 0's values."""

import zlib

import torch

from maypole.errors import UsageError
from maypole.torch import guard, runtime
from maypole.torch.collectives import as_bytes, check_agreement
from maypole.torch.dtypes import REDUCIBLE

_PACK_BYTES = 32 << 20
_ALIKE = (
    "a scheduler that is stepped after each epoch does this where ranks have different numbers of batches: give every rank as many "
    "(maypole.DistributedSampler does), or train in `with optimizer.join():`; what else changes options has to do it on all ranks alike"
)


def collect(optimizer, model):
    """Parameters of the optimizer in the model's order, without repetition and without empty ones; their names; their param groups."""
    group_of = {}
    for g, group in enumerate(optimizer.param_groups):
        for k, parameter in enumerate(group["params"]):
            group_of[id(parameter)] = (g, k, parameter)
    parameters, names, groups = [], [], []
    for name, parameter in model.named_parameters():
        if id(parameter) in group_of:
            parameters.append(parameter)
            names.append(name.replace("_orig_mod.", ""))
            groups.append(group_of.pop(id(parameter))[0])
    for g, k, parameter in group_of.values():
        parameters.append(parameter)
        names.append(f"param_groups[{g}]['params'][{k}]")
        groups.append(g)
    kept = [i for i, parameter in enumerate(parameters) if _is_lazy(parameter) or parameter.numel() > 0]
    return [parameters[i] for i in kept], [names[i] for i in kept], [groups[i] for i in kept]


def _is_lazy(tensor):
    return isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def check(model, parameters, names, engine):
    """Raises for what cannot be trained rightly, by name."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UsageError(
                f"module '{name or type(module).__name__}' is a TorchScript module, whose use of parameters cannot be seen; train the "
                "eager module and script it afterwards"
            )
    if not parameters:
        raise UsageError("the optimizer has no parameters")
    extents = []
    for parameter, name in zip(parameters, names):
        if _is_lazy(parameter):
            raise UsageError(f"parameter '{name}' has no shape yet; run the model once before the DistributedOptimizer is made")
        if guard.owner_of(parameter) is not None:
            raise UsageError(f"parameter '{name}' belongs to another DistributedOptimizer already")
        if parameter.layout != torch.strided or parameter.dtype not in REDUCIBLE:
            raise UsageError(
                f"parameter '{name}' is {parameter.layout} {parameter.dtype}; maypole trains dense real floating-point parameters"
            )
        if parameter.device.type != engine.device.type:
            raise UsageError(
                f"parameter '{name}' is on {parameter.device}, but this back end works on {engine.device.type}; "
                + ("use maypole.init(backend='c10d')" if engine.takes_addresses else "move the model first")
            )
        if not parameter.is_leaf:
            raise UsageError(f"parameter '{name}' is the result of a computation, not a leaf that can be trained")
        begin = parameter.data_ptr()
        span = 1 + sum((length - 1) * abs(stride) for length, stride in zip(parameter.shape, parameter.stride()))
        extents.append((begin, begin + span * parameter.element_size(), name))
    extents.sort()
    for (_, end, name), (begin, _, other) in zip(extents, extents[1:]):
        if begin < end:
            raise UsageError(
                f"parameters '{name}' and '{other}' overlap in memory (tied by .data?); use one Parameter object in both places"
            )


def option_lines(optimizer):
    """The options of each parameter group in plain words: replicas that are updated with different ones drift apart unseen."""
    lines = []
    for number, group in enumerate(optimizer.param_groups):
        lines.append(f"parameter group {number} of {len(group['params'])} tensors")
        for name in sorted(group.keys() - {"params"}):
            value = group[name]
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                value = value.item()
            if value is None or isinstance(value, (bool, int, float, str, tuple)):
                lines.append(f"{name}={value!r} in parameter group {number}")
    return lines


def shortened(lines, limit):
    """The lines as a text of at most about `limit` bytes: of those that find no room only a checksum is left."""
    kept, size = [], 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > limit:
            break
        kept.append(line)
    rest = lines[len(kept) :]
    if rest:
        kept.append(f"and {len(rest)} more, checksum {zlib.crc32(chr(10).join(rest).encode()):08x}")
    return "\n".join(kept)


class OptionWatch:
    """Options that a script changes while it trains must change on all ranks alike. They are compared after 1, 2, 4, ... 64 steps and
    every 64th from then on, by one number in the user lane that nobody waits for until the next step."""

    _EVERY = 64

    def __init__(self, optimizer, num_ranks):
        self._optimizer = optimizer
        self._num_ranks = num_ranks
        self._steps = 0
        self._sent = None

    def check(self):
        """Called by all ranks in each step()."""
        if self._sent is not None:
            handle, total, own, lines = self._sent
            self._sent = None
            handle.wait()
            if total.item() != own * self._num_ranks:  # then no rank's own number is the mean, and all come here
                check_agreement(f"the optimizer's settings in step {self._steps}", lines, _ALIKE)
        self._steps += 1
        steps = self._steps
        if steps % self._EVERY == 0 or (steps < self._EVERY and steps & (steps - 1) == 0):
            lines = option_lines(self._optimizer)
            own = zlib.crc32("\n".join(lines).encode())
            transport = runtime.transport()
            total = torch.tensor([own], dtype=torch.float64, device=transport.device)
            self._sent = transport.all_reduce(total, False), total, own, lines


def agree(model, parameters, names, settings):
    lines = [f"{name} {parameter.dtype} {tuple(parameter.shape)}" for name, parameter in zip(names, parameters)]
    lines += [f"{name} {buffer.dtype} {tuple(buffer.shape)}" for name, buffer in model.named_buffers()]
    check_agreement("the model", lines)
    check_agreement("the optimizer's settings", settings)


def share_values(model, parameters):
    """Rank 0's parameters and buffers become everyone's, in packs of at most 32 MB."""
    tensors = {id(tensor): tensor for tensor in (*parameters, *model.parameters(), *model.buffers())}
    pack, size = [], 0
    for tensor in tensors.values():
        if tensor.numel() == 0 or _is_lazy(tensor):
            continue
        pack.append(tensor.detach())
        size += tensor.numel() * tensor.element_size()
        if size >= _PACK_BYTES:
            _broadcast_pack(pack)
            pack, size = [], 0
    if pack:
        _broadcast_pack(pack)


def share_buffers(buffers):
    """Rank 0's buffers become everyone's."""
    pack = [buffer.detach() for buffer in buffers if buffer.numel() > 0]
    if pack:
        _broadcast_pack(pack)


def _broadcast_pack(pack):
    transport = runtime.transport()
    parts = [as_bytes(tensor.contiguous()).to(transport.device) for tensor in pack]
    flat = torch.cat(parts)
    transport.broadcast(flat, 0).wait()
    if runtime.rank() != 0:
        with torch.no_grad():
            for tensor, part in zip(pack, flat.split([part.numel() for part in parts])):
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

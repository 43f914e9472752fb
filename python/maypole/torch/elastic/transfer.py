# SPDX-License-Identifier: Apache-2.0
"""The state of some ranks becomes that of those that lack it, in pieces, each with its checksum: in an elastic ring straight from all that
have it (maypole/elastic/state_fetch.h); otherwise, and what few know, over the ring from one."""

import ctypes
import hashlib
import json
import zlib

import torch

from maypole import _core
from maypole.errors import MaypoleError
from maypole.torch import elastic_seat
from maypole.torch.collectives import as_bytes
from maypole.torch.elastic import packing

_CHUNK_BYTES = 16 << 20


def agree_on_steps(transport, rank, size, step):
    """The number of steps that each rank has behind it, [rank]; -1 for a newcomer."""
    steps = torch.zeros(size, dtype=torch.int64)
    steps[rank] = step
    transport.all_gather(as_bytes(steps)).wait()
    return steps.tolist()


def exchange(transport, rank, size, text):
    """The texts of all ranks, [rank]."""
    mine = text.encode()
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[rank] = len(mine)
    transport.all_gather(as_bytes(lengths)).wait()
    texts = torch.zeros(size, int(lengths.max()), dtype=torch.uint8)
    texts[rank, : len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    transport.all_gather(texts.view(-1)).wait()
    return [texts[r, : lengths[r]].numpy().tobytes().decode() for r in range(size)]


def memory_of(shard):
    """The memory of a core object that has an address and a size, as bytes; it keeps the object."""
    buffer = (ctypes.c_byte * shard.size).from_address(shard.address)
    buffer.kept = shard
    return torch.frombuffer(buffer, dtype=torch.uint8)


class Room:
    """Memory in which a state can land. Where it is there before, and was touched, nobody waits for it; and what is in it already, from a
    transfer that broke off or because nobody changes it, need not come again."""

    def __init__(self):
        self._free = {}

    def add(self, tensors):
        for tensor in tensors:
            self._free.setdefault((tensor.dtype, tensor.shape), []).append(tensor)

    def take(self, dtype, shape):
        free = self._free.get((dtype, torch.Size(shape)))
        return free.pop(0) if free else torch.empty(shape, dtype=dtype)


def hand_over(here, seat, sources, value, room):
    """What the ranks `sources` hold alike (value; None elsewhere) goes to all others. Returns it. Collective."""
    if seat is None:
        if here.rank == sources[0]:
            send(here.transport, here.rank, value)
            return value
        found = receive(here.transport, sources[0], wanted=here.rank not in sources)
        return value if found is None else found
    header, tensors = _packed(value) if value is not None else (None, [])
    if here.rank == sources[0]:
        _send_text(here.transport, here.rank, header)
    else:
        text = _receive_text(here.transport, sources[0])
        header = text if value is None else header
    layout = int.from_bytes(hashlib.sha256(header).digest()[:8], "little")
    if value is not None:
        source = _core.give_state(seat.ring, seat.listener, _parts(tensors), layout)
        try:
            here.transport.barrier().wait()
        finally:
            source.close()
        return value
    described = json.loads(header)
    tensors = [room.take(getattr(torch, name), shape) for name, shape in described["tensors"]]
    try:
        _core.fetch_state(seat.ring, [(rank, seat.addresses[rank]) for rank in sources], _parts(tensors), layout)
        here.transport.barrier().wait()
    except elastic_seat.BROKEN as error:
        room.add(tensors)
        here.engine.abort(f"rank {here.rank} did not get the state: {error}")
        raise
    return packing.unpack(described["value"], tensors)


def _parts(tensors):
    return [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors]


def _packed(value):
    """Returns (bytes, tensors): what the tensors are, and what else `value` is made of; the tensors, each in one piece of memory."""
    text, tensors = packing.pack(value)
    facts = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    return json.dumps({"value": text, "tensors": facts}).encode(), [tensor.contiguous().to("cpu") for tensor in tensors]


def send(transport, root, value):
    """On rank `root`: gives `value` to all, over the ring."""
    header, tensors = _packed(value)
    _send_text(transport, root, header)
    for chunk in _chunks(tensors):
        _send_chunk(transport, root, chunk)


def receive(transport, root, wanted):
    """On every other rank: what `root` sends; not wanted: it is passed on only, and the result is None."""
    described = json.loads(_receive_text(transport, root))
    tensors = [torch.empty(shape, dtype=getattr(torch, name)) for name, shape in described["tensors"]]
    for chunk in _chunks(tensors):
        _receive_chunk(transport, root, chunk, check=wanted)
    return packing.unpack(described["value"], tensors) if wanted else None


def _chunks(tensors):
    for tensor in tensors:
        if tensor.numel() > 0:
            yield from as_bytes(tensor).split(_CHUNK_BYTES)


def _send_text(transport, root, text):
    transport.broadcast(as_bytes(torch.tensor([len(text)])), root).wait()
    _send_chunk(transport, root, torch.frombuffer(bytearray(text), dtype=torch.uint8))


def _receive_text(transport, root):
    length = torch.zeros(1, dtype=torch.int64)
    transport.broadcast(as_bytes(length), root).wait()
    text = torch.empty(int(length.item()), dtype=torch.uint8)
    _receive_chunk(transport, root, text, check=True)
    return text.numpy().tobytes()


def _send_chunk(transport, root, chunk):
    moving = transport.broadcast(chunk, root)
    transport.broadcast(as_bytes(torch.tensor([zlib.crc32(chunk.numpy())])), root).wait()
    moving.wait()


def _receive_chunk(transport, root, chunk, check):
    moving = transport.broadcast(chunk, root)
    expected = torch.zeros(1, dtype=torch.int64)
    transport.broadcast(as_bytes(expected), root).wait()
    moving.wait()
    if check and zlib.crc32(chunk.numpy()) != int(expected.item()):
        raise MaypoleError(f"a part of the state that rank {root} sent arrived damaged")

# SPDX-License-Identifier: Apache-2.0
"""One rank's state becomes that of the ranks that lack it, over the ring: in chunks, each with its checksum."""

import ctypes
import json
import zlib

import torch

from maypole.errors import MaypoleError
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


def send(transport, root, value):
    """On rank `root`: gives `value` to all."""
    text, tensors = packing.pack(value)
    facts = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    header = torch.frombuffer(bytearray(json.dumps({"value": text, "tensors": facts}).encode()), dtype=torch.uint8)
    transport.broadcast(as_bytes(torch.tensor([header.numel()])), root).wait()
    for chunk in (header, *_chunks(tensor.contiguous().to("cpu") for tensor in tensors)):
        moving = transport.broadcast(chunk, root)
        transport.broadcast(as_bytes(torch.tensor([zlib.crc32(chunk.numpy())])), root).wait()
        moving.wait()


def receive(transport, root, wanted):
    """On every other rank: what `root` sends; not wanted: it is passed on only, and the result is None."""
    length = torch.zeros(1, dtype=torch.int64)
    transport.broadcast(as_bytes(length), root).wait()
    header = torch.empty(int(length.item()), dtype=torch.uint8)
    _receive_chunk(transport, root, header, check=True)
    described = json.loads(header.numpy().tobytes())
    tensors = [torch.empty(shape, dtype=getattr(torch, name)) for name, shape in described["tensors"]]
    for chunk in _chunks(tensors):
        _receive_chunk(transport, root, chunk, check=wanted)
    return packing.unpack(described["value"], tensors) if wanted else None


def _chunks(tensors):
    for tensor in tensors:
        if tensor.numel() > 0:
            yield from as_bytes(tensor).split(_CHUNK_BYTES)


def _receive_chunk(transport, root, chunk, check):
    moving = transport.broadcast(chunk, root)
    expected = torch.zeros(1, dtype=torch.int64)
    transport.broadcast(as_bytes(expected), root).wait()
    moving.wait()
    if check and zlib.crc32(chunk.numpy()) != int(expected.item()):
        raise MaypoleError(f"a part of the state that rank {root} sent arrived damaged")

# SPDX-License-Identifier: Apache-2.0
"""The file of one checkpoint. Little-endian:

    "maypole-checkpoint 1\\n"     the format and its version
    u64 length, u32 CRC-32       of the header
    header                       JSON: step, facts, state (packing.py), tensors: [[dtype, shape, CRC-32], ...]
    tensors                      their bytes one after the other, each row-major; nothing follows

Nothing in it can be executed.
"""

import json
import os
import struct
import zlib

import torch

from maypole.errors import UsageError
from maypole.torch.collectives import as_bytes

VERSION = 1
_MAGIC = b"maypole-checkpoint "
_LENGTHS = struct.Struct("<QI")
_PIECE_BYTES = 16 << 20


class DamagedError(Exception):
    """The file is not what was written; the text says where it shows."""


def describe(step, facts, text, tensors):
    """The header without the checksums of the tensors."""
    kinds = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    return {"step": step, "facts": facts, "state": text, "tensors": kinds}


def write(path, described, parts):
    """Writes the file and waits until the disk has it. parts: the tensors' bytes, flat. Raises OSError."""
    views = [memoryview(part.numpy()) for part in parts]
    tensors = [[*kind, zlib.crc32(view)] for kind, view in zip(described["tensors"], views)]
    header = json.dumps({**described, "tensors": tensors}).encode()
    with open(path, "wb", buffering=0) as file:
        _write_all(file, memoryview(b"%s%d\n" % (_MAGIC, VERSION) + _LENGTHS.pack(len(header), zlib.crc32(header)) + header))
        for view in views:
            _write_all(file, view)
        os.fsync(file.fileno())


def _write_all(file, view):
    while len(view) > 0:
        view = view[file.write(view[:_PIECE_BYTES]) :]


def sync_folder(path):
    """Waits until the disk has the names in a folder."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_facts(path):
    """The facts of a file, whose tensors may be damaged all the same."""
    with _open(path) as file:
        return _read_header(file, path)["facts"]


def read(path):
    """Returns (state as text, tensors) of a file, verified."""
    with _open(path) as file:
        header = _read_header(file, path)
        tensors = []
        for k, (dtype, shape, expected) in enumerate(header["tensors"]):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            if tensor.numel() > 0:
                view = memoryview(as_bytes(tensor).numpy())
                if file.readinto(view) != len(view):
                    raise DamagedError(f"it ends within tensor {k} of {len(header['tensors'])}")
                if zlib.crc32(view) != expected:
                    raise DamagedError(f"the checksum of tensor {k} of {len(header['tensors'])} is another")
            tensors.append(tensor)
        if file.read(1):
            raise DamagedError("bytes follow its end")
        return header["state"], tensors


def _open(path):
    try:
        return open(path, "rb")
    except OSError as error:
        raise DamagedError(error.strerror) from error


def _read_header(file, path):
    first = file.readline(64)
    if not first.startswith(_MAGIC) or not first.endswith(b"\n"):
        raise DamagedError("it does not begin as a checkpoint does")
    version = first[len(_MAGIC) : -1]
    if version != str(VERSION).encode():
        raise UsageError(f"checkpoint {path} has format version {version.decode(errors='replace')}; this maypole reads version {VERSION}")
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise DamagedError("it ends within its header")
    length, expected = _LENGTHS.unpack(lengths)
    if length > os.fstat(file.fileno()).st_size:
        raise DamagedError("it ends within its header")
    header = file.read(length)
    if len(header) < length or zlib.crc32(header) != expected:
        raise DamagedError("the checksum of its header is another")
    return json.loads(header)

# SPDX-License-Identifier: Apache-2.0
"""Nested state as typed text and a list of tensors, and back. Nothing in it can be executed, unlike a pickle; floats keep every bit."""

import collections
import json
import numbers

import torch

from maypole.errors import UsageError


def pack(value):
    """Returns (text, tensors): `text` describes `value`, with numbers in the place of its tensors."""
    tensors = []
    return json.dumps(_describe(value, tensors, "")), tensors


def unpack(text, tensors):
    return _build(json.loads(text), tensors)


def _describe(value, tensors, where):
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return ["tensor", len(tensors) - 1]
    if value is None or isinstance(value, (bool, str)):
        return ["plain", value]
    if isinstance(value, numbers.Integral):
        return ["int", str(int(value))]
    if isinstance(value, numbers.Real):
        return ["float", float(value).hex()]
    if isinstance(value, collections.Counter):
        return ["counter", _items(value, tensors, where)]
    if isinstance(value, dict):
        return ["dict", _items(value, tensors, where)]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_describe(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]]
    raise UsageError(f"the state holds {where.lstrip('.') or 'a value'} of type {type(value).__name__}, which cannot be sent to newcomers")


def _items(value, tensors, where):
    return [[_describe(key, tensors, where), _describe(item, tensors, f"{where}.{key}")] for key, item in value.items()]


def _build(described, tensors):
    kind, content = described
    if kind == "tensor":
        return tensors[content]
    if kind == "plain":
        return content
    if kind == "int":
        return int(content)
    if kind == "float":
        return float.fromhex(content)
    if kind in ("dict", "counter"):
        result = {_build(key, tensors): _build(item, tensors) for key, item in content}
        return result if kind == "dict" else collections.Counter(result)
    items = [_build(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)

# SPDX-License-Identifier: Apache-2.0
"""Tensors in motion wait when Python touches them.

While the engine may still write a parameter or an averaged gradient, the tensor's `__class__` is a subclass whose
`__torch_function__` first asks the owner (rounds.py) to bring it to rest; the owner then gives it its own class back. So the guard
costs nothing at rest, and catches every way of touching a tensor from Python: operators, `.data`, `_foreach_*`, numpy, pickle,
deepcopy. Reading facts about a tensor (shape, dtype, device) does not wait.
"""

import torch

from maypole.errors import MaypoleError

# id -> (owner, index), while the owner lives. Attributes on the tensors themselves would be pickled with them.
_parameters = {}
_gradients = {}

# Properties that give access to the values, all others are facts.
_VALUE_PROPERTIES = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})
_FACTS = frozenset(
    {
        "dim", "size", "numel", "nelement", "stride", "storage_offset", "element_size", "is_contiguous", "is_floating_point", "is_complex",
        "requires_grad_", "get_device", "ndimension", "is_signed", "is_same_size", "register_hook", "register_post_accumulate_grad_hook",
        "__hash__", "__len__", "is_shared",
    }
)  # fmt: skip

# Calls that do not care what a gradient was.
_ZEROING = frozenset({"zero_", "_foreach_zero_"})


def _reads_facts(function):
    name = function.__name__
    if name in ("__get__", "__set__", "__delete__"):
        return getattr(function.__self__, "__name__", "data") not in _VALUE_PROPERTIES
    return name in _FACTS


def _bring_to_rest(values, zeroing=False):
    for value in values:
        kind = type(value)
        if kind is GuardedGradient:
            owner, i = _gradients[id(value)]
            owner.use_gradient(i, zeroing)
        elif kind is tuple or kind is list:
            _bring_to_rest(value, zeroing)
        elif kind is dict:
            _bring_to_rest(value.values(), zeroing)
        elif issubclass(kind, _Guarded):
            owner, i = _parameters[id(value)]
            try:
                owner.use_parameter(i)
            except MaypoleError as error:
                mend(owner, error)
        elif isinstance(value, (tuple, list)):
            _bring_to_rest(value, zeroing)


def mend(owner, error):
    """Raises the error, or returns when an elastic loop has dealt with it: the owner is then another one."""
    deal_with = owner.on_broken and owner.on_broken()
    if deal_with is None or not deal_with(error):
        raise error


def _guarded_call(function, args, kwargs):
    if not _reads_facts(function):
        _bring_to_rest(args, function.__name__ in _ZEROING)
        if kwargs:
            _bring_to_rest(kwargs.values())
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **(kwargs or {}))


class _Guarded:
    """Marks guarded parameter classes."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return _guarded_call(function, args, kwargs)

    def __deepcopy__(self, memo):
        _bring_to_rest((self,))
        return self.__deepcopy__(memo)

    def __reduce_ex__(self, protocol):
        _bring_to_rest((self,))
        return self.__reduce_ex__(protocol)


class GuardedGradient(torch.Tensor):
    """A gradient whose average is not here yet."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return _guarded_call(function, args, kwargs)

    def __deepcopy__(self, memo):
        _bring_to_rest((self,))
        return self.__deepcopy__(memo)

    def __reduce_ex__(self, protocol):
        _bring_to_rest((self,))
        return self.__reduce_ex__(protocol)


_guarded_types = {}


def guarded_type(kind):
    """The guarded subclass of a parameter class, or None where the class has a __torch_function__ of its own to respect."""
    if kind not in _guarded_types:
        plain = kind.__torch_function__ is torch.nn.Parameter.__torch_function__
        _guarded_types[kind] = type("GuardedParameter", (_Guarded, kind), {}) if plain else None
    return _guarded_types[kind]


def owner_of(parameter):
    return _parameters.get(id(parameter), (None, -1))[0]


def adopt_parameter(parameter, owner, i):
    _parameters[id(parameter)] = (owner, i)


def adopt_gradient(view, owner, i):
    _gradients[id(view)] = (owner, i)


def release(owner):
    """Forgets what `owner` owned; the caller has brought it to rest."""
    for table in (_parameters, _gradients):
        for key in [key for key, value in table.items() if value[0] is owner]:
            del table[key]

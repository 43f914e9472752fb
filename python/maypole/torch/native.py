# SPDX-License-Identifier: Apache-2.0
"""The engine of the native back end, with its memory as tensors."""

import ctypes

import torch

from maypole import _core
from maypole.torch.dtypes import NUMBERS
from maypole.torch.transport import RingTransport

_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def start(environment, timeout):
    """Forms the ring that the environment describes. Returns the engine and the transport of user collectives."""
    core = _core.join_ring(environment, environment.timeout_s if timeout is None else float(timeout))
    transport = RingTransport(core.communicator)
    return NativeEngine(core, transport), transport


class NativeEngine:
    """Calls of an iteration go to the core as they are; what is added here turns addresses into tensors."""

    takes_addresses = True
    update_kinds = None  # all of them
    device = torch.device("cpu")

    def __init__(self, core, transport):
        self._core = core
        self._transport = transport
        self._dtypes = {}
        self._memory = {}  # model -> what keeps the memory of its parameters, gradients and state

    def __getattr__(self, name):
        return getattr(self._core, name)

    @property
    def edge_cost(self):
        """(alpha_s, beta_s_per_byte) of the slowest edge, as measured when the ring formed."""
        return self._core.communicator.edge_cost

    @property
    def network(self):
        """(transport, alpha_s, beta_s_per_byte): what groups are tuned for."""
        transport = "shm" if "shared memory" in self._core.communicator.describe() else "tcp"
        return (transport, *self.edge_cost)

    def check_options(self, _options):
        """Whatever the front end lets pass, this back end does."""

    def add_model(self, specs, **options):
        model = self._core.add_model(specs, **options)
        self._dtypes[model] = [_DTYPES[spec[2]] for spec in specs]
        self._memory[model] = self._core.handles(model)
        return model

    def remove_model(self, model, agreed):
        self._core.remove_model(model, agreed)
        del self._dtypes[model], self._memory[model]

    def parameter_tensor(self, model, i):
        return self._tensor(model, i, 0, *self._core.parameter(model, i))

    def gradient_tensor(self, model, i):
        return self._tensor(model, i, 1, *self._core.gradient(model, i))

    def state_tensor(self, model, i, slot):
        return self._tensor(model, i, 2, *self._core.state(model, i, slot))

    def _tensor(self, model, i, kind, address, size):
        # The buffer holds the memory, the tensor's storage holds the buffer: the memory outlives all tensors.
        buffer = (ctypes.c_byte * size).from_address(address)
        buffer.memory = self._memory[model][kind]
        return torch.frombuffer(buffer, dtype=self._dtypes[model][i])

    def read_state_tensor(self, model, i, slot, dtype):
        return torch.frombuffer(bytearray(self._core.read_state(model, i, slot)), dtype=dtype)

    def write_state_tensor(self, model, i, slot, values):
        self._core.write_state(model, i, slot, values.data_ptr(), values.numel() * values.element_size())

    def finalize(self, timeline_file):
        """The core ends with the process, when its exit status is known and the interpreter gone; what is in motion stays in memory."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._transport))
        self._core.end_with_process(timeline_file)

    def say_goodbye(self):
        """Leaves a ring that all leave: waits until each rank has done what it began."""
        self._core.finalize()

    def close(self):
        """Ends the ring's threads and sockets now; memory that tensors still use stays."""
        self._core = None
        self._memory.clear()

    def abort(self, reason):
        self._core.communicator.abort(reason)

    def close_after_fork(self):
        self._core.communicator.close_after_fork()

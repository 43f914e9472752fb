# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run in a folder: each a file that is whole or not there, verified when it is read, written while training goes on."""

import contextlib
import os
import sys
import threading
import time

from maypole import _core
from maypole.errors import MaypoleError, UsageError
from maypole.torch.collectives import as_bytes
from maypole.torch.elastic import checkpoint_file, packing

_NAME = "checkpoint-{:012d}.maypole"


def settings(folder, every, keep):
    """What the script says, or what `maypole run` says in its place."""
    folder = os.environ.get("MAYPOLE_CHECKPOINT_DIR") or folder
    every = os.environ.get("MAYPOLE_CHECKPOINT_EVERY") or every
    keep = os.environ.get("MAYPOLE_CHECKPOINT_KEEP") or keep
    return folder, every, int(keep)


def interval(every):
    """("steps", n) or ("seconds", s) of a number of steps, or a duration as text ("10min")."""
    text = str(every)
    if text.isdigit() and int(text) > 0:
        return "steps", int(text)
    try:
        seconds = _core.parse_duration(text)
    except MaypoleError as error:
        raise UsageError(f"checkpoint_every is a number of steps or a duration, as 500 or '10min', not {every!r}") from error
    if seconds <= 0:
        raise UsageError(f"checkpoint_every must be above zero, not {every!r}")
    return "seconds", seconds


class Checkpoints:
    """The last `keep` of them. facts: lines that a checkpoint and the run that reads it must have in common.

    A checkpoint costs training a copy of the state, which stays allocated; a thread writes it aside, and gives it its name when the disk
    has it. One that cannot be written is said in a line, and training goes on.
    """

    def __init__(self, folder, every, keep, facts):
        if keep < 1:
            raise UsageError(f"checkpoint_keep must be at least 1, not {keep}")
        self._folder = os.path.abspath(folder)
        self._kind, self._every = interval(every)
        self._keep = keep
        self._facts = facts
        self._copies = []  # of the state's tensors, flat; kept for the next time
        self._writing = None
        self._failing = False
        self._damaged = set()
        self.began(0)
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder of checkpoints {self._folder} cannot be made: {error.strerror}") from error
        step = self.newest()
        if step >= 0:
            self._check_facts(step)

    # --- when ---

    def began(self, step):
        """Training (again) goes on from here."""
        self._last_step, self._last_time = step, time.monotonic()

    def due(self, step):
        """Whether a checkpoint is to be taken now. One that is still being written is not waited for."""
        if self._writing is not None and self._writing.is_alive():
            return False
        if self._kind == "steps":
            return step // self._every > self._last_step // self._every
        return step > self._last_step and time.monotonic() - self._last_time >= self._every

    # --- writing ---

    def begin(self, step, state):
        """Copies the state; when this returns it may change again."""
        self.finish()
        text, tensors = packing.pack(state)
        flat = [as_bytes(tensor.contiguous().to("cpu")) for tensor in tensors]
        if [copy.numel() for copy in self._copies] != [part.numel() for part in flat]:
            self._copies = [part.clone() for part in flat]
        else:
            for copy, part in zip(self._copies, flat):
                copy.copy_(part)
        described = checkpoint_file.describe(step, self._facts, text, tensors)
        self.began(step)
        self._writing = threading.Thread(target=self._write, args=(step, described, self._copies), name="maypole-checkpoint")
        self._writing.start()

    def finish(self):
        """Waits until what was begun is on the disk, or has failed."""
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def _write(self, step, described, parts):
        path = self._path(step)
        aside = f"{path}.partial-{os.uname().nodename}-{os.getpid()}"
        try:
            self._remove_partial()  # of a worker that died while it wrote
            checkpoint_file.write(aside, described, parts)
            os.replace(aside, path)
            checkpoint_file.sync_folder(self._folder)
            for old in self._steps()[: -self._keep]:
                os.remove(self._path(old))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(aside)
            if not self._failing:
                _say(f"the checkpoint of step {step} cannot be written to {self._folder}: {error.strerror}; training goes on")
            self._failing = True
            return
        if self._failing:
            _say(f"checkpoints are written again, that of step {step} first")
        self._failing = False

    # --- reading ---

    def newest(self):
        """The step of the newest one that is not known to be damaged; -1: there is none."""
        return max((step for step in self._steps() if step not in self._damaged), default=-1)

    def load(self, step):
        """The state of this step; None, and a line that says why, where it is damaged: it is then put aside."""
        path = self._path(step)
        try:
            text, tensors = checkpoint_file.read(path)
        except (checkpoint_file.DamagedError, OSError) as error:  # a disk that fails to read has damaged it as well
            self._damaged.add(step)
            _say(f"checkpoint {path} is damaged ({error}) and put aside")
            with contextlib.suppress(OSError):
                os.replace(path, f"{path}.damaged")
            return None
        self._check_facts(step)
        _say(f"training goes on from step {step}, from {path}")
        return packing.unpack(text, tensors)

    def _check_facts(self, step):
        """The newest checkpoint is of this training, or it is an error for all: a damaged one is found out later."""
        path = self._path(step)
        try:
            found = checkpoint_file.read_facts(path)
        except (checkpoint_file.DamagedError, OSError):
            return
        for theirs, ours in zip([*found, ""], [*self._facts, ""]):
            if theirs != ours:
                raise UsageError(f"checkpoint {path} is of another training: it has '{theirs}' where this one has '{ours}'")

    def _path(self, step):
        return os.path.join(self._folder, _NAME.format(step))

    def _steps(self):
        """Of all files that have a checkpoint's name, in ascending order."""
        found = []
        before, after = _NAME.split("{:012d}")
        with contextlib.suppress(OSError):  # a folder that is gone has none
            found = os.listdir(self._folder)
        names = [name[len(before) : -len(after)] for name in found if name.startswith(before) and name.endswith(after)]
        return sorted(int(name) for name in names if name.isdigit())

    def _remove_partial(self):
        for name in os.listdir(self._folder):
            if ".maypole.partial-" in name:
                os.remove(os.path.join(self._folder, name))


def _say(text):
    print(f"maypole: {text}", file=sys.stderr, flush=True)

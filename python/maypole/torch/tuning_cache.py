# SPDX-License-Identifier: Apache-2.0
"""Groups that an earlier run tuned, kept for the next start: one small JSON file for each model, world, schedule and machine.

Rank 0 reads and writes; what it found is everyone's. A file that is damaged, of another version or about something else is left alone
with one line on standard error, and tuning begins anew. MAYPOLE_TUNING_CACHE is a folder, or `off`; without it the folder is
$XDG_CACHE_HOME/maypole or ~/.cache/maypole.
"""

import contextlib
import hashlib
import json
import math
import os
import platform
import sys
import tempfile
from pathlib import Path

import torch

from maypole import _core

VERSION = 1
_SAME_LINK = 1.5  # seconds a byte that differ by no more than this factor are the same network
_SAME_START = 8.0  # start-up times are measured less well
_MOST_ENTRIES = 8  # networks in one file


def folder():
    """Where the files are; None: nothing is kept."""
    chosen = os.environ.get("MAYPOLE_TUNING_CACHE", "")
    if chosen.lower() in ("off", "0", "no", "false"):
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    with contextlib.suppress(RuntimeError):  # nobody's home
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "maypole"
    return None


def machine():
    """What computing depends on: processor, cores, threads, PyTorch."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, PyTorch {torch.__version__}"


class TuningCache:
    """The entry of one model in one job."""

    def __init__(self, where, specs, settings, network):
        """where: folder(). specs: (name, elements, dtype, param group) of each parameter, in the engine's order. settings: all else that
        groups depend on, by name. network: (transport, alpha_s, beta_s_per_byte)."""
        transport, self._alpha_s, self._beta_s = network
        arenas = _core.plan_fusion([(elements, dtype) for _, elements, dtype, _ in specs]).arenas
        self._blocks = [-(-arena.count // arena.block) for arena in arenas]
        self._subject = {
            **settings,
            "transport": transport,
            "machine": machine(),
            "parameters": hashlib.sha256(repr(specs).encode()).hexdigest(),
            "arenas": [[arena.dtype, arena.count, arena.block] for arena in arenas],
        }
        key = hashlib.sha256(json.dumps(self._subject, sort_keys=True).encode()).hexdigest()
        self.path = None if where is None else where / f"groups-{key[:32]}.json"

    def load(self):
        """(cuts, tuned_for) of the entry whose network is nearest to this one, or None."""
        best = None
        for entry in self._entries():
            distance = abs(math.log(entry["beta_s_per_byte"] / self._beta_s))
            near = distance <= math.log(_SAME_LINK) and abs(math.log(entry["alpha_s"] / self._alpha_s)) <= math.log(_SAME_START)
            if near and (best is None or distance < best[0]):
                best = distance, entry
        if best is None:
            return None
        return best[1]["cuts"], tuple(best[1]["tuned_for"])

    def store(self, cuts, tuned_for, text):
        """Replaces the entry of this network; a folder that cannot be written costs one line."""
        if self.path is None:
            return
        entry = {"alpha_s": self._alpha_s, "beta_s_per_byte": self._beta_s, "cuts": cuts, "tuned_for": list(tuned_for), "text": text}
        others = [old for old in self._entries(quiet=True) if abs(math.log(old["beta_s_per_byte"] / self._beta_s)) > math.log(_SAME_LINK)]
        content = {"version": VERSION, "subject": self._subject, "entries": [entry, *others][:_MOST_ENTRIES]}
        partial = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=".groups-", suffix=".json", delete=False) as file:
                partial = file.name
                json.dump(content, file)
            os.replace(partial, self.path)
        except OSError as error:
            if partial is not None:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
            _say(f"tuned groups are not kept: {error}")

    def _entries(self, quiet=False):
        if self.path is None:
            return []
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["version"] != VERSION:
                raise ValueError(f"it is of version {content['version']}, this is {VERSION}")
            if content["subject"] != self._subject:
                raise ValueError("it is about another model or job")
            return [self._checked(entry) for entry in content["entries"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if not quiet:
                _say(f"{self.path} is not used ({type(error).__name__}: {error}); groups are tuned anew")
            return []

    def _checked(self, entry):
        figures = [entry["alpha_s"], entry["beta_s_per_byte"], *entry["tuned_for"]]
        if len(figures) != 4 or not all(isinstance(f, (int, float)) and math.isfinite(f) and f > 0 for f in figures):
            raise ValueError("a time is missing or not positive")
        if len(entry["cuts"]) != len(self._blocks):
            raise ValueError(f"it has groups of {len(entry['cuts'])} arenas, the model has {len(self._blocks)}")
        for cuts, num_blocks in zip(entry["cuts"], self._blocks):
            if (
                not all(isinstance(block, int) and 0 <= block < num_blocks for block in cuts)
                or cuts[:1] != [0]
                or sorted(set(cuts)) != cuts
            ):
                raise ValueError(f"its groups do not ascend from block 0 to one of {num_blocks}")
        return entry


def _say(text):
    print(f"maypole: {text}", file=sys.stderr, flush=True)

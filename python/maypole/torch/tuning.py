# SPDX-License-Identifier: Apache-2.0
"""How groups come about: what `group_size` says, what an earlier run found, and keeping what this one finds."""

from maypole import _core
from maypole.errors import UsageError
from maypole.torch import tuning_cache
from maypole.torch.collectives import broadcast_object

_SEARCHES = {"auto": "auto", "plan": "plan", "tune": "bayes"}


def group_options(group_size, can_tune):
    """What engine.add_model() is told: group_bytes (0: its default) and the search that tunes them, if any. can_tune: whether the engine
    tunes; where it does not, "auto" is the default."""
    word, _, size = group_size.partition(":") if isinstance(group_size, str) else ("", "", group_size)
    search = _SEARCHES.get(word, "")
    if word == "auto" and not can_tune:
        search = ""
    if word not in _SEARCHES:
        size = group_size
    elif not size:
        return {"group_bytes": 0, "fusion_search": search}
    size = _core.parse_bytes(size) if isinstance(size, str) else int(size)
    if size <= 0:
        raise UsageError(f"group_size is 'auto', 'plan', 'tune' or a positive number of bytes, not {group_size!r}")
    return {"group_bytes": size, "fusion_search": search}


class TunedGroups:
    """The groups of one model: looked up when the engine lays it out, kept whenever a choice was made."""

    def __init__(self, options, here, use_cache):
        self._options = options
        self._here = here
        self._auto = options["fusion_search"] == "auto"
        self._folder = tuning_cache.folder() if use_cache else None
        self._cache = None  # of rank 0
        self._kept = 0

    def found(self, engine, model):
        """What is known of a model's groups, for known() in another ring."""
        report = engine.tuning(model) if self._options["fusion_search"] else {"cuts": []}
        return {"cuts": report["cuts"], "tuned_for": [*report["tuned_for"]]} if report["cuts"] else None

    def known(self, engine, specs, found=None):
        """Keywords of engine.add_model(). found: as another ring found them; else an earlier run's. Collective where groups are tuned."""
        given = found and {"cuts": found["cuts"], "tuned_for": tuple(found["tuned_for"])}
        if not self._auto:
            return given or {}
        found, self._cache, self._kept = None, None, 0
        if self._here.rank == 0 and self._folder is not None:
            settings = {name: self._options[name] for name in ("schedule", "sharded", "optimizer", "compress_bfloat16")}
            self._cache = tuning_cache.TuningCache(self._folder, specs, {**settings, "workers": self._here.size}, engine.network)
            found = None if given else self._cache.load()
        if given:
            return given
        found = broadcast_object(found)
        return {} if found is None else {"cuts": found[0], "tuned_for": found[1]}

    def keep(self, engine, model):
        """After each step()."""
        if self._cache is not None and engine.times_tuned(model) != self._kept:
            found = engine.tuning(model)
            self._kept = found["settled"]
            self._cache.store(found["cuts"], found["tuned_for"], found["text"])

    def report(self):
        return {} if self._here.backend == "native" else {"fusion": "the c10d back end does not tune groups: their size stays"}

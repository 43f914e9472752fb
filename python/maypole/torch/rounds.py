# SPDX-License-Identifier: Apache-2.0
"""From autograd to the engine: which gradient is complete when, and who must wait for what.

A round is one outermost backward outside no_sync(): every group of gradients is reduced once. An iteration is one or more rounds and
a step. Phases:

    IDLE     after step(); parameters may be in motion, and p.grad is what the script left there
    OPEN     a backward runs; gradients go to the engine one by one
    REDUCED  backward has ended; averages are in motion, each p.grad is a guarded view of where its average will be
    SYNCED   averages are in place, each p.grad is a plain view of it, and step() takes them as the script leaves them

p.grad is always a real tensor or None, as the script left it, so zero_grad of every kind is seen by looking at p.grad when the next
round begins or at step(): None means discarded, the view means kept, another tensor replaces it.

The first round is special: the order of first use is not known before it ends. Gradients stay where autograd made them; when the
round ends, the engine lays out the arenas, parameters and gradients move there, and the round is reduced as with `sync`. With the layout()
of another ring there is no such round.
"""

import contextlib
import functools
import math

import torch

from maypole.errors import MaypoleError, UsageError
from maypole.torch import guard, runtime, wrong
from maypole.torch.collectives import broadcast_object
from maypole.torch.dtypes import NUMBERS
from maypole.torch.hooks import GradientHooks
from maypole.torch.placement import FreedMemory, Placement, unguarded

IDLE, OPEN, REDUCED, SYNCED = range(4)

_open_rounds = []  # of all models


class Rounds:
    def __init__(self, engine, parameters, names, param_groups, options, tuned):
        """parameters: of one optimizer, none twice, none empty; param_groups: of each one its param group; options: of engine.add_model."""
        self.engine = engine
        self.parameters = parameters  # in forward order once the engine knows them
        self.names = names
        self.model = None  # the engine's number for them
        self.sharded = options["sharded"]
        self.syncing = True  # False inside no_sync()
        self.phase = IDLE
        self.fast = False  # an open round in which complete gradients go straight to the engine
        self.compiled = False  # the model, or a part of it, runs under torch.compile
        self.on_set_up = None  # called once, when the engine has taken the parameters over
        self.on_event = None  # join(): called before each collective step with its name
        self.on_broken = None  # an elastic loop: a weak method that may deal with an error, where no batch of it is open
        self.joining = False
        self._options, self._tuned, self._param_groups = options, tuned, param_groups
        self._lost = set()  # gradients to which a sharded update added what this rank never had
        self._uncovered = []  # gradients that nobody shall read, without their guard while compiled code runs
        self._averages_are_here = False  # the last step() began from averages that this rank holds
        self._dirty = False  # local gradients were accumulated under no_sync()
        self._accumulating = False  # this round starts from sums that are in gradient memory already
        self.fired = [0] * len(parameters)  # firings of each parameter's hook in this round
        self.expected = [1] * len(parameters)
        self._types = [type(p) for p in parameters]
        self._placement, self.views, self._first_use = None, [], []
        self.agreed_to_end = False  # no peer reads optimizer state of this model any more
        self._factor = 1.0  # of clip_grad_norm_, on averages that were not read before step()
        self.weight = 1.0  # of this rank's gradients in the average; 1 where all ranks have equally many samples
        for i, parameter in enumerate(parameters):
            guard.adopt_parameter(parameter, self, i)
        self.hooks = GradientHooks(self)

    # --- what the hooks tell (hooks.py) ---

    def backward_ends(self):
        """The outermost backward has ended. The engine ends the rounds of all models at once: what they still hold goes there first."""
        if self.model is None:
            self.set_up()
            return
        for rounds in _open_rounds:
            rounds._hand_over_rest()
        for rounds in list(_open_rounds):
            rounds._end_round()

    def backward_was_lost(self):
        """A backward died of an exception: its round ends with what there was."""
        if self.phase == OPEN:
            self._end_round()

    def before_accumulation(self, i):
        """Autograd is about to add to an average that is in motion."""
        if self.phase == OPEN and self.fired[i] > 0:
            raise wrong.fired_again(self.names[i])
        if self.phase == IDLE and self.sharded and not self._averages_are_here:
            # Added to what this rank never had: an error only if it is used (a GAN's generator step leaves such sums, to be zeroed).
            self.engine.before_use(self.model, i)
            self._lost.add(i)
            self.views[i].__class__ = torch.Tensor
            return
        self.use_gradient(i)

    def after_accumulation(self, i):
        gradient = self.parameters[i].grad
        if gradient.layout != torch.strided:
            raise wrong.sparse(self.names[i])
        if not self.syncing:
            self._dirty = True
            return
        if self.phase != OPEN:
            self._begin_round(i)
            self.hooks.backward_begins()
        self.fired[i] += 1
        if self._options["schedule"] == "sync":
            return  # all are handed over when backward has ended, however often each came
        if self.fired[i] > self.expected[i]:
            raise wrong.fired_again(self.names[i])
        if self.fired[i] == self.expected[i]:
            self._hand_over(i)

    # --- rounds ---

    def _begin_round(self, current=-1):
        """current: the parameter whose gradient was accumulated just now; it holds the sum already."""
        self.hooks.watch_unfrozen()
        with unguarded():
            gradients = [parameter.grad for parameter in self.parameters]
            kept = [i for i, gradient in enumerate(gradients) if gradient is self.views[i]]
            self._lost = {i for i in self._lost if gradients[i] is self.views[i]}
            if self.phase == IDLE:
                for i in kept:
                    if self.views[i].__class__ is guard.GuardedGradient:
                        self.before_accumulation(i)
                if kept:
                    self._keep_what_others_gave(current)
            elif kept or any(gradient is not None for i, gradient in enumerate(gradients) if i != current):
                self._wait_for_averages()
                self._absorb(current)
            else:
                self._event("discard")
                self.engine.discard_gradients(self.model)
                self.phase = IDLE
        self._accumulating = self.phase == SYNCED
        if self._accumulating and self.weight != 1.0:
            raise wrong.unequal_shares()
        self.fired[:] = [0] * len(self.fired)
        self._event("round")
        self.phase = OPEN
        _open_rounds.append(self)
        self._factor = 1.0
        self.fast = self.engine.takes_addresses and not self._accumulating and self._options["schedule"] != "sync"
        self.engine.mark_backward(self.model)

    def _keep_what_others_gave(self, current):
        """Nobody zeroed the last step's averages; those to which only other ranks had contributed are part of the sum as well."""
        for i, parameter in enumerate(self.parameters):
            if self.fired[i] == 0 and self.engine.used(self.model, i) and (parameter.grad is None or i == current):
                self.use_gradient(i)
                if i == current and parameter.grad is not self.views[i]:
                    self.views[i].add_(parameter.grad.detach())
                parameter.grad = self.views[i]

    def _hand_over(self, i):
        """Gives the engine what p.grad holds; p.grad becomes the view of the average to come."""
        parameter, view = self.parameters[i], self.views[i]
        with unguarded():
            gradient = parameter.grad
            if gradient.layout != torch.strided:
                raise wrong.sparse(self.names[i])
            if self.weight != 1.0:
                gradient.detach().mul_(self.weight)
            if gradient is not view:
                if view.__class__ is guard.GuardedGradient:
                    self.engine.before_use(self.model, i)  # the last step's update may still read it
                if self.fast and gradient.stride() == view.stride() and gradient.dtype == view.dtype:
                    self.engine.gradient_ready(self.model, i, gradient.data_ptr())
                elif self.fast:
                    packed = torch.empty_strided(view.shape, view.stride(), dtype=view.dtype).copy_(gradient.detach())
                    self.engine.gradient_ready(self.model, i, packed.data_ptr())
                else:
                    view.copy_(gradient.detach())
                    self.engine.gradient_ready(self.model, i, 0)
                parameter.grad = view
            else:
                self.engine.gradient_ready(self.model, i, 0)
        view.__class__ = guard.GuardedGradient

    def _hand_over_rest(self, freed=None):
        with unguarded():
            for i, parameter in enumerate(self.parameters):
                gradient = parameter.grad
                handed_over = gradient is self.views[i] and self.views[i].__class__ is guard.GuardedGradient
                if gradient is not None and not handed_over:
                    self._hand_over(i)
                    gradient = None  # the last one to hold its memory
                    if freed is not None:
                        freed.add(self.views[i].nbytes)

    def _end_round(self):
        self._hand_over_rest()
        self.engine.end_backward(self.model)
        _open_rounds.remove(self)
        self.phase = REDUCED
        self.fast = False
        self._dirty = False
        if self._options["schedule"] in ("sync", "wfbp"):
            self._wait_for_averages()

    def _reduce_what_is_left(self):
        """Averages gradients that no round has seen: accumulated under no_sync(), or set by hand. p.grad decides, so it is looked at."""
        if self.phase == OPEN:
            if torch._C._current_graph_task_id() != -1:
                raise UsageError("gradients are averaged when backward() has ended; this call was made inside it")
            self._end_round()
        if self.phase == IDLE:
            with unguarded():
                anything = any(parameter.grad is not None for parameter in self.parameters)
        else:
            anything = self._dirty
        if anything:
            self._begin_round()
            self._end_round()
        return anything or self.phase != IDLE

    def _wait_for_averages(self):
        """REDUCED -> SYNCED."""
        if self.phase != REDUCED:
            return
        self._event("synchronize")
        self.engine.synchronize(self.model)
        self.phase = SYNCED
        self._factor = 1.0
        self._show_averages()

    def _show_averages(self):
        """Gradients that only other ranks had become visible here too."""
        with unguarded():
            for i, parameter in enumerate(self.parameters):
                view = self.views[i]
                view.__class__ = torch.Tensor
                if self.fired[i] == 0 and parameter.grad is None and self.engine.used(self.model, i):
                    parameter.grad = view

    def _absorb(self, current=-1):
        """Takes p.grad as the script left it as the gradient; SYNCED only."""
        with unguarded():
            for i, parameter in enumerate(self.parameters):
                gradient, view = parameter.grad, self.views[i]
                if gradient is view or i == current:
                    continue
                if gradient is None:
                    view.zero_()
                    self.engine.set_used(self.model, i, False)
                else:
                    view.copy_(gradient.detach())
                    self.engine.set_used(self.model, i, True)

    def synchronize(self):
        """Makes each p.grad the average, now."""
        if self.model is None:
            self.set_up()
        if self._reduce_what_is_left():
            self._wait_for_averages()

    def step(self, hyper, update):
        """Gradients are final. update: None where the engine updates; else a function that updates from p.grad."""
        if self.model is None:
            self.set_up()
        self._reduce_what_is_left()
        if update is not None:
            if self.phase == REDUCED:
                self._wait_for_averages()
        elif self.phase == REDUCED and not self._untouched():
            self._wait_for_averages()
        if self.phase == SYNCED and update is None:
            self._absorb()
        with unguarded():
            for i in self._lost:
                if self.parameters[i].grad is self.views[i]:
                    raise wrong.never_gathered(self.names[i])
        self._lost.clear()
        self._placement.keep(self.parameters, self.names)
        self._event("step")
        self.engine.step(self.model, hyper)
        self._tuned.keep(self.engine, self.model)
        if update is not None:
            if self.phase == IDLE:
                self._show_averages()
            self.phase = IDLE
            update()
            return
        self._averages_are_here = self.phase == SYNCED
        self.phase = IDLE
        # As torch's own update does: a backward through a forward from before the step is torch's error, not a wrong gradient.
        torch.autograd.graph.increment_version(self.parameters)
        if self._options["schedule"] not in ("sync", "wfbp"):
            self._set_in_motion()
            for view in self.views:  # the update may still read them
                view.__class__ = guard.GuardedGradient

    def _untouched(self):
        with unguarded():
            return all(
                (gradient := parameter.grad) is view or (gradient is None and fired == 0)
                for parameter, view, fired in zip(self.parameters, self.views, self.fired)
            )

    def _set_in_motion(self):
        if None in self._guarded_types:
            self.engine.flush(self.model)
            return
        for parameter, kind in zip(self.parameters, self._guarded_types):
            parameter.__class__ = kind

    # --- what the guard and the front end ask for ---

    def use_parameter(self, i):
        parameter = self.parameters[i]
        if self.model is None:
            self._first_use.append(i)
        else:
            self.engine.before_use(self.model, i)
        parameter.__class__ = self._types[i]
        # The groups that held it hold its neighbours too: spare them the call.
        i += 1
        if self.model is not None and not self.engine.notes_first_use(self.model):
            while i < len(self.parameters) and type(self.parameters[i]) is not self._types[i] and not self.engine.in_motion(self.model, i):
                self.parameters[i].__class__ = self._types[i]
                i += 1

    def use_gradient(self, i, zeroing=False):
        """zeroing: whatever it was, it will be zeros."""
        view = self.views[i]
        if self.phase == OPEN:
            raise UsageError(
                f"the gradient of '{self.names[i]}' is on its way to the other ranks; it is the average when backward() has ended"
            )
        if self.phase == REDUCED:
            self._wait_for_averages()
        elif self.phase == IDLE:
            self.engine.before_use(self.model, i)
            if self.sharded and not self._averages_are_here:
                self._lost.add(i)
            if self._factor != 1.0:
                with unguarded():
                    view.mul_(self._factor)
        if zeroing:
            self._lost.discard(i)
        elif i in self._lost:
            raise wrong.never_gathered(self.names[i])
        view.__class__ = torch.Tensor

    def flush(self):
        if self.model is not None:
            self.engine.flush(self.model)
        self.unguard()

    def unguard(self):
        for parameter, kind in zip(self.parameters, self._types):
            parameter.__class__ = kind

    def compiled_forward_begins(self):
        """Compiled code checks the classes of what it uses before it runs: everything is brought to rest here, once."""
        self.flush()
        if self.phase == REDUCED:
            self._wait_for_averages()
        elif self.phase == IDLE and self.sharded and not self._averages_are_here:
            # Dynamo looks at each p.grad, also at one that this rank never had; the script shall not, so the guard comes back after it.
            self._uncovered = [view for view in self.views if view.__class__ is guard.GuardedGradient]
            for view in self._uncovered:
                view.__class__ = torch.Tensor

    def compiled_forward_ended(self):
        if self.phase == IDLE:
            for view in self._uncovered:
                view.__class__ = guard.GuardedGradient
        self._uncovered = []

    def record_first_use(self):
        """From here on the guard notes the order in which parameters are used for the first time."""
        if self.model is None and not self._first_use and None not in self._guarded_types:
            self._set_in_motion()

    @functools.cached_property
    def _guarded_types(self):
        return [guard.guarded_type(kind) for kind in self._types]

    def clip(self, max_norm, norm_type):
        """Scales the averages to at most max_norm, without gathering them where nobody has read them; returns the norm."""
        if self.model is None:
            self.set_up()
        self._reduce_what_is_left()
        gathered = self.phase != REDUCED or self._options["optimizer"] == "none" or not self._untouched()
        if gathered or not (norm_type >= 1 or math.isinf(norm_type)):
            self.synchronize()
            return torch.nn.utils.clip_grad_norm_(self.parameters, max_norm, norm_type)
        self._event("norm", max_norm, norm_type)
        norm = self.engine.gradient_norm(self.model, norm_type)
        factor = math.nan if math.isnan(norm) else min(1.0, max_norm / (norm + 1e-6))
        self.engine.scale_gradients(self.model, factor)
        self._factor *= factor
        return torch.tensor(norm, dtype=self.parameters[0].dtype)

    def may_read_sharded_state(self):
        """Ends a round whose gradients the script has thrown away (a GAN's generator leaves such in its critic)."""
        with unguarded():
            kept = any(parameter.grad is not None for parameter in self.parameters)
        if self.phase in (REDUCED, SYNCED) and not kept:
            self._event("discard")
            self.discard()
        return self.phase == IDLE

    def discard(self):
        self.engine.discard_gradients(self.model)
        self.phase = IDLE

    def report(self):
        if self.model is None:
            return runtime.empty_report(self._options["schedule"], "sharded" if self.sharded else "replicated")
        waits = "once a forward, at its beginning (torch.compile)" if self.compiled else "at the first use of each parameter"
        return {**self.engine.report(self.model), **self._tuned.report(), "waits": waits}

    def close(self):
        """The optimizer is gone: parameters come to rest and keep their memory."""
        self.hooks.remove()
        if self in _open_rounds:  # a backward that died of a lost peer
            _open_rounds.remove(self)
        with contextlib.suppress(MaypoleError):  # the job has failed; whoever still trains was told
            self.flush()
        self.unguard()
        with unguarded():
            for i, (parameter, view) in enumerate(zip(self.parameters, self.views)):
                if view.__class__ is guard.GuardedGradient:
                    readable = self.phase == IDLE and (self._averages_are_here or not self.sharded) and i not in self._lost
                    view.__class__ = torch.Tensor
                    if readable:
                        view.mul_(self._factor)
                    elif parameter.grad is view:
                        parameter.grad = None  # no average is here, and none will come
        last = self.report()
        self.report = lambda: last
        if self.model is not None and self.phase == IDLE:  # else peers may still need what this rank has begun
            with contextlib.suppress(MaypoleError):  # the job has failed
                self.engine.remove_model(self.model, self.agreed_to_end)
        self.parameters, self.views, self._uncovered, self._placement, self.on_set_up = [], [], [], None, None

    def reduce_nothing(self):
        """A round in which this rank has no gradient. It says zeros for the parameter that is used first, which opens the round."""
        if self.phase == REDUCED:
            self._wait_for_averages()
        self._begin_round()
        if not self._accumulating:
            self.engine.before_use(self.model, 0)
            with unguarded():
                self.views[0].zero_()
        self.engine.gradient_ready(self.model, 0, 0)
        self._end_round()

    def _event(self, word, *details):
        if self.on_event is not None:
            self.on_event(word, *details)

    # --- set-up, after the first backward ---

    def layout(self):
        """What set_up() found out, and how groups were tuned since, for another ring with the same model. None: nothing yet."""
        if self.model is not None:
            return {"names": [*self.names], "expected": [*self.expected], "tuning": self._tuned.found(self.engine, self.model)}

    def set_up(self, layout=None):
        """layout: of another ring, the same on all ranks; without it, what the first round has shown."""
        self.unguard()
        if layout is None:
            used = dict.fromkeys(self._first_use)
            order = broadcast_object([*used, *(i for i in range(len(self.parameters)) if i not in used)])
        else:
            order = [*map({name: i for i, name in enumerate(self.names)}.get, layout["names"])]
        fired = [self.fired[i] for i in order] if layout is None else layout["expected"]
        self.parameters = [self.parameters[i] for i in order]
        self.names = [self.names[i] for i in order]
        self._types = [self._types[i] for i in order]
        self.__dict__.pop("_guarded_types", None)
        self.expected = [max(1, count) for count in fired]
        self.fired = [0] * len(order)
        self._param_groups = [self._param_groups[i] for i in order]
        specs = [(name, p.numel(), NUMBERS[p.dtype], group) for name, p, group in zip(self.names, self.parameters, self._param_groups)]
        self.model = self.engine.add_model(specs, **self._options, **self._tuned.known(self.engine, specs, layout and layout["tuning"]))
        self._placement = Placement(self.engine, self.model, self.parameters)
        self.views = self._placement.gradients
        for i, (parameter, view) in enumerate(zip(self.parameters, self.views)):
            guard.adopt_parameter(parameter, self, i)
            guard.adopt_gradient(view, self, i)
        self.hooks.watch(self.hooks.steady)
        if self.on_set_up is not None:
            self.on_set_up()
        with unguarded():
            anything = any(parameter.grad is not None for parameter in self.parameters)
        if anything and layout is None:
            self._begin_round()
            self.fired[:] = fired
            self._hand_over_rest(FreedMemory())
            self._end_round()
            self._wait_for_averages()

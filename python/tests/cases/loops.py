# SPDX-License-Identifier: Apache-2.0
import contextlib

import maypole.torch as maypole
import torch
from torch import nn

from cases import Job, adamw, batches, case, expect_close, expect_error, loss_of, mlp, sgd


@case
def accumulation_sums_right_with_and_without_no_sync(job: Job):
    for quiet in (True, False):

        def loop(model, optimizer, part, quiet=quiet):
            for k, batch in enumerate(batches(9)):
                last = k % 3 == 2
                silent = quiet and not last and hasattr(optimizer, "no_sync")
                with optimizer.no_sync() if silent else contextlib.nullcontext():
                    (loss_of(model, part, batch) / 3).backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()

        job.compare(mlp, adamw, loop)
        job.compare(mlp, sgd, loop)


@case
def a_step_right_after_no_sync_averages_what_was_accumulated(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(4):
            optimizer.zero_grad()
            with optimizer.no_sync() if hasattr(optimizer, "no_sync") else contextlib.nullcontext():
                loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(mlp, sgd, loop)


@case
def zero_grad_of_every_kind_at_every_place(job: Job):
    def by_optimizer(model, optimizer):
        optimizer.zero_grad()

    def to_zero(model, optimizer):
        optimizer.zero_grad(set_to_none=False)

    def by_model(model, optimizer):
        model.zero_grad()

    def by_hand(model, optimizer):
        for parameter in model.parameters():
            parameter.grad = None

    def in_place(model, optimizer):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()

    for zero in (by_optimizer, to_zero, by_model, by_hand, in_place):
        for place in ("start", "before backward", "after step", "between"):

            def loop(model, optimizer, part, zero=zero, place=place):
                for k, batch in enumerate(batches(5)):
                    if place == "start":
                        zero(model, optimizer)
                    loss = loss_of(model, part, batch)
                    if place == "before backward":
                        zero(model, optimizer)
                    loss.backward()
                    if place == "between":
                        if k % 2:
                            zero(model, optimizer)  # throws this batch away
                            loss_of(model, part, batches(1, seed=k)[0]).backward()
                        optimizer.step()
                        by_optimizer(model, optimizer)
                        continue
                    optimizer.step()
                    if place == "after step":
                        zero(model, optimizer)

            try:
                job.compare(mlp, adamw, loop)
            except Exception as error:
                raise AssertionError(f"{zero.__name__} at {place}: {error}") from error


@case
def without_zero_grad_gradients_add_up_over_steps(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(5):
            loss_of(model, part, batch).backward()
            optimizer.step()

    if job.sharded:
        model = mlp()
        optimizer = job.distribute(sgd(model), model)
        with expect_error("zero_grad", "synchronize"):
            loop(model, optimizer, lambda b: b)
            loop(model, optimizer, lambda b: b)
        return
    job.compare(mlp, sgd, loop)


@case
def several_losses_each_with_its_own_backward(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(4):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            outputs = model(part(batch[0]))
            first, second = outputs.square().mean(), outputs.abs().mean()
            first.backward(retain_graph=True)
            second.backward()
            optimizer.step()

    job.compare(mlp, sgd, loop)


@case
def gradients_can_be_read_and_edited_before_step(job: Job):
    def loop(model, optimizer, part):
        loop.norms.append([])
        for k, batch in enumerate(batches(8)):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            if k % 4 == 1:
                loop.norms[-1].append(sum(p.grad.norm().item() for p in model.parameters()))
            elif k % 4 == 2:
                for parameter in model.parameters():
                    parameter.grad = parameter.grad * 0.5
            elif k % 4 == 3:
                if hasattr(optimizer, "synchronize"):
                    optimizer.synchronize()
                model[0].weight.grad = None
                model[2].weight.grad.mul_(2)
            optimizer.step()

    loop.norms = []
    job.compare(mlp, adamw, loop)
    expect_close(torch.tensor(loop.norms[1]), torch.tensor(loop.norms[0]))


@case
def gradients_can_be_read_after_step(job: Job):
    def loop(model, optimizer, part):
        for batch in batches(3):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            if job.sharded and hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
            optimizer.step()
            loop.norms.append(model[2].weight.grad.norm())

    loop.norms = []
    job.compare(mlp, sgd, loop)
    expect_close(torch.stack(loop.norms[3:]), torch.stack(loop.norms[:3]))


@case
def two_networks_of_a_gan_take_turns(job: Job):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator, self.critic = mlp(), nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1)).double()

    def loop(pair, optimizers, part):
        make, judge = optimizers
        for inputs, _ in batches(5):
            real = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
            judge.zero_grad()
            fake = pair.generator(part(inputs))
            (pair.critic(fake.detach()).mean() - pair.critic(part(real)).mean()).backward()
            judge.step()
            make.zero_grad()
            (-pair.critic(fake).mean()).backward()
            make.step()

    torch.manual_seed(0)
    reference = Pair()
    loop(reference, (adamw(reference.generator), adamw(reference.critic)), lambda b: b)
    torch.manual_seed(0)
    pair = Pair()
    optimizers = [job.distribute(adamw(part), part) for part in (pair.generator, pair.critic)]
    loop(pair, optimizers, lambda b: b[maypole.rank() :: maypole.size()])
    for actual, expected in zip(pair.parameters(), reference.parameters()):
        expect_close(actual, expected)


@case
def losses_of_submodules_without_the_models_own_forward(job: Job):
    def loop(model, optimizer, part):
        for inputs, classes in batches(5):
            optimizer.zero_grad()
            hidden = model[1](model[0](part(inputs)))
            nn.functional.cross_entropy(model[4](model[3](model[2](hidden))), part(classes)).backward()
            optimizer.step()

    job.compare(mlp, sgd, loop)


@case
def ranks_with_fewer_batches_join(job: Job):
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    if job.sharded:
        with expect_error("replicated"), optimizer.join():
            pass
        return
    count = 3 + maypole.rank()
    with optimizer.join():
        for batch in batches(count, seed=maypole.rank()):
            optimizer.zero_grad()
            loss_of(model, lambda b: b, batch).backward()
            optimizer.step()
    for parameter in model.parameters():
        copies = maypole.all_gather(parameter)
        assert all(torch.equal(copy, copies[0]) for copy in copies)


@case
def an_iteration_without_any_backward_changes_nothing(job: Job):
    def loop(model, optimizer, part):
        for k, batch in enumerate(batches(4)):
            optimizer.zero_grad()
            if k != 2:
                loss_of(model, part, batch).backward()
            optimizer.step()

    job.compare(mlp, adamw, loop)

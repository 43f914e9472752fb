# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import io

import maypole.torch as maypole
import torch
from torch import nn

from cases import Job, adamw, batches, case, expect_close, expect_equal, expect_error, loss_of, mlp, share

MAKERS = (
    lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2),
    lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.2),
    lambda m: torch.optim.Adagrad(m.parameters(), lr=1e-2, initial_accumulator_value=0.3),
    lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9),
)


def _train(model, optimizer, part, some):
    for batch in some:
        optimizer.zero_grad()
        loss_of(model, part, batch).backward()
        optimizer.step()


def _stored(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


@case
def checkpoints_go_between_plain_torch_and_any_world(job: Job):
    for make in MAKERS:
        first, second = batches(4), batches(4, seed=2)
        torch.manual_seed(0)
        reference = mlp()
        theirs = make(reference)
        _train(reference, theirs, lambda b: b, first)

        # Plain to distributed, before and after the first step of the distributed one.
        for warm in (False, True):
            model = mlp()
            ours = job.distribute(make(model), model)
            if warm:
                _train(model, ours, share, batches(2, seed=5))
            model.load_state_dict(_stored(reference.state_dict()))
            ours.load_state_dict(_stored(theirs.state_dict()))
            continued, theirs_again = mlp(), None
            continued.load_state_dict(reference.state_dict())
            theirs_again = make(continued)
            theirs_again.load_state_dict(copy.deepcopy(theirs.state_dict()))
            _train(continued, theirs_again, lambda b: b, second)
            _train(model, ours, share, second)
            expect_equal(model, continued)

        # Distributed to plain.
        plain = mlp()
        plain.load_state_dict(_stored(model.state_dict()))
        other = make(plain)
        other.load_state_dict(_stored(ours.state_dict()))
        _train(plain, other, lambda b: b, first)
        _train(continued, theirs_again, lambda b: b, first)
        expect_equal(plain, continued)


@case
def one_rank_alone_may_ask_for_the_state(job: Job):
    torch.manual_seed(0)
    model = mlp()
    ours = job.distribute(MAKERS[0](model), model)
    torch.manual_seed(0)
    reference = mlp()
    theirs = MAKERS[0](reference)
    if job.sharded or maypole.rank() != 0:
        torch.manual_seed(0)
    for batch in batches(4):
        _train(model, ours, share, [batch])
        if maypole.rank() == maypole.size() - 1:
            state = ours.state_dict()["state"]
            weights = {name: value.clone() for name, value in model.state_dict().items()}
    maypole.broadcast(next(reference.parameters()), 0)
    if maypole.rank() == maypole.size() - 1:
        maypole_start = mlp()
        del maypole_start
        assert set(state) == {0, 1, 2, 3, 4, 5} and all(entry["step"] == 4 for entry in state.values())
        _train(reference, theirs, lambda b: b, batches(4))
        expected = theirs.state_dict()["state"]
        for k, entry in state.items():
            expect_close(entry["exp_avg"], expected[k]["exp_avg"], 1e-9)
            expect_close(entry["exp_avg_sq"], expected[k]["exp_avg_sq"], 1e-9)
        for name, value in reference.state_dict().items():
            expect_close(weights[name], value)
    maypole.barrier()


@case
def a_state_dict_keeps_its_values_while_training_goes_on(job: Job):
    model = mlp()
    ours = job.distribute(MAKERS[0](model), model)
    _train(model, ours, share, batches(2))
    saved = copy.deepcopy(ours.state_dict())
    weights = copy.deepcopy(model.state_dict())
    _train(model, ours, share, batches(1))
    reference = mlp()
    reference.load_state_dict(weights)
    theirs = MAKERS[0](reference)
    theirs.load_state_dict(saved)
    _train(reference, theirs, lambda b: b, batches(1))
    expect_equal(model, reference)


@case
def a_saved_parameter_holds_only_itself(job: Job):
    if job.backend != "native":
        return  # a process group's arena may be device memory, of which torch cannot make storages of parts
    model = mlp(width=100)
    ours = job.distribute(MAKERS[0](model), model)
    _train(model, ours, share, batches(1))
    file = io.BytesIO()
    torch.save(model[0].bias.detach(), file)
    assert file.tell() < 4096


@case
def a_new_optimizer_over_the_same_model_after_the_old_one_is_gone(job: Job):
    model = mlp()
    ours = job.distribute(MAKERS[0](model), model)
    _train(model, ours, share, batches(2))
    del ours
    reference = mlp()
    reference.load_state_dict(model.state_dict())
    ours = job.distribute(MAKERS[1](model), model)
    _train(model, ours, share, batches(3))
    _train(reference, MAKERS[1](reference), lambda b: b, batches(3))
    expect_equal(model, reference)


@case
def the_state_of_a_gans_critic_is_readable_once_its_gradients_are_zeroed(job: Job):
    generator, critic = mlp(), nn.Linear(3, 1).double()
    make, judge = job.distribute(adamw(generator), generator), job.distribute(adamw(critic), critic)

    def generate(inputs):
        make.zero_grad()
        (-critic(generator(share(inputs))).mean()).backward()
        make.step()

    for inputs, _ in batches(3):
        judge.zero_grad()
        critic(generator(share(inputs)).detach()).mean().backward()
        judge.step()
        generate(inputs)
    if job.sharded:
        with expect_error("weight", "zero_grad()", kind=maypole.UsageError):
            judge.state_dict()
    judge.zero_grad()
    state = judge.state_dict()["state"]
    assert len(state) == 2 and all(entry["step"] == 3 for entry in state.values())
    generate(inputs)
    critic(share(batches(1)[0][0])[:, :3]).mean().backward()
    judge.step()
    assert judge.state_dict()["state"][0]["step"] == 4


@case
def a_closed_optimizer_leaves_its_model_to_another(job: Job):
    closed = []

    def loop(model, optimizer, part):
        for _ in range(3):
            for batch in batches(2):
                optimizer.zero_grad()
                loss_of(model, part, batch).backward()
                optimizer.step()
            loss_of(model, part, batches(1)[0]).backward()  # in vain
            if isinstance(optimizer, maypole.DistributedOptimizer):
                optimizer.close()
                optimizer.close()
                closed.append(optimizer)
                optimizer = job.distribute(adamw(model), model)
            else:
                optimizer.zero_grad()
                optimizer = adamw(model)

    model, _, _ = job.compare(mlp, adamw, loop)
    for optimizer in closed:
        assert optimizer.report()["schedule"] == job.schedule
        for call in (optimizer.step, optimizer.synchronize, optimizer.flush):
            with expect_error("was closed", kind=maypole.ClosedError):
                call()
    assert all(type(parameter) is torch.nn.Parameter and parameter.grad is None for parameter in model.parameters())


@case
def gradients_outlive_their_optimizer_or_are_none(job: Job):
    norms = []

    def train(model, optimizer, part):
        for batch in batches(2):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()
        del optimizer
        gc.collect()
        norms.append([None if p.grad is None else p.grad.norm() for p in model.parameters()])

    torch.manual_seed(0)
    reference = mlp()
    train(reference, adamw(reference), lambda batch: batch)
    torch.manual_seed(0)
    model = mlp()
    train(model, job.distribute(adamw(model), model), share)
    if job.sharded:
        assert norms[1] == [None] * len(norms[0])
    else:
        expect_close(torch.stack(norms[1]), torch.stack(norms[0]))

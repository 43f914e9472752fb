# SPDX-License-Identifier: Apache-2.0
"""Whatever touches a parameter after step() sees it updated."""

import copy
import io
import pickle

import maypole.torch as maypole
import torch
from torch import nn

from cases import Job, batches, case, expect_close, expect_error, loss_of, mlp, sgd, share

TOUCHES = {
    "state_dict": lambda m, p: next(v for k, v in m.state_dict().items() if k == "2.weight"),
    "data": lambda m, p: p.data,
    "detach": lambda m, p: p.detach(),
    "numpy": lambda m, p: torch.from_numpy(p.detach().numpy()),
    "deepcopy of the model": lambda m, p: copy.deepcopy(m)[2].weight,
    "deepcopy": lambda m, p: copy.deepcopy(p),
    "pickle": lambda m, p: pickle.loads(pickle.dumps(p)),
    "save": lambda m, p: _saved(p),
    "save of the model": lambda m, p: _saved(m)[2].weight,
    "foreach": lambda m, p: torch._foreach_mul([q for q in m.parameters() if q.shape == p.shape], 1.0)[0],
    "average": lambda m, p: torch.optim.swa_utils.AveragedModel(m).module[2].weight,
    "linear": lambda m, p: nn.functional.linear(torch.eye(p.shape[1], dtype=p.dtype), p).T,
    "operator": lambda m, p: p + 0.0,
    "indexing": lambda m, p: torch.stack([p[i] for i in range(len(p))]),
    "iteration": lambda m, p: torch.stack(list(p)),
    "transpose": lambda m, p: p.T.T,
    "out": lambda m, p: torch.add(p.detach(), 0.0, out=torch.empty(p.shape, dtype=p.dtype)),
    "item": lambda m, p: torch.tensor([[x.item() for x in row] for row in p], dtype=p.dtype),
    "tolist": lambda m, p: torch.tensor(p.tolist(), dtype=p.dtype),
    "vector": lambda m, p: nn.utils.parameters_to_vector([p]).view(p.shape),
    "functional_call": lambda m, p: _called(m, p),
    "flush": lambda m, p: p.data,
}


def _saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _called(model, parameter):
    torch.func.functional_call(model, dict(model.named_parameters()), (torch.zeros(1, 8, dtype=torch.float64),))
    return parameter


@case
def every_way_to_touch_a_parameter_sees_the_update(job: Job):
    torch.manual_seed(0)
    reference = mlp()
    theirs = sgd(reference)
    torch.manual_seed(0)
    model = mlp()
    ours = job.distribute(sgd(model), model)
    for (name, touch), batch in zip(TOUCHES.items(), batches(len(TOUCHES))):
        theirs.zero_grad()
        loss_of(reference, lambda b: b, batch).backward()
        theirs.step()
        ours.zero_grad()
        loss_of(model, share, batch).backward()
        ours.step()
        assert isinstance(model[2].weight, nn.Parameter)
        if name == "flush":
            ours.flush()
        expect_close(touch(model, model[2].weight), reference[2].weight, name=name)
        assert type(model[2].weight) is nn.Parameter, name


@case
def parameters_can_be_changed_between_steps(job: Job):
    def loop(model, optimizer, part):
        for k, batch in enumerate(batches(8)):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            if k % 2:
                with torch.no_grad():
                    model[2].weight.clamp_(-0.1, 0.1)
            optimizer.step()
            if k == 2:
                model[0].weight.data = model[0].weight.data * 0.5
            if k == 4:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(0.9)
            if k == 5:
                model.load_state_dict({name: value * 1.1 for name, value in model.state_dict().items()})

    job.compare(mlp, sgd, loop)


@case
def evaluation_in_mid_training_sees_current_parameters(job: Job):
    def loop(model, optimizer, part):
        loop.losses.append([])
        for batch in batches(5):
            optimizer.zero_grad()
            loss_of(model, part, batch).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                loop.losses[-1].append(loss_of(model, lambda b: b, batches(1, seed=9)[0]))
            model.train()

    loop.losses = []
    job.compare(mlp, sgd, loop)
    expect_close(torch.stack(loop.losses[1]), torch.stack(loop.losses[0]))


@case
def facts_about_parameters_do_not_wait(job: Job):
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    for batch in batches(2):
        optimizer.zero_grad()
        loss_of(model, share, batch).backward()
        optimizer.step()
    if job.schedule in ("dear", "weave"):
        assert sum(p.numel() for p in model.parameters() if p.requires_grad and p.dtype == torch.float64 and p.shape) > 0
        assert all(type(parameter) is not nn.Parameter for parameter in model.parameters())


@case
def collectives_reduce_move_and_agree(job: Job):
    rank, size = maypole.rank(), maypole.size()
    assert maypole.all_reduce(float(rank)) == sum(range(size)) / size
    assert maypole.all_reduce(rank, op="sum") == sum(range(size))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        tensor = torch.full((5, 3), float(rank + 1), dtype=dtype)
        assert maypole.all_reduce(tensor, "sum") is tensor and tensor[0, 0].item() == size * (size + 1) / 2
        assert maypole.all_reduce(tensor.clone())[4, 2] == tensor[0, 0]
    large = torch.tensor([2**60 + rank, -(2**55) - rank, 7])
    assert maypole.all_reduce(large, "sum").tolist() == [
        size * 2**60 + sum(range(size)), -size * 2**55 - sum(range(size)), 7 * size
    ]  # fmt: skip
    strided = torch.zeros(4, 6)[:, ::2]
    strided.fill_(rank)
    maypole.all_reduce(strided, "sum")
    assert strided.eq(sum(range(size))).all()
    for root in range(size):
        sent = torch.arange(7) + 100 * rank
        assert maypole.broadcast(sent, root) is sent and sent[0] == 100 * root
        assert maypole.broadcast_object({"from": rank}, root) == {"from": root}
    gathered = maypole.all_gather(torch.tensor([rank, rank + 1]))
    assert gathered.tolist() == [[r, r + 1] for r in range(size)]
    assert maypole.all_gather(torch.tensor(True)).all()
    complex_sum = maypole.all_reduce(torch.tensor([1j * rank]), "sum")
    assert complex_sum.imag.item() == sum(range(size))
    maypole.barrier()
    maypole.barrier(timeout=60)


@case
def a_backward_through_a_forward_from_before_the_step_is_torchs_error(job: Job):
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    batch, other = batches(2)
    for _ in range(2):
        old = loss_of(model, share, other)
        optimizer.zero_grad()
        loss_of(model, share, batch).backward()
        optimizer.step()
        with expect_error("modified by an inplace operation", kind=RuntimeError):
            old.backward()
        optimizer.zero_grad()
        loss_of(model, share, batch).backward()
        optimizer.step()

# SPDX-License-Identifier: Apache-2.0
"""What cannot work says so, by name, and with the remedy."""

import copy

import maypole.torch as maypole
import torch
from torch import nn

from cases import Job, adamw, batches, case, expect_error, loss_of, mlp, sgd, share, simple_loop


@case
def wrong_settings_name_both_sides(job: Job):
    model = mlp()
    with expect_error("sharded", "wfbp"):
        maypole.DistributedOptimizer(sgd(model), model, schedule="wfbp", update="sharded")
    with expect_error("NAdam", "update='replicated'"):
        job_of = {"schedule": "weave", "update": "sharded"}
        maypole.DistributedOptimizer(torch.optim.NAdam(model.parameters()), model, **job_of)
    with expect_error("amsgrad", "update='replicated'"):
        optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
        maypole.DistributedOptimizer(optimizer, model, schedule="weave", update="sharded")
    with expect_error("quick", "weave"):
        maypole.DistributedOptimizer(sgd(model), model, schedule="quick")
    with expect_error("compression", "bf16"):
        job.distribute(sgd(model), model, compression="int8")
    with expect_error("group_size"):
        job.distribute(sgd(model), model, group_size=-1)
    with expect_error("model"):
        maypole.DistributedOptimizer(sgd(model), model.parameters())


@case
def models_that_cannot_be_trained_rightly_are_refused(job: Job):
    model = mlp()
    model[4].weight.data = model[2].weight.data[:3]
    with expect_error("2.weight", "4.weight", "overlap"):
        job.distribute(sgd(model), model)
    inner = torch.jit.script(nn.Linear(8, 8))
    with expect_error("TorchScript", "0"):
        scripted = nn.Sequential(inner)
        job.distribute(sgd(scripted), scripted)
    lazy = nn.Sequential(nn.LazyLinear(3))
    with expect_error("0.weight", "run the model once"):
        job.distribute(sgd(lazy), lazy)
    model = nn.Linear(2, 2, dtype=torch.complex64)
    with expect_error("complex64", "weight"):
        job.distribute(sgd(model), model)


@case
def sparse_gradients_name_the_parameter(job: Job):
    model = nn.Embedding(10, 4, sparse=True)
    _optimizer = job.distribute(torch.optim.SGD(model.parameters(), lr=0.1), model)
    with expect_error("'weight'", "sparse=False"):
        model(torch.arange(3)).sum().backward()


@case
def one_parameter_has_one_distributed_optimizer(job: Job):
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    with expect_error("0.weight", "another DistributedOptimizer"):
        job.distribute(adamw(model), model)
    with expect_error("add_param_group"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with expect_error("state_dict"):
        copy.deepcopy(optimizer)


@case
def a_converted_parameter_is_named(job: Job):
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    simple_loop(model, optimizer, share, steps=2)
    optimizer.zero_grad()
    model[2].float()
    with expect_error("2.weight", "float32", "before"):
        optimizer.step()
    model[2].double()
    optimizer.zero_grad()
    optimizer.step()


@case
def a_gradient_on_its_way_cannot_be_read_inside_backward(job: Job):
    if job.schedule == "sync":
        return  # nothing moves before backward has ended
    model = mlp()
    optimizer = job.distribute(sgd(model), model)
    simple_loop(model, optimizer, share, steps=2)
    model[4].weight.register_post_accumulate_grad_hook(lambda p: p.grad.norm())
    optimizer.zero_grad()
    with expect_error("4.weight", "backward() has ended"):
        loss_of(model, share, batches(1)[0]).backward()


@case
def wrong_collectives_say_what_to_do(job: Job):
    with expect_error("average", "sum"):
        maypole.all_reduce(1.0, op="max")
    with expect_error("float"):
        maypole.all_reduce(torch.tensor([1]))
    with expect_error("float8_e4m3fn", "float32"):
        maypole.all_reduce(torch.ones(1).to(torch.float8_e4m3fn), op="sum")
    with expect_error("root 7"):
        maypole.broadcast(torch.zeros(1), root=7)

# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a gradient, in words."""

from maypole.errors import MaypoleError, UsageError


def sparse(name):
    return UsageError(f"parameter '{name}' has a sparse gradient, which maypole does not reduce; build its Embedding with sparse=False")


def fired_again(name):
    return MaypoleError(
        f"parameter '{name}' got another gradient after its average was on the way (it was used more often in this "
        "backward than in the first one); use schedule='sync', or checkpoint(..., use_reentrant=False)"
    )


def never_gathered(name):
    return UsageError(
        f"the gradient of '{name}' was never gathered on this rank: with update='sharded' call synchronize() before step() "
        "to read it after, and zero_grad() between steps"
    )


def unequal_shares():
    return UsageError(
        "gradients are added to earlier averages, and ranks have different numbers of samples: call zero_grad() after each step, and "
        "put all but the last backward() of a step into no_sync()"
    )

# SPDX-License-Identifier: Apache-2.0
import torch.utils.data

from maypole.torch import runtime


class DistributedSampler(torch.utils.data.DistributedSampler):
    """torch's DistributedSampler with this job's rank and size. Call set_epoch(epoch) before each epoch for a new shuffle."""

    def __init__(self, dataset, shuffle=True, seed=0, drop_last=False, num_replicas=None, rank=None):
        super().__init__(
            dataset,
            num_replicas=runtime.size() if num_replicas is None else num_replicas,
            rank=runtime.rank() if rank is None else rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
        )

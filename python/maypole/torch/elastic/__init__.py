# SPDX-License-Identifier: Apache-2.0
"""Training whose workers come and go between two steps (docs/elastic.md).

loop = maypole.elastic.Loop(model, optimizer, dataset, batch_size=64, epochs=3, scheduler=scheduler)
for batch in loop:
    with batch as (inputs, targets):
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()
"""

from maypole.torch.elastic.loop import Loop

__all__ = ["Loop"]

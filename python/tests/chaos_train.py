# SPDX-License-Identifier: Apache-2.0
"""A training script to which faults happen from outside (chaos.py). Arguments: FOLDER, and a JSON object of settings.

Worker N leaves in FOLDER ledger-N.jsonl and digests-N.jsonl as elastic_train.py does, pid-N, ready-N when it comes to its loop, and
weights.pt at the end. It begins no step beyond the number in the file `allowed`. When the file cut-N appears it cuts its connections to
its peers; where dies-N is there when its state is wanted, it dies while it sends it.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import elastic_train
import maypole.torch as maypole
import torch
from maypole.torch import elastic_seat
from maypole.torch.elastic import transfer

DEFAULTS = {"width": 16, "samples": 4000, "batch": 20, "epochs": 3, "optimizer": "adamw", "schedule": "weave", "update": "replicated"}
LIMIT_S = 300


def allowed(folder):
    try:
        return int((folder / "allowed").read_text())
    except (OSError, ValueError):
        return 0


def cut_when_told(file):
    """Shuts every connected stream socket of this process down: those to its peers. Its control socket is a packet socket."""
    while True:
        if file.exists():
            file.unlink()
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                        continue
                    each = socket.socket(fileno=os.dup(int(name)))
                    if each.type == socket.SOCK_STREAM and not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        each.shutdown(socket.SHUT_RDWR)
                    each.close()
        time.sleep(0.01)


def die_in_transfer_when_told(file):
    give = transfer._core.give_state

    def dying(*arguments):
        source = give(*arguments)
        if file.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return source

    transfer._core.give_state = dying


def main():
    folder, settings = Path(sys.argv[1]), {**DEFAULTS, **json.loads(sys.argv[2])}
    number = int(os.environ["RANK"])
    (folder / f"pid-{number}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    maypole.init()
    threading.Thread(target=cut_when_told, args=(folder / f"cut-{number}",), daemon=True).start()
    die_in_transfer_when_told(folder / f"dies-{number}")
    model = elastic_train.make_model({**elastic_train.DEFAULTS, **settings})
    optimizer = maypole.DistributedOptimizer(
        elastic_train.make_optimizer(settings, model), model, schedule=settings["schedule"], update=settings["update"]
    )
    scheduler = elastic_train.make_scheduler(optimizer)
    loop = maypole.elastic.Loop(
        model, optimizer, elastic_train.Squares(settings["samples"]), settings["batch"], epochs=settings["epochs"], scheduler=scheduler,
        seed=3, ledger=str(folder / f"ledger-{number}.jsonl"), copy_budget=1.0,
    )  # fmt: skip
    (folder / f"ready-{number}").touch()
    for batch in loop:
        with batch as (inputs, targets, _):
            with open(folder / f"digests-{number}.jsonl", "a", encoding="utf-8") as file:
                line = {
                    "at": time.time(),
                    "step": loop.step,
                    "workers": maypole.size(),
                    "epoch": elastic_seat.seat().epoch,
                    "digest": elastic_train.digest(model, optimizer, scheduler),
                }
                file.write(json.dumps(line) + "\n")
            deadline = time.monotonic() + LIMIT_S  # whoever allows steps may be gone
            while loop.step > allowed(folder):
                assert time.monotonic() < deadline, f"step {loop.step} was never allowed"
                time.sleep(0.01)
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
    if maypole.rank() == 0:
        torch.save(model.state_dict(), folder / "weights.pt")


if __name__ == "__main__":
    main()

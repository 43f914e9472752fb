# SPDX-License-Identifier: Apache-2.0
"""One rank of a test job: runs cases in order, writes what happened to FOLDER/rank-R.json. Arguments: FOLDER SCHEDULE UPDATE [CASE...]"""

import faulthandler
import json
import sys
import time
import traceback

import maypole.torch as maypole
import torch
from cases import CASES, Job, loops, modules, optimizers, states, touching, tuning, wrongs  # noqa: F401  (they register their cases)
from jobs import STACKS_S
from maypole.torch import runtime


def main():
    folder, schedule, update, *chosen = sys.argv[1:]
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(STACKS_S)  # a job that hangs says where, before its test ends it
    maypole.init()
    job = Job(schedule, update, runtime.current().backend)
    results = {}
    for function in CASES:
        name = function.__name__
        if chosen and name not in chosen:
            continue
        begin = time.perf_counter()
        try:
            function(job)
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()
        print(f"{name}: {time.perf_counter() - begin:.2f} s", flush=True)
        with open(f"{folder}/rank-{maypole.rank()}.json", "w", encoding="utf-8") as file:
            json.dump(results, file)
        if results[name] != "ok":
            print(results[name], flush=True)
            sys.exit(1)


if __name__ == "__main__":
    main()

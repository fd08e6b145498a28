"""What a product of torch's tensors costs the host beside its launch: ``python -m benchmarks.torch_operator``.

Needs torch, of which the CPU's build will do: the tensors are torch's own, and what each call finds among the kept
launches is a stand-in that launches nothing. Printed are microseconds a call: of `tilekit.matmul`, of torch's operator
as users call it and through torch's dispatcher, as calls go that have a gradient to record, and of torch's own product.
``--against FOLDER`` times another checkout beside it, in turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS, ROUNDS, TURNS = 500, 40, 5


def microseconds(call: Callable[[], Any]) -> float:
    """Processor time of the quickest of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        times.append((time.process_time() - start) / CALLS)
    return min(times) * 1e6


def keep_stand_ins() -> None:
    """Let first calls keep a launch that does nothing, as those on a GPU keep theirs."""
    import torch

    from tilekit.calls import matmul as calls
    from tilekit.kernels.launch_cache import CachedLaunch

    nothing: Any = CachedLaunch(lambda _stream: None, lambda: 0)  # type: ignore[arg-type]

    def first_call(arguments: Any, _stream: Any, cache: Any, key: Any, new: Any = None) -> Any:
        if arguments.result is not None and new is None:
            cache.keep_launch(key, nothing)
            return arguments.result
        if new is None:  # memory of the host is never twice at one address: what stands for it costs as much to read
            new = dataclasses.replace(arguments.new_output(), address_of=torch.Tensor.element_size)
        result = new.make()
        cache.keep_output(key, new)
        cache.keep_launch((new, new.address_of(result)), nothing)
        return result

    vars(calls)["first_call"] = first_call


def measured() -> dict[str, float]:
    """Every figure of this checkout."""
    import torch

    import tilekit
    from tilekit import torch as operators

    keep_stand_ins()
    a, b, out = (torch.ones(64, 64, dtype=torch.bfloat16) for _ in range(3))
    bias = torch.ones(64, dtype=torch.bfloat16)
    calls: dict[str, Callable[[], Any]] = {
        "tilekit.matmul(a, b)": lambda: tilekit.matmul(a, b),
        "tilekit.matmul(a, b, out=c)": lambda: tilekit.matmul(a, b, out=out),
        "tilekit.matmul(a, b, bias=v, activation='relu')": lambda: tilekit.matmul(a, b, bias=bias, activation="relu"),
        "tilekit.torch.matmul(a, b)": lambda: operators.matmul(a, b),
        "tilekit.torch.matmul(a, b, out=c)": lambda: operators.matmul(a, b, out=out),
        "tilekit.torch.matmul(a, b, bias=v, activation='relu')": lambda: operators.matmul(
            a, b, bias=bias, activation="relu"
        ),
        "tilekit.torch.linear(x, w)": lambda: operators.linear(a, b),
        "torch.ops.tilekit.matmul(a, b)": lambda: torch.ops.tilekit.matmul(a, b),
        "torch.empty_strided": lambda: torch.empty_strided((64, 64), (64, 1), dtype=torch.bfloat16, device=a.device),
    }
    return {name: microseconds(call) for name, call in calls.items()}


def of_checkout(folder: Path) -> dict[str, float]:
    """Figures of a checkout, in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout of tilekit")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(measured()))
        return
    checkouts = [folder for folder in (arguments.against, Path(__file__).resolve().parents[1]) if folder]
    turns: list[list[dict[str, float]]] = [[] for _ in checkouts]
    for _ in range(TURNS if len(checkouts) > 1 else 1):
        for folder, found in zip(checkouts, turns, strict=True):
            found.append(of_checkout(folder.resolve()))
    for name in turns[-1][0]:
        values = [statistics.median(one[name] for one in found) for found in turns]
        print(f"{name:<56}" + "".join(f"{value:8.2f} us" for value in values))


if __name__ == "__main__":
    main()

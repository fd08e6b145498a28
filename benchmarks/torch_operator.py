"""What torch's operator costs the host beside the product it calls: ``python -m benchmarks.torch_operator``.

Needs torch, of which the CPU's build will do: the product is a stand-in that returns a tensor. Printed are microseconds
a call as users make it, and through torch's dispatcher, as calls go that have a gradient to record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

CALLS, ROUNDS = 5_000, 7


def microseconds(call: Callable[[], Any]) -> float:
    """The quickest of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS)
    return min(times) * 1e6


def main() -> None:
    """Print the figures."""
    import torch

    import tilekit
    from tilekit import torch as operators

    a, b, out = (torch.ones(4, 4, dtype=torch.bfloat16) for _ in range(3))
    stand_in: Any = lambda *_, **__: out  # noqa: E731
    vars(tilekit)["matmul"] = stand_in
    figures = {"as called": microseconds(lambda: operators.matmul(a, b))}
    vars(operators)["_alone"] = lambda *_: False
    figures["through the dispatcher"] = microseconds(lambda: operators.matmul(a, b))
    for name, us in figures.items():
        print(f"{name:<24}{us:8.2f} us")


if __name__ == "__main__":
    main()

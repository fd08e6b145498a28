"""Generated calls on a GPU, counted: ``python -m tests.attention.gpu_check COUNT SEED [whole|caches|packed]``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

import tilekit
from tests.attention.caches import generated_caches
from tests.attention.cases import Called, generated, largest_errors
from tests.attention.packed import generated_packed

KINDS = {"whole": (generated, 700), "caches": (generated_caches, 900), "packed": (generated_packed, 900)}
"""What draws cases, and the longest sequence."""


def checked(case: Called, seed: int) -> tuple[float, float]:
    """The call's largest errors of output (in units of rounding) and of logarithms."""
    given, alone = case.call(seed)
    kind = torch.bfloat16 if case.dtype == "bf16" else torch.float16

    def moved(array: Any) -> Any:
        if isinstance(array, tuple):
            return tuple(map(moved, array))
        if array.dtype == np.int32:
            return torch.from_numpy(array).cuda()
        return torch.from_numpy(array.astype(np.float32)).cuda().to(kind)

    out, lse = (torch.full(array.shape, float("nan"), device="cuda") for array in case.outputs())
    out = out.to(kind)
    tilekit.attention(**{name: moved(array) for name, array in given.items()}, out=out, lse=lse, **case.options)
    return largest_errors(case, alone, out.float().cpu().numpy(), lse.cpu().numpy())


def most_wrong(case: Called) -> float:
    """How far the logarithms of a case may be off: tanh of soft caps has 11 bits."""
    return 3e-3 if "softcap" not in case.options else case.options["softcap"] * 2e-3


def main() -> None:
    """Check so many cases and say which are wrong."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw, longest = KINDS[sys.argv[3] if len(sys.argv) > 3 else "whole"]
    errors, wrong = [], 0
    for number, case in enumerate(draw(count, seed=seed, longest=longest)):
        try:
            error, logs = checked(case, number)
        except Exception as problem:
            print("FAILED", case, type(problem).__name__, str(problem)[:300])
            wrong += 1
            continue
        errors.append(error)
        if error > 4 or logs > most_wrong(case):
            wrong += 1
            print("WRONG", case, error, logs)
    print(f"{count} cases, {wrong} wrong; largest error {max(errors):.2f} units, median {np.median(errors):.2f}")


if __name__ == "__main__":
    main()

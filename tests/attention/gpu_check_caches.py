"""Generated calls on caches on a GPU, counted: ``python -m tests.attention.gpu_check_caches COUNT SEED``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

import tilekit
from tests.attention.caches import CacheCase, generated_caches


def checked(case: CacheCase, seed: int) -> tuple[float, float]:
    """The call's largest errors of output (in units of rounding) and of logarithms."""
    given, alone = case.arrays(seed)
    kind = torch.bfloat16 if case.dtype == "bf16" else torch.float16

    def moved(array: Any) -> Any:
        if array.dtype == np.int32:
            return torch.from_numpy(array).cuda()
        return torch.from_numpy(array.astype(np.float32)).cuda().to(kind)

    out, lse = (torch.full(array.shape, float("nan"), device="cuda") for array in case.outputs())
    out = out.to(kind)
    tilekit.attention(**{name: moved(array) for name, array in given.items()}, out=out, lse=lse, **case.options)
    return case.errors(given["q"], alone, out.float().cpu().numpy(), lse.cpu().numpy())


def main() -> None:
    """Check so many cases and say which are wrong."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    errors, wrong = [], 0
    for number, case in enumerate(generated_caches(count, seed=seed, longest=900)):
        try:
            error, logs = checked(case, number)
        except Exception as problem:
            print("FAILED", case, type(problem).__name__, str(problem)[:300])
            wrong += 1
            continue
        errors.append(error)
        if error > 4 or logs > 3e-3:
            wrong += 1
            print("WRONG", case, error, logs)
    print(f"{count} cases, {wrong} wrong; largest error {max(errors):.2f} units, median {np.median(errors):.2f}")


if __name__ == "__main__":
    main()

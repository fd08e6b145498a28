"""Generated calls on a GPU, counted: ``python -m tests.attention.gpu_check COUNT SEED``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

import tilekit
from tests.attention.cases import Case, expected, generated, worst


def checked(case: Case, seed: int) -> tuple[float, float]:
    """The call's largest errors of output (in units of rounding) and of logarithms."""
    arrays = case.arrays(seed)
    kind = torch.bfloat16 if case.dtype == "bf16" else torch.float16
    q, k, v = (torch.from_numpy(array.astype(np.float32)).cuda().to(kind) for array in arrays)
    out = torch.full((*q.shape[:3], v.shape[3]), float("nan"), dtype=kind, device="cuda")
    logs: Any = torch.full((case.batch, case.heads, case.queries), float("nan"), device="cuda")
    tilekit.attention(q, k, v, out=out, lse=logs, **case.options)
    reference, sums = expected(*arrays, **case.options)
    got = logs.cpu().numpy().astype(np.float64)
    finite = np.isfinite(sums)
    if (finite != np.isfinite(got)).any() or np.isnan(got).any():
        return np.inf, np.inf
    wrong = float(np.abs(got[finite] - sums[finite]).max()) if finite.any() else 0.0
    result = out.float().cpu().numpy()
    if np.isnan(result).any():
        return np.inf, wrong
    return worst(result, reference, arrays[2], case.dtype), wrong


def main() -> None:
    """Check so many cases and say which are wrong."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    errors, wrong = [], 0
    for number, case in enumerate(generated(count, seed=seed, longest=700)):
        try:
            error, logs = checked(case, number)
        except Exception as problem:
            print("FAILED", case, type(problem).__name__, str(problem)[:300])
            wrong += 1
            continue
        errors.append(error)
        limit = 3e-3 if "softcap" not in case.options else case.options["softcap"] * 2e-3
        if error > 4 or logs > limit:
            wrong += 1
            print("WRONG", case, error, logs)
    print(f"{count} cases, {wrong} wrong; largest error {max(errors):.2f} units, median {np.median(errors):.2f}")


if __name__ == "__main__":
    main()

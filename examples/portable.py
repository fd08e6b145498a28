"""One warp-specialised matmul for every chip, and three arguments that swap its components.

D = relu(A B^T + bias) in bf16 on NVIDIA's chips from Ampere to Blackwell and on AMD's CDNA 3 and 4: the same role
loops, from the same file. Loader, synchronisation and matrix instruction are those that the chip's capabilities allow,
and any of them may be asked for. No GPU is needed: arrays in host memory are computed on the emulator, by the text that
the chip's assembler takes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilekit.compose as tk

TARGETS = ("sm_80", "sm_90a", "sm_100a", "gfx942", "gfx950")


def main() -> None:
    """Compute one product on every chip: with what it has fastest, and with one component swapped at a time."""
    random = np.random.default_rng(0)
    # Small integers: every product and every sum is exact, so the result must match to the bit.
    a, b = (random.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((150, 136), (100, 136)))
    bias = random.integers(-9, 10, 100).astype(np.float32)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32).T + bias, 0).astype(ml_dtypes.bfloat16)
    functions = tk.ElementwiseSpec(bias=tk.F32, activation="relu")
    for target in TARGETS:
        every = tk.portable_choices(target)
        fastest = every[0]
        swapped = {
            (getattr(choice, part), part)
            for choice in every
            for part in ("load", "sync")
            if choice.op is fastest.op and getattr(choice, part) is not getattr(fastest, part)
        }
        given = [{}, *({part: kind} for kind, part in sorted(swapped, key=lambda one: one[0].__name__))]
        for components in given:
            if components.get("sync") and fastest.load is tk.TmaLoader:
                components["load"] = tk.RegisterLoader  # the copy engine counts bytes, on an mbarrier alone
            kernel = tk.portable_matmul(target, functions=functions, **components)
            assert (kernel(a, b, bias) == expected).all()
            words = " ".join(kind.__name__ for kind in components.values()) or f"{fastest}, the fastest"
            print(f"{target}: {words}, exact")
        print(f"{target}: {len(every)} choices")


if __name__ == "__main__":
    main()

"""The cases of scaled 8-bit products: scales of rows and columns on both chips, and promoted accumulation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

CONFIGS: dict[str, tuple[KernelConfig | None, ...]] = {
    "sm_90a": (
        MatmulConfig((64, 64), (1, 1), consumers=1),
        MatmulConfig((128, 48), (2, 1), output_buffers=1),
        MatmulConfig((64, 16), (1, 1), consumers=1, swap_ab=True),
        MatmulConfig((128, 24), (1, 2), swap_ab=True, split_k=2),
        MatmulConfig((256, 64), (1, 1), in_flight=0),
        None,
    ),
    "sm_100a": (
        BlackwellConfig((128, 64), (1, 1), cta_group=1),
        BlackwellConfig((64, 32), (2, 1), cta_group=2),
        BlackwellConfig((64, 16), (1, 1), cta_group=1, swap_ab=True),
        BlackwellConfig((128, 32), (2, 1), swap_ab=True, split_k=2, clc_stages=0),
    ),
}
"""Upright and transposed accumulators, in every layout; None: the picker's, which for few rows is a gemv."""

TYPES = (("e4m3", "e4m3"), ("e5m2", "e4m3"), ("bf16", "bf16"), ("e4m3", "e5m2"))
OUTS = ("bf16", "f32", "f16", "e4m3")
ROWS = (1, 3, 8, 9, 17, 64, 65, 130)
EXTENTS = (8, 63, 65, 72, 129, 200)


@cache
def scaled_cases(target: str | None = None) -> tuple[Case, ...]:
    """Six problems of each config of a chip, or of both."""
    if target is None:
        return tuple(case for chip in CONFIGS for case in scaled_cases(chip))
    return tuple(
        _case(target, config, turn, 100 * place + turn)
        for place, config in enumerate(CONFIGS[target])
        for turn in range(6)
    )


def _case(target: str, config: KernelConfig | None, turn: int, seed: int) -> Case:
    rng = Random(f"scaled {target} {seed}")
    a, b = TYPES[turn % len(TYPES)]
    batched = turn % 3 == 2
    kernel = Kernel(
        a=a,
        b=b,
        out=OUTS[(turn + seed // 100) % len(OUTS)],
        batched=batched,
        scale=(None, "number", None)[turn % 3],
        scales=("ab", "ab", "a", "b")[turn % 4],
        bias=(None, "f32", "bf16")[turn % 3],
        activation=(None, None, "relu", "gelu")[turn // 2 % 4],
        direct=turn in (3, 5),
        config=config,
        target=target,
    )
    assert legal(kernel), kernel
    m, n, k = rng.choice(ROWS), rng.choice(EXTENTS), rng.choice((0, 32, 100, 260)) if turn == 4 else 160
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None))) if batched else (None, None)
    case = Case(kernel, m, n, k, batches, data=DATA[seed % 4], seed=seed)
    return replace(case, pads=(1, 0, 2)) if kernel.direct else case


PROMOTED = (
    MatmulConfig((64, 64), (1, 1), consumers=1, in_flight=0),
    MatmulConfig((128, 128), (2, 1), in_flight=0, stages=3),
    MatmulConfig((256, 64), (1, 1), in_flight=0),
    MatmulConfig((64, 16), (1, 2), consumers=1, in_flight=0, swap_ab=True),
    MatmulConfig((128, 24), (1, 1), in_flight=0, swap_ab=True, split_k=2),
    None,
)


@cache
def promoted_cases() -> tuple[Case, ...]:
    """Three problems of each config: exact, position-coded, and normal numbers."""
    cases = []
    for place, config in enumerate(PROMOTED):
        for turn, data in enumerate(("integers", "coded_a", "normal")):
            kernel = Kernel(
                a=("e4m3", "e5m2")[turn % 2],
                b="e4m3",
                out=("f32", "bf16")[turn % 2],
                scales="ab" if turn == 2 else "",
                bias="f32" if place % 2 and turn < 2 else None,
                direct=turn == 2,
                accumulation="promoted",
                config=config,
            )
            assert legal(kernel), kernel
            k = (0, 300, 512)[(place + turn) % 3]
            cases.append(Case(kernel, (70, 9, 130)[turn], (136, 72, 61)[turn], k, data=data, seed=place))  # type: ignore[arg-type]
    return tuple(cases)


@cache
def promoted_cases_on_gpu() -> tuple[Case, ...]:
    """The same, and long sums."""
    long = [replace(case, m=129, n=264, k=k) for case in promoted_cases()[2::3] for k in (4096, 16384)]
    return (*promoted_cases(), *long)

"""The cases of tiles with fewer rows than an instruction."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS
from tests.matmul.matmul_swapped import ALL_OUTS, ALL_TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

ROWS = (8, 16, 24, 32, 48, 56)
COLUMNS = (16, 24, 48, 56, 64, 96, 128, 200, 256)
M = (1, 5, 8, 9, 16, 17, 31, 32, 40, 56, 57, 100)
N = (1, 8, 65, 130, 200, 300)
DEPTHS = (1, 64, 129, 300, 520, 777)

KERNELS = 24


@cache
def short_cases() -> tuple[Case, ...]:
    """Those that run on the emulator."""
    return (*(_case(_kernel(index), index) for index in range(KERNELS)), *_corners())


@cache
def short_cases_on_gpu() -> tuple[Case, ...]:
    """Three times as many, and large ones."""
    more = [_case(_kernel(index), index) for index in range(3 * KERNELS)]
    large = [
        replace(case, n=4096 + 16 * index, k=(4000, 4096, 8192, 7168)[index % 4])
        for index, case in enumerate(more[::5])
        if case.batches == (None, None)
    ]
    return (*more, *_corners(), *large)


def _kernel(index: int) -> Kernel:
    """Types and rows go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"short kernel {index}")
    a, b = ALL_TYPES[index % len(ALL_TYPES)]
    for _ in range(2000):
        in_flight = rng.choice((0, 1))
        kernel = Kernel(
            a=a,
            b=b,
            out=rng.choice(ALL_OUTS),
            majors="kk" if a in ("f32", "e4m3", "e5m2") else rng.choice(MAJORS),
            batched=rng.random() < 0.25,
            scales=rng.choice(("", "", "ab")),
            bias=rng.choice((None, "bf16", "f32")),
            activation=rng.choice((None, None, "relu", "gelu")),
            config=MatmulConfig(
                tile=(ROWS[index % len(ROWS)], rng.choice(COLUMNS)),
                cluster=rng.choice(((1, 1), (1, 1), (2, 1), (1, 2))),
                consumers=1,
                k_group=rng.choice((1, 2, 4)),
                stages=rng.choice((None, 1 + in_flight, 3)),
                output_buffers=rng.choice((1, 2)),
                in_flight=in_flight,
                prefetch=(0, 4)[index % 2],
                raster_order="n" if index % 4 == 3 else "m",
            ),
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of short kernel {index}")
    m, k = rng.choice(M), rng.choice(DEPTHS)
    unit = ALIGNMENT // as_dtype(kernel.out).bytes
    n = -(-rng.choice(N) // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None), (None, 3))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, data=DATA[index % 4], seed=index)  # type: ignore[arg-type]


def _corners() -> list[Case]:
    """Nothing along K, one element, more tiles than are resident, and consumers that take turns."""
    kernel = Kernel(config=MatmulConfig(tile=(16, 48), cluster=(1, 1), consumers=1))
    turns = Kernel(config=MatmulConfig(tile=(16, 48), cluster=(1, 1), schedule="pingpong"))
    return [
        Case(replace(kernel, bias="f32"), 20, 72, 0),
        Case(kernel, 8, 8, 8),
        Case(kernel, 200, 1000, 130, data="coded_b", seed=1),
        Case(turns, 100, 600, 300, data="coded_b", seed=2),
    ]

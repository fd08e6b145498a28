"""The cases of sums that a cluster shares; emulated on a chip of eight multiprocessors: clusters have many tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS
from tests.matmul.matmul_swapped import ALL_OUTS, ALL_TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

TILES = (
    ((64, 32), 1), ((64, 64), 1), ((128, 64), 2), ((64, 16), 1), ((192, 32), 3), ((256, 16), 2), ((128, 128), 1),
    ((64, 48), 1), ((128, 32), 2), ((64, 128), 1),
)  # fmt: skip
"""Tiles and consumer warpgroups; parts of 8 to 64 columns."""

ROWS = (1, 33, 64, 65, 129, 200)
COLUMNS = (1, 8, 65, 130, 200)
DEPTHS = (1, 64, 129, 300, 520, 777)

KERNELS = 20


@cache
def layered_cases() -> tuple[Case, ...]:
    """Those that run on the emulator."""
    return (*(_case(_kernel(index), index) for index in range(KERNELS)), *_corners())


@cache
def layered_cases_on_gpu() -> tuple[Case, ...]:
    """As many again, and long sums."""
    more = [_case(_kernel(index), index) for index in range(2 * KERNELS)]
    long = [replace(case, k=(4096, 5000, 7168, 16384)[index % 4]) for index, case in enumerate(more[::3])]
    return (*more, *_corners(), *long)


def _kernel(index: int) -> Kernel:
    """Types, tiles and the number of CTAs go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"kernel {index} in layers")
    a, b = ALL_TYPES[index % len(ALL_TYPES)]
    for _ in range(2000):
        tile, consumers = TILES[index % len(TILES)]
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
            direct=rng.random() < 0.25,
            config=MatmulConfig(
                tile=tile,
                cluster=(1, 1),
                cluster_k=rng.choice((2, 2, 4, 8)),
                consumers=consumers,
                swap_ab=rng.random() < 0.5,
                k_group=rng.choice((1, 1, 2)),
                stages=rng.choice((None, 1 + in_flight, 3)),
                output_buffers=rng.choice((1, 2)),
                in_flight=in_flight,
            ),
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of kernel {index} in layers")
    m, n, k = rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(DEPTHS)
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None), (None, 3))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, data=DATA[index % 4], seed=index)  # type: ignore[arg-type]


def _corners() -> list[Case]:
    """Nothing along K; fewer k-blocks than CTAs, as many, and one more, so that some have nothing to add."""
    kernel = Kernel(config=MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, cluster_k=4))
    cases = [Case(replace(kernel, bias="f32"), 130, 72, 0), Case(kernel, 8, 8, 8)]
    return cases + [Case(kernel, 70, 136, 64 * blocks, data="coded_b", seed=blocks) for blocks in (1, 2, 3, 4, 5)]

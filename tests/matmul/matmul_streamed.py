"""The cases of streamed tiles; emulated on a chip of few multiprocessors, so that their ranges end anywhere."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS
from tests.matmul.matmul_swapped import ALL_OUTS, ALL_TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

MULTIPROCESSORS = 7
"""Of the emulated chip: three clusters of two, and one left over."""

TILES = (
    ((64, 32), 1), ((64, 64), 1), ((128, 64), 2), ((64, 16), 1), ((192, 32), 3), ((256, 16), 2), ((128, 128), 2),
    ((64, 48), 1), ((128, 32), 2), ((64, 136), 1),
)  # fmt: skip
"""Tiles and consumer warpgroups."""

CLUSTERS = ((1, 1), (1, 1), (2, 1), (1, 2))
ROWS = (1, 33, 65, 129, 200)
COLUMNS = (1, 65, 130, 200)
DEPTHS = (1, 64, 129, 300, 520, 777)

KERNELS = 14


@cache
def streamed_cases() -> tuple[Case, ...]:
    """Those that run on the emulator."""
    return (*(_case(_kernel(index), index) for index in range(KERNELS)), *_corners())


@cache
def streamed_cases_on_gpu() -> tuple[Case, ...]:
    """As many again, and larger ones: of a small problem, a GPU has a tile for no more than a few multiprocessors."""
    more = [_case(_kernel(index), index) for index in range(3 * KERNELS)]
    large = [
        replace(case, m=2048 + 8 * index, n=1024 + 16 * index, k=(64, 500, 1000, 2048, 7168)[index % 5])
        for index, case in enumerate(more)
        if case.batches == (None, None)
    ]
    return (*more, *_corners(), *large)


def _kernel(index: int) -> Kernel:
    """Types, tiles and ranges go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"kernel {index} streamed")
    a, b = ALL_TYPES[index % len(ALL_TYPES)]
    for _ in range(2000):
        tile, consumers = TILES[index % len(TILES)]
        in_flight = rng.choice((0, 1))
        in_turn = consumers == 2 and rng.random() < 0.5
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
                cluster=rng.choice(CLUSTERS),
                stream_k=(1, 2, 4, 8)[index % 4],
                consumers=consumers,
                schedule="pingpong" if in_turn else "cooperative",
                swap_ab=rng.random() < 0.5,
                k_group=rng.choice((1, 1, 2)),
                stages=rng.choice((None, 1 + in_flight, 3)),
                output_buffers=rng.choice((1, 2)),
                in_flight=in_flight,
                prefetch=rng.choice((0, 0, 2)),
                raster_order=rng.choice(("m", "n")),
                raster_group=rng.choice((None, 1, 2)),
            ),
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of kernel {index} streamed")
    m, n, k = rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(DEPTHS)
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None), (None, 3))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, data=DATA[index % 4], seed=index)  # type: ignore[arg-type]


def _corners() -> list[Case]:
    """Nothing along K; one tile, of one k-block and of many; tiles about as many as CTAs, and twice as many."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stream_k=8, stages=3)
    kernel = Kernel(config=config)
    cases = [Case(replace(kernel, bias="f32"), 130, 72, 0), Case(kernel, 8, 8, 8), Case(kernel, 33, 40, 777)]
    tiles = (
        MULTIPROCESSORS - 1,
        MULTIPROCESSORS,
        MULTIPROCESSORS + 1,
        2 * MULTIPROCESSORS - 1,
        2 * MULTIPROCESSORS + 1,
    )
    return cases + [Case(kernel, 64 * count, 40, 264, data="coded_b", seed=count) for count in tiles]

"""The cases of consumers that take turns; emulated on a chip of few multiprocessors, so that each has many tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS
from tests.matmul.matmul_swapped import ALL_OUTS, ALL_TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

MULTIPROCESSORS = 4
"""Of the emulated chip: two clusters of two."""

TILES = (
    ((64, 64), 2), ((64, 8), 2), ((64, 96), 2), ((128, 64), 2), ((64, 128), 3), ((64, 40), 2), ((128, 32), 3),
    ((192, 48), 2), ((64, 72), 2), ((320, 16), 2), ((64, 56), 3), ((256, 24), 2), ((128, 136), 2), ((64, 200), 2),
)  # fmt: skip
"""Tiles, and how many consumers take turns: one to five atoms a warpgroup, and columns in all steps of 8."""

CLUSTERS = ((1, 1), (1, 1), (2, 1), (1, 2))
ROWS = (1, 33, 64, 65, 129, 200, 257, 330)
COLUMNS = (1, 8, 63, 65, 130, 200, 264)
DEPTHS = (1, 63, 64, 65, 129, 200, 300, 520)

KERNELS = 28


@cache
def pingpong_cases() -> tuple[Case, ...]:
    """Those that run on the emulator."""
    return (*(_case(_kernel(index), index) for index in range(KERNELS)), *_corners())


@cache
def pingpong_cases_on_gpu() -> tuple[Case, ...]:
    """As many again, and larger ones: a GPU has so many multiprocessors that small problems are one tile for each."""
    more = [_case(_kernel(index), index) for index in range(2 * KERNELS)]
    large = [
        replace(case, m=2048 + 8 * index, n=4096 + 16 * index, k=(64, 500, 1000, 2048, 4000)[index % 5])
        for index, case in enumerate(more[::3])
        if case.batches == (None, None)
    ]
    return (*more, *_corners(), *large)


def _kernel(index: int) -> Kernel:
    """Tiles, types and outputs go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"kernel {index} in turn")
    a, b = ALL_TYPES[index % len(ALL_TYPES)]
    for _ in range(1000):
        tile, consumers = TILES[index % len(TILES)]
        in_flight = rng.choice((0, 1, 1))
        kernel = Kernel(
            a=a,
            b=b,
            out=ALL_OUTS[(index // 2) % len(ALL_OUTS)],
            majors="kk" if a in ("f32", "e4m3", "e5m2") else rng.choice(MAJORS),
            batched=rng.random() < 0.25,
            scale=rng.choice((None, None, "number")),
            bias=rng.choice((None, "bf16", "f32")),
            activation=rng.choice((None, None, "relu", "gelu")),
            direct=rng.random() < 0.2,
            config=MatmulConfig(
                tile=tile,
                cluster=rng.choice(CLUSTERS),
                consumers=consumers,
                schedule="pingpong",
                swap_ab=rng.random() < 0.3,
                k_group=rng.choice((1, 1, 1, 2)),
                stages=rng.choice((None, 1 + in_flight, 2, 3, 5)),
                output_buffers=rng.choice((1, 2, 3)),
                in_flight=in_flight,
                split_k=rng.choice((1, 1, 2, 3)),
                raster_group=rng.choice((None, 1, 2)),
            ),
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of kernel {index} in turn")
    m, n, k = rng.choice(ROWS), rng.choice(COLUMNS), rng.choice(DEPTHS)
    if kernel.config is not None and kernel.config.swap_ab:
        m, n = n, m
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None), (None, 3))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    leads = tuple(rng.choice((0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, leads, DATA[index % 4], index)  # type: ignore[arg-type]


def _corners() -> list[Case]:
    """Nothing along K, one tile, an odd number of them, and as many k-blocks as stages, one fewer and one more."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), schedule="pingpong", stages=3)
    kernel = Kernel(config=config)
    cases = [Case(replace(kernel, bias="f32"), 330, 136, 0), Case(kernel, 8, 8, 8), Case(kernel, 64, 64 * 9, 100)]
    cases += [Case(kernel, 330, 200, 64 * blocks, data="coded_b", seed=blocks) for blocks in (1, 2, 3, 4, 5, 6, 7)]
    single = replace(kernel, config=replace(config, stages=1, in_flight=0))
    return [*cases, *(Case(single, 330, 200, 64 * blocks - 7, data="coded_a") for blocks in (1, 2, 3))]

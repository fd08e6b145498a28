"""The cases of swapped operands, 8-bit outputs and f32 operands: drawn over the configs of both chips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS, OUTS, TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

HOPPER, BLACKWELL = "sm_90a", "sm_100a"

Draw = Callable[[Random, int], KernelConfig]

ALL_TYPES = (*TYPES, ("f32", "f32"))
ALL_OUTS = (*OUTS, "e4m3", "e5m2")

HOPPER_TILES = (
    ((64, 8), 1), ((128, 8), 2), ((64, 16), 1), ((128, 24), 2), ((128, 32), 1), ((192, 40), 3), ((256, 48), 2),
    ((128, 64), 2), ((64, 72), 1), ((256, 16), 1), ((384, 8), 3), ((128, 136), 2), ((64, 200), 1), ((256, 96), 2),
)  # fmt: skip
"""Tiles and consumer warpgroups: M of one to many instruction columns, in subtiles of 8 to 64 rows and remainders."""

BLACKWELL_TILES = (
    (1, (128, 16)), (1, (64, 8)), (2, (128, 32)), (2, (64, 32)), (1, (64, 24)), (1, (128, 80)), (2, (128, 64)),
    (2, (64, 96)), (1, (64, 136)), (2, (128, 160)), (1, (128, 48)), (2, (64, 208)),
)  # fmt: skip
"""CTAs of an instruction and tile: the four layouts of tensor memory in turn."""

CLUSTERS = {1: ((1, 1), (1, 1), (2, 1), (1, 2), (2, 2)), 2: ((2, 1), (2, 1), (4, 1), (2, 2))}

SMALL = (1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 72)
EXTENTS = (1, 8, 63, 64, 65, 127, 129, 200, 257)

KERNELS = 49
"""On the emulator, of each chip."""


@cache
def swapped_cases() -> tuple[Case, ...]:
    """Those that run on the emulator, for both chips."""
    hopper = [_case(_kernel(index, _hopper, HOPPER), index) for index in range(KERNELS)]
    blackwell = [_case(_kernel(index, _blackwell, BLACKWELL), index) for index in range(KERNELS)]
    return (*hopper, *blackwell, *_corners())


@cache
def swapped_cases_on_gpu() -> tuple[Case, ...]:
    """Hopper's, with as many again and larger ones."""
    more = [_case(_kernel(index, _hopper, HOPPER), index) for index in range(3 * KERNELS)]
    large = [
        replace(case, n=4096 + 8 * index, k=(4000, 4096, 8192, 7168)[index % 4])
        for index, case in enumerate(more[::7])
        if case.batches == (None, None)
    ]
    return (*more, *_corners()[: len(_corners()) // 2], *large)


def _kernel(index: int, draw: Draw, target: str) -> Kernel:
    """Types and outputs go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"swapped kernel {index} on {target}")
    a, b = ALL_TYPES[index % len(ALL_TYPES)]
    for _ in range(1000):
        k_major = a == "f32" or (a[0] == "e" and target == HOPPER)
        kernel = Kernel(
            a=a,
            b=b,
            out=ALL_OUTS[index % len(ALL_OUTS)],
            majors="kk" if k_major else rng.choice(MAJORS),
            batched=rng.random() < 0.25,
            scale=rng.choice((None, None, "number")),
            bias=rng.choice((None, *OUTS)),
            activation=rng.choice((None, None, "relu", "gelu", "silu")),
            direct=rng.random() < 0.25,
            config=draw(rng, index),
            target=target,
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _hopper(rng: Random, index: int) -> KernelConfig:
    tile, consumers = HOPPER_TILES[index % len(HOPPER_TILES)]
    in_flight = rng.choice((0, 1, 1))
    return MatmulConfig(
        tile=tile,
        cluster=rng.choice(CLUSTERS[1]),
        consumers=consumers,
        swap_ab=rng.random() < 0.85,
        k_group=rng.choice((1, 1, 2, 4)),
        stages=rng.choice((None, None, 1 + in_flight, 3)),
        output_buffers=rng.choice((1, 2, 2, 3)),
        in_flight=in_flight,
        split_k=rng.choice((1, 1, 2, 3)),
        prefetch=(0, 8, 0)[index % 3],
        raster_order="n" if index % 4 == 3 else "m",
        raster_group=rng.choice((None, None, 1, 2)),
        l2_stream=(None, "a", None, None, "b")[index % 5],
    )


def _blackwell(rng: Random, index: int) -> KernelConfig:
    group, tile = BLACKWELL_TILES[index % len(BLACKWELL_TILES)]
    return BlackwellConfig(
        tile=tile,
        cluster=rng.choice(CLUSTERS[group]),
        cta_group=group,
        swap_ab=rng.random() < 0.85,
        k_group=rng.choice((1, 1, 2, 4)),
        stages=rng.choice((None, None, 1, 3)),
        accumulator_stages=rng.choice((1, 2)),
        clc_stages=rng.choice((0, 2)),
        output_buffers=rng.choice((1, 2, 2, 3)),
        split_k=rng.choice((1, 1, 2, 3)),
        raster_order="n" if index % 4 == 3 else "m",
        raster_group=rng.choice((None, None, 1, 2)),
    )


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of swapped kernel {index} on {kernel.target}")
    m, n, k = rng.choice(SMALL), rng.choice(EXTENTS), rng.choice(EXTENTS)
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None), (None, 3))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    leads = tuple(rng.choice((0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, leads, DATA[index % 4], index)  # type: ignore[arg-type]


def _corners() -> list[Case]:
    """Nothing along K, one row and column, and more tiles than are resident; Hopper's first."""
    configs: tuple[tuple[KernelConfig, str], ...] = (
        (MatmulConfig(tile=(64, 8), cluster=(1, 1), consumers=1, swap_ab=True), HOPPER),
        (MatmulConfig(tile=(128, 64), cluster=(2, 1), swap_ab=True, split_k=2), HOPPER),
        (BlackwellConfig(tile=(128, 16), cluster=(1, 1), cta_group=1, swap_ab=True), BLACKWELL),
        (BlackwellConfig(tile=(64, 64), swap_ab=True, clc_stages=0), BLACKWELL),
    )
    cases = []
    for config, target in configs:
        kernel = Kernel(config=config, target=target, bias="f32")
        direct = replace(kernel, direct=True, out="f32")
        cases += [Case(kernel, 13, 136, 0), Case(kernel, 1, 8, 1), Case(direct, 3, 77, 130, pads=(1, 0, 2))]
        cases.append(Case(replace(kernel, bias=None), 8, 150 * 64 + 8, 70, data="coded_b"))
    return cases

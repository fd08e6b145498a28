"""The cases that run on an emulated Blackwell: drawn over its configs, and the corners of each layout."""

from __future__ import annotations

from functools import cache
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS, OUTS, TYPES
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

TARGET = "sm_100a"

TILES = (
    (2, (128, 64)), (1, (64, 64)), (2, (64, 64)), (1, (128, 64)), (2, (128, 32)), (1, (64, 48)), (2, (64, 96)),
    (1, (128, 48)), (2, (128, 96)), (1, (64, 16)), (2, (64, 32)), (1, (128, 16)), (2, (128, 208)), (1, (64, 208)),
)  # fmt: skip
"""CTAs of an instruction and tile: the four layouts of tensor memory in turn."""

ODD_WIDTHS = ((1, (64, 8)), (1, (64, 24)), (1, (64, 72)), (2, (128, 48)), (2, (64, 80)))
"""The last piece of a row is 8 columns wide, or of either half."""

CLUSTERS = {1: ((1, 1), (1, 1), (2, 1), (1, 2), (2, 2)), 2: ((2, 1), (2, 1), (4, 1), (2, 2), (4, 2))}

KERNELS = 42
EXTENTS = (1, 7, 8, 63, 64, 65, 127, 129, 191, 200)


@cache
def blackwell_cases() -> tuple[Case, ...]:
    """Every case."""
    drawn = [_case(_kernel(index), index) for index in range(KERNELS)]
    return (*drawn, *_odd_widths(), *_corners(), *_picked())


def _kernel(index: int) -> Kernel:
    """Types and tile go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"Blackwell kernel {index}")
    a, b = TYPES[index % len(TYPES)]
    group, tile = TILES[index % len(TILES)]
    for _ in range(1000):
        kernel = Kernel(
            a=a,
            b=b,
            out=rng.choice(OUTS),
            majors=rng.choice(MAJORS),
            batched=rng.random() < 0.25,
            scale=rng.choice((None, None, "number")),
            bias=rng.choice((None, None, *OUTS)),
            activation=rng.choice((None, None, "relu", "gelu", "silu")),
            direct=rng.random() < 0.25,
            config=BlackwellConfig(
                tile=tile,
                cluster=rng.choice(CLUSTERS[group]),
                cta_group=group,
                k_group=rng.choice((1, 1, 2, 4)),
                stages=rng.choice((None, None, 1, 2, 3)),
                accumulator_stages=rng.choice((1, 2, 2, 3)),
                clc_stages=rng.choice((0, 2, 2, 3)),
                output_buffers=rng.choice((1, 2, 2, 3)),
                raster_order="n" if index % 4 == 3 else "m",
                raster_group=rng.choice((None, None, 1, 2)),
            ),
            target=TARGET,
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config with tile {tile}")


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of Blackwell kernel {index}")
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    leads = tuple(rng.choice((0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, leads, DATA[index % 4], index)  # type: ignore[arg-type]


def _odd_widths() -> list[Case]:
    cases = []
    for index, (group, tile) in enumerate(ODD_WIDTHS):
        config = BlackwellConfig(tile=tile, cluster=(group, 1), cta_group=group)
        for kernel in (
            Kernel(out="f32", config=config, target=TARGET),
            Kernel(bias="f32", config=config, target=TARGET),
            Kernel(direct=True, config=config, target=TARGET),
        ):
            cases.append(Case(kernel, 130, 100, 96, data=DATA[index % 3], seed=index))
    return cases


def _corners() -> list[Case]:
    """Nothing along K, one element, and more tiles than are resident, for each layout."""
    cases = []
    for group, tile in TILES[:4]:
        for claims in (0, 2):
            config = BlackwellConfig(tile=tile, cluster=(group, 1), cta_group=group, clc_stages=claims)
            kernel = Kernel(config=config, target=TARGET)
            cases += [Case(kernel, 130, 72, 0), Case(kernel, 1, 8, 1)]
            cases.append(Case(kernel, 4 * tile[0] * group + 1, 136, 70, data="coded_a"))
    return cases


def _picked() -> list[Case]:
    """What the picker chooses."""
    plain = [Kernel(a=a, b=b, majors=majors, target=TARGET) for (a, b), majors in zip(TYPES, MAJORS * 2, strict=False)]
    fused = Kernel(bias="bf16", activation="gelu", scale="number", batched=True, target=TARGET)
    return [
        *(Case(kernel, 129, 200, 160, data=DATA[index % 3], seed=index) for index, kernel in enumerate(plain)),
        Case(fused, 65, 72, 96, batches=(3, 1), data="normal"),
        *(Case(Kernel(target=TARGET, majors="kn"), *extents) for extents in ((0, 64, 64), (64, 0, 64), (1, 1, 1))),
    ]

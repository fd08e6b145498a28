"""The cases that run on emulated AMD chips: drawn over their configs, corners of each, and what the picker takes."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tests.matmul.matmul_generator import MAJORS, OUTS
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.gfx950.config import Cdna4Config

CONFIGS: tuple[type[CdnaConfig], ...] = (Cdna3Config, Cdna4Config)

TYPES = ("bf16", "f16")
NARROW: dict[str, tuple[str, str]] = {"gfx942": ("e4m3fnuz", "e5m2fnuz"), "gfx950": ("e4m3", "e5m2")}
"""8-bit floats of each chip, any two of which are multiplied."""

TILES = (
    ((32, 16), 1, 1), ((64, 64), 4, 2), ((128, 64), 4, 4), ((64, 32), 2, 1), ((96, 48), 2, 3), ((128, 128), 4, 4),
    ((64, 48), 1, 2), ((128, 32), 4, 2), ((256, 64), 4, 8), ((64, 128), 8, 2), ((256, 16), 2, 4), ((128, 96), 4, 4),
)  # fmt: skip
"""Tile, waves that load and waves that multiply."""

HALVES: dict[str, tuple[tuple[tuple[int, int], int | None, int | None], ...]] = {
    "ping_pong": (
        ((128, 128), None, None), ((256, 128), 8, 2), ((128, 256), None, None), ((64, 64), 2, 2), ((256, 64), 4, 1),
        ((256, 256), None, None), ((64, 128), 4, None),
    ),
    "interleaved": (
        ((128, 128), None, None), ((256, 64), 4, 1), ((64, 128), 4, 4), ((128, 64), None, None), ((128, 192), 4, 2),
        ((256, 256), None, None), ((256, 128), None, 2),
    ),
}  # fmt: skip
"""Tile, waves, and waves side by side, of drivers whose waves all load and multiply."""

DRIVERS = ("warp_specialized", "ping_pong", "interleaved")

KERNELS = 18
EXTENTS = (1, 7, 8, 63, 64, 65, 127, 129, 191, 200)


@cache
def cdna_cases() -> tuple[Case, ...]:
    """Those of the ordinary run."""
    drawn = [_case(_kernel(index, CONFIGS[index % 2]), index) for index in range(KERNELS)]
    return (*drawn, *(case for kind in CONFIGS for case in (*_corners(kind), *_picked(kind))))


@cache
def more_cdna_cases() -> tuple[Case, ...]:
    """Further ones, on new problems."""
    return tuple(_case(_kernel(index, kind), 1000 + index) for index in range(KERNELS, 4 * KERNELS) for kind in CONFIGS)


def _kernel(index: int, kind: type[CdnaConfig]) -> Kernel:
    """Driver, types and tile go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"{kind.TARGET} kernel {index}")
    driver = DRIVERS[index // 2 % len(DRIVERS)]
    narrow = NARROW[kind.TARGET]
    a, b = ((TYPES[index % 2],) * 2, (rng.choice(narrow), rng.choice(narrow)))[index // 6 % 2]
    for turn in range(1000):
        kernel = Kernel(
            a=a,
            b=b,
            out=rng.choice(OUTS),
            majors=rng.choice(MAJORS) if driver != "interleaved" else "kk",
            batched=rng.random() < 0.25,
            scale=rng.choice((None, None, "number")),
            scales=rng.choice(("", "", "a", "b", "ab")),
            bias=rng.choice((None, None, *OUTS)),
            activation=rng.choice((None, None, "relu", "gelu", "silu")),
            direct=rng.random() < 0.25,
            config=_config(rng, kind, driver, index + turn),
            target=kind.TARGET,
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config for kernel {index}")


def _config(rng: Random, kind: type[CdnaConfig], driver: str, turn: int) -> CdnaConfig:
    """Fields of a config of a driver; it need not be legal."""
    fields: dict[str, Any] = {
        "driver": driver,
        "k_group": rng.choice((1, 1, 2)),
        "swap_ab": rng.random() < 0.25,
        "raster_order": "n" if turn % 4 == 3 else "m",
        "raster_group": rng.choice((None, None, 1, 2)),
        "split_k": rng.choice((1, 1, 2, 3)),
        "xcds": rng.random() < 0.75,
    }
    if driver == "warp_specialized":
        tile, load, mma = TILES[turn % len(TILES)]
        fields |= {"tile": tile, "load_waves": load, "mma_waves": mma, "mma_columns": rng.choice((None, None, 1, 2))}
        fields |= {"stages": rng.choice((None, None, 1, 2, 3)), "in_flight": rng.choice((0, 1))}
        return kind(**fields, counters=rng.choice((None, 1, 2)))
    tile, waves, columns = HALVES[driver][turn % len(HALVES[driver])]
    return kind(**fields, tile=tile, mma_waves=waves, mma_columns=columns, stages=rng.choice((None, None, 1, 2)))


def _case(kernel: Kernel, index: int) -> Case:
    rng = Random(f"problem of {kernel.target} kernel {index}")
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    config = kernel.config
    assert isinstance(config, CdnaConfig)
    if config.driver == "interleaved" or config.stages == 2 or rng.random() < 0.4:  # rows of whole loads
        unit = ALIGNMENT // as_dtype(kernel.a).bytes
        k = -(-k // unit) * unit
    if not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches = rng.choice(((2, 2), (1, 3), (2, None))) if kernel.batched else (None, None)
    pads = tuple(rng.choice((0, 0, 1)) for _ in range(3))
    leads = tuple(rng.choice((0, 1)) for _ in range(3))
    return Case(kernel, m, n, k, batches, pads, leads, DATA[index % 4], index)  # type: ignore[arg-type]


def _corners(kind: type[CdnaConfig]) -> list[Case]:
    """Nothing along K, one element, more tiles than there are compute units."""
    cases = []
    for config in (kind(tile=(32, 16), load_waves=1, mma_waves=1), kind(tile=(128, 64))):
        kernel = Kernel(config=config, target=kind.TARGET)
        cases += [Case(kernel, 130, 72, 0), Case(kernel, 1, 8, 1), Case(kernel, 1, 8, 8)]
    for driver in DRIVERS[1:]:
        kernel = Kernel(config=kind(driver=driver), target=kind.TARGET)
        cases += [Case(kernel, 130, 72, 0), Case(kernel, 1, 8, 1 if driver == "ping_pong" else 8)]
    small = Kernel(config=kind(tile=(32, 32), load_waves=2, mma_waves=1), target=kind.TARGET)
    return [*cases, Case(small, 32 * 20 + 1, 32 * 17 + 8, 70, data="coded_a")]


def _picked(kind: type[CdnaConfig]) -> list[Case]:
    """What the picker chooses."""
    plain = [
        Kernel(a=a, b=b, majors=majors, target=kind.TARGET)
        for (a, b), majors in zip(
            [*((one, one) for one in TYPES * 2), NARROW[kind.TARGET], NARROW[kind.TARGET]],
            (*MAJORS, "kk", "mn"),
            strict=True,
        )
    ]
    fused = Kernel(bias="bf16", activation="gelu", scale="number", batched=True, target=kind.TARGET)
    corner = Kernel(target=kind.TARGET, majors="kn")
    return [
        *(Case(kernel, 129, 200, 160, data=DATA[index % 3], seed=index) for index, kernel in enumerate(plain)),
        Case(fused, 65, 72, 96, batches=(3, 1), data="normal"),
        *(Case(corner, *extents) for extents in ((0, 64, 64), (64, 0, 64), (1, 1, 1), (5, 3000, 77))),
    ]

"""The generated cases: kernels drawn over every axis of a spec and a config, with problems of every shape and layout.

Everything comes from `random.Random` with fixed seeds, so a case is the same on every machine and its id reproduces it.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random

from tests.matmul.matmul_case import ALIGNMENT, DATA, Case, Kernel, legal
from tilekit.dtypes import as_dtype
from tilekit.kernels.matmul.sm_90a.candidates import CANDIDATES
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig

TYPES = (("bf16", "bf16"), ("f16", "f16"), ("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
OUTS = ("bf16", "f16", "f32")
MAJORS = ("kk", "kn", "mk", "mn")
CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1))
UNUSUAL_TILES = (
    ((64, 192), 1), ((64, 32), 1), ((64, 96), 1), ((128, 64), 1), ((128, 128), 1), ((192, 64), 1), ((128, 224), 2),
    ((64, 80), 1), ((128, 176), 2), ((128, 208), 2), ((192, 16), 3), ((256, 64), 2), ((512, 64), 2), ((192, 192), 3),
    ((192, 96), 3), ((384, 64), 3), ((384, 128), 3),
)  # fmt: skip
"""Legal tiles that the picker does not know: one to four atoms a warpgroup, tall operands, narrow and odd subtiles."""

KNOWN_TILES = [
    (c.tile, c.consumers)
    for c in CANDIDATES
    if not (c.swap_ab or c.m_below_atom or c.pingpong) and (c.tile[1] % 32 == 0 or c.tile[1] in (48, 112, 176))
]
"""Tiles that the picker knows, of whole instructions; `width_cases` has the widths between."""

TILES = tuple(dict.fromkeys((*KNOWN_TILES, *UNUSUAL_TILES)))

EDGES = (1, 7, 8, 63, 64, 65, 127, 128, 129, 255, 256, 257, 13, 61, 97, 131, 193, 251, 389, 509)
LARGE = (1000, 1021, 1024, 2047, 2048, 2053, 4095, 4096, 4099, 8191, 8192)

KERNELS = 129
EMULATED_SECONDS = 0.4
"""What the emulator may need for a case, by `Case.emulated_cost`."""


@cache
def generated() -> tuple[Case, ...]:
    """Every generated case."""
    return (*_drawn(), *_picked())


@cache
def emulated() -> tuple[Case, ...]:
    """The sample that runs on the emulator: every third of those small enough."""
    return tuple(case for case in generated() if case.emulated_cost <= EMULATED_SECONDS)[::3]


def _drawn() -> list[Case]:
    """Five problems for each kernel: two small enough for the emulator, two around the edges of tiles, one long."""
    cases: list[Case] = []
    for index in range(KERNELS):
        kernel = _kernel(index)
        rng = Random(f"problems of kernel {index}")
        for turn, reach in enumerate(("small", "small", "edges", "edges", "large")):
            cases.append(_case(kernel, rng, reach, data=DATA[(index + turn) % 4], seed=1000 * index + turn))
    return cases


def _kernel(index: int) -> Kernel:
    """The types and the tile go round in turn; everything else is drawn until the config is legal."""
    rng = Random(f"kernel {index}")
    a, b = TYPES[index % len(TYPES)] if rng.random() < 0.6 else rng.choice(TYPES[:2])  # these have more majors to cover
    tile, consumers = TILES[index % len(TILES)]
    for _ in range(1000):
        in_flight = rng.choice((0, 1, 1))
        kernel = Kernel(
            a=a,
            b=b,
            out=rng.choice(OUTS),
            majors="kk" if a[0] == "e" else rng.choice(MAJORS),
            batched=rng.random() < 0.3,
            scale=rng.choice((None, None, "number", "array")),
            bias=rng.choice((None, None, *OUTS)),
            activation=rng.choice((None, None, "relu", "gelu", "silu")),
            direct=rng.random() < 0.2,
            config=MatmulConfig(
                tile=tile,
                cluster=rng.choice(CLUSTERS),
                consumers=consumers,
                stages=rng.choice((None, None, 1 + in_flight, 2, 3, 5)),
                output_buffers=rng.choice((1, 2, 2, 4)),
                in_flight=in_flight,
                prefetch=(0, 0, 4, 0, 1)[index % 5],
                raster_order="n" if index % 4 == 3 else "m",
                raster_group=rng.choice((None, None, 1, 2, 3, 8)),
                l2_promotion=rng.choice(("128B", "128B", None, "64B", "256B")),
            ),
        )
        if legal(kernel):
            return kernel
    raise AssertionError(f"no legal config with tile {tile}")


def _picked() -> list[Case]:
    """What the picker chooses: every type, output and major, at shapes that make it choose every kind of tile."""
    cases = []
    kernels = [Kernel(a=a, b=b) for a, b in TYPES]
    kernels += [
        Kernel(out="f32"),
        Kernel(a="f16", b="f16", out="f16"),
        Kernel(majors="kn"),
        Kernel(majors="mn"),
        Kernel(batched=True),
    ]
    kernels += [
        Kernel(bias="bf16", activation="gelu"),
        Kernel(out="f32", scale="number"),
        Kernel(majors="mk", direct=True),
    ]
    for index, kernel in enumerate(kernels):
        rng = Random(f"picked {index}")
        for turn, reach in enumerate(("small", "edges", "large", "large", "large")):
            cases.append(_case(kernel, rng, reach, data=DATA[(index + turn) % 4], seed=500_000 + 1000 * index + turn))
    return cases


def _case(kernel: Kernel, rng: Random, reach: str, *, data: str, seed: int) -> Case:
    if reach != "small":
        return _draw(kernel, rng, reach, data, seed)
    draws = [_draw(kernel, rng, reach, data, seed) for _ in range(30)]
    return next((c for c in draws if c.emulated_cost <= EMULATED_SECONDS), min(draws, key=lambda c: c.emulated_cost))


def _draw(kernel: Kernel, rng: Random, reach: str, data: str, seed: int) -> Case:
    if reach == "small":
        extents = [rng.choice([e for e in EDGES if e <= 257]) for _ in range(3)]
    elif reach == "edges":
        extents = [rng.choice(EDGES) for _ in range(3)]
    else:
        extents = [rng.choice(EDGES) for _ in range(3)]
        extents[rng.randrange(3)] = rng.choice(LARGE)
    m, n, k = extents
    if kernel.config and not kernel.direct:
        unit = ALIGNMENT // as_dtype(kernel.out).bytes
        n = -(-n // unit) * unit
    batches: tuple[int | None, int | None] = (None, None)
    if kernel.batched:
        count = rng.choice((1, 2, 3) if reach == "small" else (2, 3, 5, 17) if max(extents) < 1000 else (2, 3))
        batches = rng.choice([(count, count), (count, count), (1, count), (count, 1), (None, count), (count, None)])
    return Case(
        kernel,
        m,
        n,
        k,
        batches,
        pads=tuple(rng.choice((0, 0, 1, 3)) for _ in range(3)),  # type: ignore[arg-type]
        leads=tuple(rng.choice((0, 0, 1)) for _ in range(3)),  # type: ignore[arg-type]
        data=data,  # type: ignore[arg-type]
        seed=seed,
    )


@cache
def corner_cases() -> tuple[Case, ...]:
    """Chosen by hand: nothing along a dimension, one of everything, many matrices, every edge in every dimension."""
    return (*_degenerate_cases(), *_many_matrices(), *_edge_cases())


@cache
def emulated_corner_cases() -> tuple[Case, ...]:
    """Those that run on the emulator: a third of the edges, and two of the costly ones."""
    return (*_degenerate_cases(), *_many_matrices()[:2], *_edge_cases()[::3])


def _degenerate_cases() -> list[Case]:
    small = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
    paired = MatmulConfig(tile=(64, 128), cluster=(2, 1), consumers=1)
    cases = []
    for config, out in product((None, small, paired), OUTS):
        biased = Kernel(out=out, bias="f32", activation="gelu", config=config)
        cases.append(Case(Kernel(out=out, config=config), 65, 72, 0))
        cases.append(Case(biased, 65, 129, 0, data="normal"))
    cases += [Case(Kernel(a="e4m3", b="e5m2", config=config), 70, 130, 0) for config in (small, paired)]
    cases += [Case(Kernel(batched=True, direct=direct), 9, 65, 0, batches=(3, 3)) for direct in (False, True)]
    for m, n, k in ((0, 64, 64), (64, 0, 64), (0, 0, 0), (0, 0, 8), (64, 0, 0)):
        cases.append(Case(Kernel(bias="bf16"), m, n, k))
        cases.append(Case(Kernel(batched=True), m, n, k, batches=(3, 1)))
    cases += [Case(Kernel(batched=True), 64, 64, 64, batches=b) for b in ((0, 0), (0, 1), (1, 0), (0, None))]
    cases += [Case(Kernel(majors=majors, out=out), 1, 1, 1) for majors in MAJORS for out in OUTS]
    return cases


def _many_matrices() -> list[Case]:
    """More matrices than the chip has multiprocessors, so that clusters go round; K of two k-blocks and a bit."""
    small = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
    paired = MatmulConfig(tile=(64, 128), cluster=(2, 1), consumers=1)
    chosen: tuple[tuple[Kernel, tuple[int | None, int | None]], ...] = (
        (Kernel(batched=True, config=small), (141, 141)),
        (Kernel(batched=True, config=paired, out="f32", majors="mn"), (1, 71)),
        (Kernel(batched=True, config=paired, direct=True), (137, None)),
        (Kernel(a="e5m2", b="e4m3", batched=True, config=paired), (150, 1)),
    )
    return [
        Case(kernel, 33, 40, 130, batches=batches, pads=(1, 0, 2), data="coded_b", seed=seed)
        for seed, (kernel, batches) in enumerate(chosen)
    ]


def _edge_cases() -> list[Case]:
    """One dimension at a time over every edge, on one kernel of each kind of operand."""
    narrow = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1)
    paired = MatmulConfig(tile=(64, 128), cluster=(2, 1), consumers=1)
    kernels = (
        Kernel(config=narrow),
        Kernel(majors="mn", config=paired),
        Kernel(a="e4m3", b="e4m3", config=narrow),
    )
    cases = []
    for kernel, axis in product(kernels, "mnk"):
        for turn, extent in enumerate(EDGES):
            dims = {"m": 66, "n": 72, "k": 136, axis: extent}
            cases.append(Case(kernel, **dims, data=DATA[turn % 3], seed=turn))
    return cases


@cache
def width_cases() -> tuple[Case, ...]:
    """Every n that the matrix instruction has, in steps of 8, for a tile and the edge of a second one."""
    cases = []
    for turn, columns in enumerate(range(8, 257, 8)):
        config = MatmulConfig(tile=(64, columns), cluster=(1, 1), consumers=1, output_buffers=1 + turn % 2)
        a = b = ("bf16", "f16", "e4m3")[turn % 3]
        kernel = Kernel(a=a, b=b, out=("bf16", "f16")[turn % 2], majors="kn" if turn % 3 == 1 else "kk", config=config)
        cases.append(Case(kernel, 65, columns + 8, 40, data=DATA[turn % 3], seed=turn))
    return tuple(cases)


@cache
def largest_cases() -> tuple[Case, ...]:
    """Two or three large dimensions at once; for the GPU."""
    return (
        Case(Kernel(), 4096, 4096, 4096),
        Case(Kernel(), 8192, 8192, 64, data="coded_a"),
        Case(Kernel(majors="mn", out="f32"), 8191, 4097, 129, data="coded_b"),
        Case(Kernel(a="e4m3", b="e4m3"), 4096, 2056, 8192),
        Case(Kernel(a="f16", b="f16", bias="f16", activation="silu"), 1021, 8192, 8191, data="normal"),
        Case(Kernel(majors="kn", direct=True), 8192, 1021, 2053, pads=(1, 0, 5)),
        Case(Kernel(batched=True, out="f32"), 517, 1031, 1009, batches=(16, 1), pads=(1, 2, 3), data="coded_b"),
    )

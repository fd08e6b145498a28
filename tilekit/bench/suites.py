"""The lists of cases that figures are published for. They are fixed: figures of another list do not compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilekit.bench import random_layers, random_products
from tilekit.bench.attention import AttentionWorkload
from tilekit.bench.blockwise import BlockwiseWorkload, GroupedBlockwiseWorkload
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.layers import FUSED_LAYERS, GRADIENTS, LAYERS
from tilekit.bench.scaled import ScaledWorkload
from tilekit.bench.workload import MatmulWorkload, Workload
from tilekit.dtypes import E4M3
from tilekit.errors import ArgumentError

__all__ = ["DRAWN", "SUITES", "Suite", "SuiteCase", "select"]


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of cases that belong together.

    Attributes
    ----------
    name : str
    about : str
        What the cases are, in a sentence.
    cases : tuple of Workload
    geomean, worst : float
        The aim: geometric mean and smallest of the sustained ratios to the library.
    """

    name: str
    about: str
    cases: tuple[Workload, ...]
    geomean: float
    worst: float

    @property
    def aims(self) -> tuple[float, ...]:
        """As a table gives them."""
        return self.geomean, self.worst


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One case, and the name of the suite that it is of."""

    suite: str
    workload: Workload


_WEIGHTS: Final = (
    # Attention output, fused QKV, fused gate and up, down: 8 billion parameters.
    (4096, 4096),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    # The same of 70 billion.
    (8192, 8192),
    (10240, 8192),
    (57344, 8192),
    (8192, 28672),
    # Latent attention and experts of DeepSeek-V3.
    (2112, 7168),
    (24576, 1536),
    (7168, 16384),
    (7168, 2048),
)
"""N and K of the weights of language models."""


_EIGHT_BIT: Final = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (128, 7168, 16384),
    (4096, 7168, 16384),
    (4096, 24576, 1536),
    (4096, 4096, 7168),
    (64, 2112, 7168),
)
"""Products that 8-bit operands are published for."""


def _squares(*extents: int) -> tuple[Workload, ...]:
    return tuple(MatmulWorkload(extent, extent, extent) for extent in extents)


def _with_rows(*rows: int) -> tuple[Workload, ...]:
    return tuple(MatmulWorkload(m, n, k) for n, k in _WEIGHTS for m in rows)


def _contiguous(*shapes: tuple[int, int, int]) -> tuple[Workload, ...]:
    return tuple(MatmulWorkload(*shape, padded=False) for shape in shapes)


def _fp8(*shapes: tuple[int, int, int]) -> tuple[Workload, ...]:
    return tuple(MatmulWorkload(*shape, a_dtype=E4M3, b_dtype=E4M3) for shape in shapes)


def _grouped(tiles: Sequence[int], n: int, k: int, routing: str) -> Workload:
    # Libraries for contiguous groups ask for groups of whole tiles of 128 rows.
    return GroupedWorkload(tuple(128 * count for count in tiles), n, k, routing=routing)


def _scaled_groups(tiles: Sequence[int], n: int, k: int) -> tuple[Workload, ...]:
    return (GroupedBlockwiseWorkload(tuple(128 * count for count in tiles), n, k),)


def _block_scaled(*formats: str) -> tuple[Workload, ...]:
    """The products that 8-bit operands are published for, and the one that vLLM reports of four bits."""
    return tuple(
        ScaledWorkload(*shape, scaled=name) for name in formats for shape in (*_EIGHT_BIT, (16384, 6144, 4096))
    )


def _heads(*shapes: str) -> tuple[Workload, ...]:
    return tuple(map(AttentionWorkload.parse, shapes))


def _with_and_without_mask(*shapes: str) -> tuple[Workload, ...]:
    return _heads(*(f"{shape}{mask}" for shape in shapes for mask in ("", " causal")))


_ALL: Final = (
    Suite(
        "squares-large",
        "large squares, at the power limit",
        _squares(4096, 6144, 8192, 12288, 16384),
        geomean=1.04,
        worst=1.0,
    ),
    Suite("squares-small", "squares of at most a few waves", _squares(512, 1024, 1536, 2048), geomean=1.06, worst=1.0),
    Suite("decode", "1 to 64 rows: the weights are read once", _with_rows(1, 2, 4, 8, 16, 32, 64), 1.15, 1.0),
    Suite("prefill-small", "128 to 512 rows", _with_rows(128, 256, 512), geomean=1.05, worst=0.98),
    Suite("prefill", "1024 to 8192 rows", _with_rows(1024, 2048, 4096, 8192), geomean=1.03, worst=0.99),
    Suite(
        "odd",
        "extents that no tile divides, arrays without padding",
        _contiguous((1000, 1000, 1000), (4095, 4097, 4093), (3000, 5003, 2048), (129, 4097, 4096), (8191, 5120, 1280)),
        geomean=1.1,
        worst=1.0,
    ),
    Suite(
        "fp8",
        "e4m3 with a scale a tensor, fast accumulation",
        _fp8(*_EIGHT_BIT),
        geomean=1.04,
        worst=0.99,
    ),
    Suite(
        "grouped",
        "contiguous groups of rows, each with its own weights",
        (
            _grouped((72, 58, 63, 75), 4096, 7168, "even"),
            _grouped((39, 25, 34, 41, 29, 36, 31, 35), 7168, 2048, "even"),
            _grouped((96, 48, 32, 24, 16, 12, 8, 8, 4, 4, 2, 2, 1, 1, 0, 0), 4096, 7168, "skewed"),
        ),
        geomean=1.06,
        worst=1.02,
    ),
    Suite(
        "blockwise",
        "e4m3 with scales of 1x128 and 128x128 elements, whole and in groups",
        (
            *(BlockwiseWorkload(*shape) for shape in _EIGHT_BIT),
            *_scaled_groups((72, 58, 63, 75), 4096, 7168),
            *_scaled_groups((39, 25, 34, 41, 29, 36, 31, 35), 7168, 2048),
            # About 192 rows of 32 groups, and about 1024 of 6, as many as experts are given.
            GroupedBlockwiseWorkload(tuple(149 + 37 * i % 86 for i in range(32)), 4096, 7168, rows=256),
            GroupedBlockwiseWorkload((1130, 921, 1024, 1301, 766, 1098), 7168, 2048, rows=1536),
        ),
        geomean=1.15,
        worst=1.03,
    ),
    Suite("block-scaled", "MXFP8 and NVFP4, into bf16", _block_scaled("mxfp8", "nvfp4"), geomean=1.0, worst=0.95),
    Suite("conv2d", "layers of ResNet-50, a UNet, a VAE decoder and ConvNeXt", LAYERS, geomean=1.05, worst=0.95),
    Suite(
        "conv2d-fused", "some of them with bias and relu, and with a residual", FUSED_LAYERS, geomean=1.05, worst=0.95
    ),
    Suite(
        "attention",
        "as many keys as queries, full and causal, heads of 128 and 64, and groups of heads",
        _with_and_without_mask(
            *(f"{shape} h16 d128" for shape in ("16x1024", "4x4096", "1x16384")),
            *(f"{shape} h32 d64" for shape in ("16x1024", "4x4096", "1x16384")),
            "2x8192 h32/8 d128",
        ),
        geomean=1.15,
        worst=1.0,
    ),
    Suite(
        "attention-decode",
        "one query a sequence: keys and values are read once",
        _heads(
            "4x1x16384 h32/8 d128",
            "1x1x131072 h32/8 d128",
            "16x1x8192 h32/8 d128",
            "64x1x4096 h32/8 d128",
            "64x1x4096 h8/1 d128",
            "8x1x32768 h64/8 d128",
            "1x1x16384 h8/1 d128",
            "32x1x4096 h32/8 d64",
        ),
        geomean=1.1,
        worst=1.0,
    ),
    Suite("conv2d-gradients", "gradients of images and filters of ten layers", GRADIENTS, geomean=1.0, worst=0.9),
)

SUITES: Final = {suite.name: suite for suite in _ALL}
"""The suites by name, in the order in which tables show them."""

DRAWN: Final = {suite.name: suite for suite in (random_products.SUITE, random_layers.SUITE)}
"""Those that are drawn at random, which each stand alone."""


def select(
    names: Sequence[str], sample: int | None = None, part: tuple[int, int] | None = None, seed: int = 0
) -> list[SuiteCase]:
    """Return cases of suites, shuffled.

    The order is the same on every machine, and depends on the cases alone: a smaller sample is contained in a larger
    one, the parts of a selection are disjoint and together are the selection, and a run that is cut short has seen
    something of every suite.

    Parameters
    ----------
    names : sequence of str
        Suites, or ``"all"`` of the fixed ones; or one of `DRAWN`, which stands alone.
    sample : int, optional
        How many cases, spread over the suites by their size, one of each at least where that many are asked for.
    part : tuple of int, optional
        ``(1, 4)`` for the first of four parts.
    seed : int, optional
        Of the cases that are drawn.

    Raises
    ------
    ArgumentError
        If there is no such suite, sample or part.
    """
    if sample is not None and sample < 1:
        raise ArgumentError.of("--sample", sample, legal="a number of cases from 1 on", nearest=1, code="TK-BENCH-003")
    if len(set(names)) == 1 and names[0] in DRAWN:
        drawn = DRAWN[names[0]]
        return _part([SuiteCase(drawn.name, workload) for workload in drawn.draw(seed, sample)], part)
    wanted = []
    for name in names:
        if name != "all" and name not in SUITES:
            legal = f"{', '.join(SUITES)} or all; or {' or '.join(DRAWN)} alone"
            raise ArgumentError.of("--suite", name, legal=legal, nearest=_nearest(name), code="TK-BENCH-003")
        wanted += list(SUITES) if name == "all" else [name]
    suites = [suite for name, suite in SUITES.items() if name in wanted]
    total = sum(len(suite.cases) for suite in suites)
    # The k-th of n cases of a suite has rank (k + 1/2) / n, its first rank 0: taking the lowest ranks takes the first
    # of every suite, then as many of each as its size says.
    ranked = []
    for suite in suites:
        shuffled = sorted(suite.cases, key=_digest)
        for index, workload in enumerate(shuffled):
            rank = (index + 0.5) / len(shuffled) if index else 0.0
            ranked.append((rank, _digest(workload), SuiteCase(suite.name, workload)))
    ranked.sort(key=lambda entry: entry[:2])
    return _part([case for _, _, case in ranked[: total if sample is None else sample]], part)


def _part(cases: list[SuiteCase], part: tuple[int, int] | None) -> list[SuiteCase]:
    if part is None:
        return cases
    index, count = part
    if not 1 <= index <= count:
        nearest = f"{min(max(index, 1), max(count, 1))}/{max(count, 1)}"
        raise ArgumentError.of(
            "--part", f"{index}/{count}", legal="I/N with I from 1 to N", nearest=nearest, code="TK-BENCH-003"
        )
    return cases[index - 1 :: count]


def _digest(workload: Workload) -> str:
    return hashlib.sha256(f"{workload.label} {workload.kind}".encode()).hexdigest()


def _nearest(name: str) -> str | None:
    import difflib

    close = difflib.get_close_matches(name, SUITES, n=1)
    return close[0] if close else None

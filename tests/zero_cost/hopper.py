"""The pair for sm_90a: the bf16 matmul of the default config."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

from .pair import ARITHMETIC, ONCE, Extra, Pair
from .sass import Loop, Program

LOAD_K = "load: k-loop"
LOAD_WAIT = "load: retry of the wait for a free stage"
LOAD_TILE = "load: tile loop"
MMA_REGISTERS = "mma: setmaxnreg"
MMA_K = "mma: k-loop"
MMA_WAIT = "mma: retry of the wait for a full stage"
MMA_TILE = "mma: tile loop, with the epilogue"
PARTS = (LOAD_K, LOAD_WAIT, LOAD_TILE, MMA_REGISTERS, MMA_K, MMA_WAIT, MMA_TILE, ONCE)

EXTRAS = (
    Extra(
        LOAD_K,
        {ARITHMETIC: 1},
        "`Producer` keeps the consumers' parity and flips it for each wait; one that starts at 1 needs no flip",
    ),
    Extra(
        LOAD_K,
        {ARITHMETIC: 3},
        "`TmaLoader.load` adds this CTA's share of B to address and row in the k-loop; neither changes within a tile",
    ),
    Extra(
        LOAD_K,
        {ARITHMETIC: 1},
        "the k-loop counts k-blocks and `TmaLoader.load` multiplies by 64; it could count elements",
    ),
    Extra(
        MMA_TILE,
        {ARITHMETIC: 10},
        "`TmaStorer.store` makes the L2 policy for each of the four stores; once a role would do",
    ),
    Extra(
        MMA_TILE,
        {ARITHMETIC: 7},
        "`StagedEpilogue` swizzles the address of each stmatrix; four addresses, made once a role, serve every slab",
    ),
    Extra(
        MMA_TILE,
        {ARITHMETIC: 3},
        "`RasterOrder.tile` computes the tiles of a group again for each tile, and compares the group's parity with 1, "
        "where the mask alone tells zero",
    ),
    Extra(
        MMA_TILE,
        {"BRA": 3, "BSSY": 3, "BSYNC": 3},
        "`StagedEpilogue` starts a store and waits for the one before it in two branches of the storing thread; the "
        "wait could stand behind the store in one",
    ),
    Extra(
        ONCE,
        {ARITHMETIC: 44},
        "`ClusterPosition` divides the rank by 2 for a remainder though a cluster of (2, 1) has no second column, and "
        "the scheduler reads `%clusterid`, for which ptxas divides, in both roles; `%ctaid` shifted would do",
    ),
)


def name_loops(program: Program) -> dict[str, Loop]:
    """Every loop, told by what only its role does."""
    load, mma = program.innermost("UTMALDG"), program.innermost("HGMMA")
    tile = load.parent
    assert tile is not None
    (load_wait,), (mma_wait,) = load.inner, mma.inner
    return {
        LOAD_K: load,
        LOAD_WAIT: load_wait,
        LOAD_TILE: tile,
        MMA_REGISTERS: program.innermost("USETMAXREG.TRY_ALLOC"),
        MMA_K: mma,
        MMA_WAIT: mma_wait,
        MMA_TILE: program.innermost("UTMASTG"),
    }


@cache
def pair() -> Pair:
    """The pair, assembled when first asked for."""
    return Pair(
        kernel=MatmulKernel(MatmulSpec(), MatmulConfig(), SM_90A),
        by_hand=Path(__file__).parent / "matmul_sm90a.ptx",
        entry="matmul_by_hand",
        shared_bytes=229440,
        name_loops=name_loops,
        extras=EXTRAS,
    )

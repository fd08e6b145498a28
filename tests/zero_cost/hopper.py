"""The pair for sm_90a: the bf16 matmul of the default config."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A

from .pair import ARITHMETIC, ONCE, Extra, Pair
from .sass import Loop, Program

TARGET = "sm_90a"
ABOUT = """\
[matmul_sm90a.ptx](../tests/zero_cost/matmul_sm90a.ptx) is the algorithm of the default bf16 matmul: tile 128x256,
cluster 2x1, two consumer warpgroups, one group of wgmma in flight, TMA stores. `UTMALDG` is the load role's, `HGMMA`
the mma role's, `UTMASTG` its epilogue's. 171 instructions of the mma role's tile loop, in both kernels, are zeros for
an empty sum (K = 0), jumped over by all other warps.
"""

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
        ONCE,
        {ARITHMETIC: 3},
        "`ControlFlow.role` asks of every warp whether it is in a role, of the second role too, where only one is left",
    ),
    Extra(
        ONCE,
        {ARITHMETIC: 2},
        "`Warpgroup.of` reads the thread's index again, from which the warp's was taken, and the role its CTA's rank",
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
        about=ABOUT,
        shown=(MMA_K, LOAD_K),
        name_loops=name_loops,
        parts=PARTS,
        extras=EXTRAS,
    )

"""The pair for sm_100a: the bf16 matmul of the default config."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tilekit.kernels.matmul.compiled import MatmulKernel
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_100A

from .pair import ARITHMETIC, ONCE, Extra, Pair, in_order
from .sass import Loop, Program

TARGET = "sm_100a"
ABOUT = """\
[matmul_sm100a.ptx](../tests/zero_cost/matmul_sm100a.ptx) is that of the default there: tile 128x256 a CTA, CTA pairs,
six stages, two accumulators in tensor memory, tiles claimed by cluster launch control, TMA stores, in seven warps.
`UTMALDG` is the load role's, `UTCHMMA` the mma role's, `UGETNEXTWORKID` the scheduler's, `LDTM` the epilogue's. What
stands once has in it what ptxas makes of `tcgen05.alloc`. So far only the emulator has run either kernel.
"""

LOAD_K = "load: k-loop"
LOAD_TILE = "load: tile loop"
MMA_K = "mma: k-loop"
MMA_TILE = "mma: tile loop"
EPILOGUE_TILE = "epilogue: tile loop"
CLAIM = "scheduler: tile loop"
DRAIN = "load: wait for the last stages"
ALLOCATION = "mma: search for tensor memory"
LOAD_WAITS = ("load: retry of the wait to begin a tile", "load: retry of the wait for the next tile")
LOAD_K_WAITS = ("load: retry of the wait for a free stage",)
DRAIN_WAITS = ("load: retry of the wait for a last stage",)
MMA_WAITS = ("mma: retry of the wait for a free accumulator", "mma: retry of the wait for the next tile")
MMA_K_WAITS = ("mma: retry of the wait for a full stage",)
EPILOGUE_WAITS = ("epilogue: retry of the wait for the sums", "epilogue: retry of the wait for the next tile")
CLAIM_WAITS = (
    "scheduler: retry of the wait for a tile begun",
    "scheduler: retry of the wait for answers taken",
    "scheduler: retry of the wait for the answer",
)
ALLOCATION_WAITS = ("mma: retry of the pair's first wait in an allocation", "mma: retry of its second")
"""No source line: ptxas makes them of one tcgen05.alloc."""

RETRIES = (
    *LOAD_WAITS,
    *LOAD_K_WAITS,
    *DRAIN_WAITS,
    *MMA_WAITS,
    *MMA_K_WAITS,
    *EPILOGUE_WAITS,
    *CLAIM_WAITS,
    *ALLOCATION_WAITS,
)
PARTS = (LOAD_K, LOAD_TILE, DRAIN, MMA_K, MMA_TILE, EPILOGUE_TILE, CLAIM, ALLOCATION, *RETRIES, ONCE)

EXTRAS = (
    Extra(
        LOAD_TILE,
        {ARITHMETIC: 1},
        "`ClcScheduler` has the next tile's number set to 0 where nothing was claimed, so that it always has a value",
    ),
    Extra(
        MMA_TILE,
        {ARITHMETIC: 3},
        "each ring has a `RingPosition`; by hand one goes for accumulators and answers, which have two stages both",
    ),
    Extra(
        EPILOGUE_TILE,
        {ARITHMETIC: 6},
        "each ring has a `RingPosition`; by hand one goes for accumulators and answers, which have two stages both",
    ),
    Extra(
        EPILOGUE_TILE,
        {ARITHMETIC: 1},
        "`ClcScheduler` has the next tile's number set to 0 where nothing was claimed, so that it always has a value",
    ),
    Extra(
        EPILOGUE_WAITS[1],
        {ARITHMETIC: -1},
        "the `RingPosition` of the answers is in vector registers, the shared one in uniform ones, to be copied here",
    ),
    Extra(
        ONCE,
        {"BRA": -3, "BRA.U": 1, ARITHMETIC: 4},
        "`ControlFlow.role` asks of every warp whether it is in a role, one role after the other; by hand the last "
        "needs no question, and a warp that is done jumps to the end",
    ),
    Extra(
        ONCE,
        {"LDS": 1, ARITHMETIC: 1},
        "`TensorMemory.free` reads the address again; by hand the warp that multiplied has kept it",
    ),
    Extra(ONCE, {ARITHMETIC: 1}, "`Cluster.index` is worked out in each role"),
    Extra(
        ONCE, {ARITHMETIC: 1}, "`Warpgroup.of` masks the thread's index, though the role's warps are the CTA's first"
    ),
)


def name_loops(program: Program) -> dict[str, Loop]:
    """Every loop, told by what only its role does; the waits of a loop by their order."""
    load, mma = program.innermost("UTMALDG"), program.innermost("UTCHMMA")
    epilogue, claim = program.innermost("UTMASTG"), program.innermost("UGETNEXTWORKID")
    allocation = program.innermost("UTCATOMSWS")
    assert load.parent is not None
    assert mma.parent is not None
    named = {
        LOAD_K: load,
        LOAD_TILE: load.parent,
        MMA_K: mma,
        MMA_TILE: mma.parent,
        EPILOGUE_TILE: epilogue,
        CLAIM: claim,
        ALLOCATION: allocation,
    }
    alone = [loop for loop in program.loops if loop.parent is None and loop not in named.values()]
    (drain,) = (loop for loop in alone if loop.inner)
    named[DRAIN] = drain
    alone.remove(drain)
    for names, loops in (
        (LOAD_WAITS, [loop for loop in load.parent.inner if loop is not load]),
        (LOAD_K_WAITS, load.inner),
        (DRAIN_WAITS, drain.inner),
        (MMA_WAITS, [loop for loop in mma.parent.inner if loop is not mma]),
        (MMA_K_WAITS, mma.inner),
        (EPILOGUE_WAITS, epilogue.inner),
        (CLAIM_WAITS, claim.inner),
        (ALLOCATION_WAITS, alone),
    ):
        named |= in_order(names, loops)
    return named


@cache
def pair() -> Pair:
    """The pair, assembled when first asked for."""
    return Pair(
        kernel=MatmulKernel(MatmulSpec(), BlackwellConfig(), SM_100A),
        by_hand=Path(__file__).parent / "matmul_sm100a.ptx",
        entry="matmul_by_hand",
        shared_bytes=229616,
        about=ABOUT,
        shown=(MMA_K, LOAD_K),
        name_loops=name_loops,
        parts=PARTS,
        extras=EXTRAS,
    )

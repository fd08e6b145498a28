"""Write ``cdna-matmul-model.md``: ``python docs/cdna_matmul_model.py`` after AMD's drivers, or the model, change.

The kernels that `tilekit.matmul` picks are traced, and their loops replayed by `tilekit.cycles`; what others have
reported stands in `FIGURES`. The tests fail when the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import cdna_model as loops

from tilekit.cycles import LoopReport
from tilekit.dtypes import E2M1X2, E4M3, E4M3FNUZ
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.matmul.cdna.config import CdnaConfig
from tilekit.kernels.matmul.cdna.notes import replayed
from tilekit.kernels.matmul.gfx942.config import Cdna3Config
from tilekit.kernels.matmul.gfx950.config import Cdna4Config
from tilekit.kernels.matmul.kernel import KernelText, trace
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.runtime.resources import GcnResources
from tilekit.targets import GFX950, target

PAGE = Path(__file__).resolve().with_name("cdna-matmul-model.md")
CUS, MHZ = loops.CUS, loops.MHZ
ISSUE, LATENCY = 4, 1000
"""Clocks of an instruction of a wave, and of a load: figures of the model."""

FIGURES = {
    "bf16": {4096: "HipKittens 1413, hipBLASLt 1433, AITER 1114", 8192: "HipKittens 1610, hipBLASLt 1575, AITER 1591",
             16384: "HipKittens 1571, hipBLASLt 1579, AITER 1564"},
    "e4m3": {4096: "HipKittens 2741, hipBLASLt 2749", 8192: "HipKittens 3327, hipBLASLt 3233",
             16384: "HipKittens 3378, hipBLASLt 3293"},
    "mxfp4": {4096: "gfx950-gluon-tutorials 5255 with K of 32768"},
}  # fmt: skip
"""TFLOP/s on an MI355X, all in HipKittens' repository; of AITER's fp8 kernels none are there."""

BF16, FP8, FNUZ = MatmulSpec(), MatmulSpec(E4M3, E4M3), MatmulSpec(E4M3FNUZ, E4M3FNUZ)
MXFP8, MXFP4 = BlockScaledSpec(), BlockScaledSpec(E2M1X2, E2M1X2, scaled="mxfp4")
PEAKS = {"bf16": 4096, "e4m3": 8192, "e4m3fnuz": 8192, "mxfp8": 8192, "mxfp4": 16384}
"""FLOP a clock of a compute unit of a gfx950."""

CUBES = (4096, 8192, 16384)
WANTED, PUBLISHED = 1700, 1610

ORDER = (4152, 4124, 90)
"""What the solver finds of the interleaved bf16 loop, its bound, and the seconds it had: ``best_order(text,
loop=".Lpair_loop", seconds=90)``. The time decides what is found, so nothing holds these numbers."""


@dataclass(frozen=True)
class Made:
    """A kernel of the family.

    Attributes
    ----------
    config
        Its config.
    spec
        What it computes.
    """

    config: CdnaConfig
    spec: MatmulSpec

    @property
    def factors(self) -> str:
        """Its operands: their type, or the format of their scales."""
        return self.spec.scaled if isinstance(self.spec, BlockScaledSpec) else self.spec.a_dtype.name

    @property
    def what(self) -> str:
        """The driver, its waves and the tile."""
        rows, columns = self.config.tile
        driver = self.config.driver.replace("_", "-")
        return f"{driver}, {self.config.waves} waves, {rows}x{columns}"

    @cached_property
    def text(self) -> KernelText:
        """The kernel."""
        return trace(self.spec, self.config, target(self.config.TARGET))

    @cached_property
    def resources(self) -> GcnResources:
        """As LLVM assembles it."""
        found = assemble(self.text.assembly, self.config.TARGET, kernel_name=self.text.name).resources
        assert isinstance(found, GcnResources)
        return found

    @cached_property
    def loop(self) -> LoopReport:
        """Its loop, by the model."""
        return replayed(self.config, self.text)

    @property
    def clocks(self) -> float:
        """Of a k-tile."""
        return self.loop.clocks_per_k_tile

    @property
    def k_tiles(self) -> float:
        """Of a turn of the loop."""
        return self.loop.clocks / self.clocks

    @cached_property
    def ends(self) -> int:
        """Clocks of a tile before its loop and behind it: the issue of all instructions there, and one load's latency.

        Where a sum's last k-tile stands behind the loop by itself, it is counted as if it were executed; so is what a
        workgroup does once.
        """
        lines = [line.split("//@")[0].strip() for line in self.text.assembly.split(".text", 1)[1].splitlines()]
        code = [line for line in lines if line and not line.startswith((".", ";")) and not line.endswith(":")]
        outside = code.index("s_endpgm") - self.loop.instructions
        return outside * ISSUE * -(-self.config.waves // 4) + LATENCY

    def tflops(self, n: int, mhz: float) -> float:
        """Of a cube."""
        rows, columns = self.config.tile
        rounds = -(-(n // rows) * (n // columns) // CUS)
        bits = 4 if self.factors == "mxfp4" else self.spec.a_dtype.bits
        clocks = rounds * (n * bits / 1024 * self.clocks + self.ends)
        return 2 * n**3 / (clocks / (mhz * 1e6)) / 1e12


def made(kind: type[CdnaConfig], driver: str, spec: MatmulSpec, tile: tuple[int, int] = (256, 256)) -> Made:
    """A driver's kernel."""
    return Made(kind(driver=driver, tile=tile), spec)  # type: ignore[arg-type]


LOOPS = (
    *(made(Cdna4Config, driver, spec) for spec in (BF16, FP8) for driver in ("ping_pong", "interleaved")),
    *(made(Cdna4Config, "ping_pong", spec) for spec in (MXFP8, MXFP4)),
    *(made(Cdna3Config, "ping_pong", spec) for spec in (BF16, FNUZ)),
    made(Cdna3Config, "interleaved", BF16, (128, 128)),
    made(Cdna4Config, "warp_specialized", BF16, (256, 128)),
)


def picked(spec: MatmulSpec, n: int) -> Made:
    """What the family picks for a cube."""
    config = pick(spec, GFX950, m=n, n=n, k=n // 2 if spec is MXFP4 else n)
    assert isinstance(config, CdnaConfig)
    same = (one for one in LOOPS if (one.config.driver, one.config.tile) == (config.driver, config.tile))
    return next((one for one in same if one.spec is spec and one.config.TARGET == config.TARGET), Made(config, spec))


def table() -> Iterator[str]:
    """The loops."""
    yield "| chip | factors | driver | clocks a k-tile | matrix cores busy | VGPRs + AGPRs | idle clocks, a turn |"
    yield "|---|---|---|--:|--:|--:|---|"
    for one in LOOPS:
        loop = one.loop
        registers = f"{one.resources.vgprs} + {one.resources.agprs}"
        busy = one.clocks * loop.utilisation
        yield (
            f"| {one.config.TARGET} | {one.factors} | {one.what} | {one.clocks:.0f} of {busy:.0f} "
            f"| {loop.utilisation:.1%} | {registers} | {loops.causes(loop)} |"
        )


def cubes() -> Iterator[str]:
    """Share of peak, and beside what others report."""
    low = loops.ladder_mhz()
    yield f"| cube | factors | picked | of peak | TFLOP/s at {MHZ} MHz | at {low:.0f} MHz | measured by others |"
    yield "|---|---|---|--:|--:|--:|---|"
    for spec in (BF16, FP8, MXFP8, MXFP4):
        for n in CUBES:
            one = picked(spec, n)
            peak = CUS * PEAKS[one.factors] * MHZ / 1e6
            high = one.tflops(n, MHZ)
            yield (
                f"| {n}³ | {one.factors} | {one.what} | {high / peak:.1%} | {high:.0f} | "
                f"{one.tflops(n, low):.0f} | {FIGURES.get(one.factors, {}).get(n, '')} |"
            )


def page() -> str:
    """The page."""
    best = picked(BF16, 8192)
    needed = WANTED / best.tflops(8192, MHZ) * MHZ
    as_best = PUBLISHED / best.tflops(8192, MHZ) * MHZ
    lost = best.ends / (8192 * 16 / 1024 * best.clocks + best.ends)
    found, bound, seconds = ORDER
    interleaved = LOOPS[1]
    return f"""# How fast AMD's matmul loops are, by the model

**A model, and no measurement**: there was no AMD GPU. `python docs/cdna_matmul_model.py` writes this page: it traces
kernels of `tilekit.matmul`, replays their loops on [the cycle model](cdna-model.md), which says what it assumes, and
counts the rest. What others have reported was measured by them on an MI355X.

## The loops

{chr(10).join(table())}

`drivers/ping_pong.py` and `drivers/interleaved.py` have these orders by hand; of the warp-specialised driver the waves
that multiply are replayed, their stages being full. The order of a turn of the interleaved loop in bf16 (two k-tiles)
was given to [CP-SAT](cdna-model.md#orders-found), too: by hand it is {interleaved.loop.clocks:.0f} clocks, replayed; in
{seconds} s the solver finds one of {found} by its own view and proves that none is below {bound}, of which 4096 are the
matrix cores'. Replayed, what it finds is no quicker than the order by hand, which stays: at most
{interleaved.loop.clocks / bound - 1:.1%} can be won by another order of these instructions. An earlier order by hand
took 4340; the solver's 4308 said that there was something to find, and the replay said where: between products that had
more than three instructions behind them.

## Whole products

What the family picks for each cube. The ends of a tile are counted as the issue of every instruction outside of the
loop, none of them hidden, and one load's latency; what stores themselves take is not counted. Of 8192³ that is
{lost:.1%}. Tiles are dealt to {CUS} compute units in whole rounds; L2 and HBM keep up with loads of 1000 clocks. The
second clock is the one at which the tutorials' measured kernel ran by [the same count](cdna-model.md#fraction-of-peak):
the chip is limited by power.

{chr(10).join(cubes())}

## What limits it

{WANTED} TFLOP/s for 8192³ in bf16 (published best: {PUBLISHED}) need {needed:.0f} MHz with the loop of {best.what}; by
the same count the published best is {as_best:.0f} MHz, and at {MHZ} MHz the model has {best.tflops(8192, MHZ):.0f}.
The loop itself leaves {1 - best.loop.utilisation:.1%} of the matrix cores' clocks idle, so what can still be won in
clocks are the ends of a tile. Beyond that it is the clock that the power limit leaves, which the model does not know.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

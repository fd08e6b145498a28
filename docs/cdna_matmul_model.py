"""Write ``cdna-matmul-model.md``: ``python docs/cdna_matmul_model.py`` after AMD's drivers, or the model, change.

The drivers' kernels are traced, and their loops replayed by `tilekit.cycles`; what others have reported stands in
`FIGURES`. The tests fail when the page is out of date.
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

import tilekit.compose as tk
from tests.compose.amd_schedules import matmul
from tilekit.cycles import LoopReport, replay_loop

PAGE = Path(__file__).resolve().with_name("cdna-matmul-model.md")
CUS, MHZ, TILE = loops.CUS, loops.MHZ, 256
ISSUE, LATENCY = 4, 1000
"""Clocks of an instruction of a wave, and of a load: figures of the model."""

FIGURES = {
    "bf16": {4096: "HipKittens 1413, hipBLASLt 1433, AITER 1114", 8192: "HipKittens 1610, hipBLASLt 1575, AITER 1591",
             16384: "HipKittens 1571, hipBLASLt 1579, AITER 1564"},
    "e4m3": {4096: "HipKittens 2741, hipBLASLt 2749", 8192: "HipKittens 3327, hipBLASLt 3233",
             16384: "HipKittens 3378, hipBLASLt 3293"},
}  # fmt: skip
"""TFLOP/s on an MI355X, all in HipKittens' repository; of AITER's fp8 kernels none are there."""

CUBES = (4096, 8192, 16384)
WANTED = 1700

ORDER = (4308, 4152, 90)
"""What the solver finds of the interleaved bf16 loop, its bound, and the seconds it had: ``best_order(text,
loop=".Lpair_loop", seconds=90)``. The time decides what is found, so nothing holds these numbers."""


@dataclass(frozen=True)
class Driver:
    """A driver's kernel for a tile of 256x256 and a k-tile of 128 bytes on gfx950."""

    name: str
    what: str
    dtype: tk.DType
    k_tiles: int

    @cached_property
    def kernel(self) -> tk.ComposedKernel:
        """The kernel."""
        return matmul("gfx950", self.name, dtype=self.dtype)

    @cached_property
    def loop(self) -> LoopReport:
        """Its loop, by the model."""
        return replay_loop(self.kernel.assembly, k_tiles=self.k_tiles)

    @property
    def clocks(self) -> float:
        """Of a k-tile."""
        return self.loop.clocks / self.k_tiles

    @cached_property
    def ends(self) -> int:
        """Clocks of a tile before its loop and behind it: the issue of all instructions there, and one load's latency.

        Where a sum's last k-tile stands behind the loop by itself, it is counted as if it were executed.
        """
        lines = [line.split("//@")[0].strip() for line in self.kernel.assembly.split(".text", 1)[1].splitlines()]
        code = [line for line in lines if line and not line.startswith((".", ";")) and not line.endswith(":")]
        outside = code.index("s_endpgm") - self.loop.instructions
        waves = len(self.kernel.traced.roles[0].warps) // 4
        return outside * ISSUE * waves + LATENCY

    def tflops(self, n: int, mhz: float) -> float:
        """Of a cube."""
        rounds = -(-((n // TILE) ** 2) // CUS)
        clocks = rounds * (n * self.dtype.bits / 1024 * self.clocks + self.ends)
        return 2 * n**3 / (clocks / (mhz * 1e6)) / 1e12


DRIVERS = tuple(
    Driver(name, what, dtype, k_tiles)
    for dtype in (tk.BF16, tk.E4M3)
    for name, what, k_tiles in (
        ("ping_pong", "eight waves, ping-pong", 1),
        ("interleaved", "four waves, interleaved", 2),
    )
)


def table() -> Iterator[str]:
    """The loops."""
    yield "| driver | factors | clocks a k-tile | matrix cores busy | VGPRs + AGPRs | the model's idle clocks, a turn |"
    yield "|---|---|--:|--:|--:|---|"
    for driver in DRIVERS:
        used, loop = driver.kernel.resources, driver.loop
        registers = f"{used.vgprs} + {used.agprs}"
        busy = loop.clocks * loop.utilisation / driver.k_tiles
        yield (
            f"| {driver.what} | {driver.dtype.name} | {driver.clocks:.0f} of {busy:.0f} | {loop.utilisation:.1%} "
            f"| {registers} | {loops.causes(loop)} |"
        )


def cubes() -> Iterator[str]:
    """Share of peak, and beside what others report."""
    low = loops.ladder_mhz()
    yield f"| cube | factors | driver | of peak | TFLOP/s at {MHZ} MHz | at {low:.0f} MHz | measured by others |"
    yield "|---|---|---|--:|--:|--:|---|"
    for dtype in ("bf16", "e4m3"):
        for n in CUBES:
            for driver in DRIVERS:
                if driver.dtype.name == dtype:
                    peak = CUS * (4096 if dtype == "bf16" else 8192) * MHZ / 1e6
                    high = driver.tflops(n, MHZ)
                    yield (
                        f"| {n}³ | {dtype} | {driver.what} | {high / peak:.1%} | {high:.0f} | "
                        f"{driver.tflops(n, low):.0f} | {FIGURES[dtype][n]} |"
                    )


def page() -> str:
    """The page."""
    best = max(DRIVERS[:2], key=lambda driver: driver.tflops(8192, MHZ))
    needed = WANTED / best.tflops(8192, MHZ) * MHZ
    lost = best.ends / (8192 * 16 / 1024 * best.clocks + best.ends)
    found, bound, seconds = ORDER
    return f"""# How fast AMD's matmul loops are, by the model

**A model, and no measurement**: there was no AMD GPU. `python docs/cdna_matmul_model.py` writes this page: it traces
the drivers for `gfx950` with tiles of 256x256, replays their loops on [the cycle model](cdna-model.md), which says what
it assumes, and counts the rest. What others have reported was measured by them on an MI355X.

## The loops

{chr(10).join(table())}

`drivers/ping_pong.py` and `drivers/interleaved.py` have these orders by hand. The order of a turn of the interleaved
loop in bf16 (two k-tiles) was given to [CP-SAT](cdna-model.md#orders-found), too: in {seconds} s it finds one of
{found} clocks by its own view, and proves that none is below {bound}; of those, 4096 are the matrix cores'.
Replayed, what it finds is no quicker than the order by hand, which stays.

## Whole products

Of a tile of 256x256 the ends are counted as the issue of every instruction outside of the loop, none of them hidden,
and one load's latency; what stores themselves take is not counted. Of 8192³ that is {lost:.1%}: each element of the
output is stored by itself. Tiles are dealt to {CUS} compute units in whole rounds; L2 and HBM keep up with loads of
1000 clocks. The second clock is the one at which the tutorials' measured kernel ran by
[the same count](cdna-model.md#fraction-of-peak): the chip is limited by power.

{chr(10).join(cubes())}

## What limits it

{WANTED} TFLOP/s for 8192³ in bf16 (published best: 1610) need {needed:.0f} MHz with the loop of {best.what}.
The loop itself leaves {1 - best.loop.utilisation:.1%} of the matrix cores' clocks idle, so what can still be won in
clocks are the ends of a tile. Beyond that it is the clock that the power limit leaves, which the model does not know.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

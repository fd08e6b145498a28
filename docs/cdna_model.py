"""Write ``cdna-model.md``: ``python docs/cdna_model.py`` after the cycle model or its figures change.

Every number of the page is computed here, but what others have reported (`REPORTED`, `TILES`, `LDS_READS`, `CUBES`) and
what the model gives for AITER's code objects, which are not in this repository: ``python docs/cdna_model.py --aiter
FOLDER`` replays those that stand in a folder, and fails if `AITER` has other numbers. The tests fail when the page is
out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cdna_streams as streams

from tilekit.cycles import FIGURES, LoopReport, replay_loop
from tilekit.cycles.order import best_order
from tilekit.emulator.gcn.binary.listing import decode

PAGE = Path(__file__).resolve().with_name("cdna-model.md")
TUTORIALS = "gfx950-gluon-tutorials"


@dataclass(frozen=True)
class Reported:
    """An efficiency that others have measured inside a loop, and the loop rebuilt.

    Attributes
    ----------
    what, where
        The kernel, and who reports it.
    percent
        Share of the loop's clocks in which the matrix cores work.
    text, waves
        The loop, and waves of its workgroup.
    """

    what: str
    where: str
    percent: float
    text: str
    waves: int

    @property
    def report(self) -> LoopReport:
        """What the model says."""
        return replayed(self.text, self.waves)


@cache
def replayed(text: str, waves: int, lds_ways: int = 1) -> LoopReport:
    """The model's report of a loop on gfx950."""
    return replay_loop(text, chip="gfx950", waves=waves, lds_ways=lds_ways)


LDS_READS = ((1, 1, 8), (1, 2, 8), (1, 4, 16), (1, 8, 32), (4, 1, 16), (4, 2, 32), (4, 4, 64), (4, 8, 128))
"""Waves, ways of the bank conflict, clocks from a ds_read_b128 to the next (experiments/lds_throughput_validation)."""

REPORTED = (
    Reported("f16 matmul v4: loads, reads, MFMAs, each in a row", TUTORIALS, 51.87, streams.prefetched(), 4),
    Reported("f16 matmul v5: the same, a k-block ahead", TUTORIALS, 57.67, streams.prefetched_twice(), 4),
    Reported("f16 matmul v9: four regions, woven", TUTORIALS, 98.75, streams.sliced(), 4),
    Reported("f8 matmul: the same", TUTORIALS, 99.72, streams.sliced(bits=8), 4),
    Reported("f16 matmul of eight waves: ping-pong", TUTORIALS, 99.8, streams.ping_pong(wide=True), 8),
    Reported("attention fav4: lazy rescale", TUTORIALS, 93.7, streams.attention(lazy=True), 8),
    Reported("attention fav3: eager rescale", TUTORIALS, 86.2, streams.attention(lazy=False), 8),
)

TILES = (
    (256, 256, 2, 96), (256, 128, 3, 83), (128, 256, 3, 84), (128, 128, 5, 69), (256, 64, 4, 55), (64, 256, 4, 57),
    (128, 64, 6, 47), (64, 128, 6, 47),
)  # fmt: skip
"""Rows, columns, stages that LDS has room for, and the efficiency in percent (docs/tcp_bound_tile_model.md)."""

SPECIALISED = ((128, 256, 8, 0.67, 964), (192, 256, 12, 0.75, 1251))
"""HipKittens' warp specialisation: tile, waves that multiply beside four that load, their share of the register file,
and TFLOP/s for 7680x8192x8192, where 1522 are reached without waves that only load. Tiles are those that fit such
shares; they are not published beside these numbers."""
UNSPECIALISED = 1522

AITER = (
    ("bf16gemm_bf16_tn_256x256.co", "bf16 256x256x64, four waves, two copies of the loop", (), 2, 4136, 0.990),
    ("f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256.co", "MXFP4 256x256, four waves", (), 2, 4132, 0.991),
    ("fwd_hd128_bf16.co", "attention forward bf16, d 128, eight waves, masks skipped",
     (".L_47c8", ".L_5170", ".L_5aa4", ".L_642c"), 2, 4668, 0.877),
)  # fmt: skip
"""AITER's code objects for gfx950 (ROCm/aiter at e4048607): file, what it is, branches that are taken, k-blocks (or KV
tiles) of a turn, and the model's clocks and share."""

CUS, MHZ = 256, 2400
LADDER_TFLOPS, LADDER_BUSY, LADDER_ENDS = 1489, 0.9875, 2708 + 18552
"""Of the f16 matmul v9 at 4096x4096x8192; the clocks before and after the loop are those of docs/mfma_efficiency.md."""
CUBES = {
    4096: (("HipKittens", 1413), ("hipBLASLt", 1433), ("AITER", 1114)),
    8192: (("HipKittens", 1610), ("hipBLASLt", 1575), ("AITER", 1591)),
    16384: (("HipKittens", 1571), ("hipBLASLt", 1579), ("AITER", 1564)),
}
"""bf16 TFLOP/s on an MI355X, all in HipKittens' repository."""


def figures() -> Iterator[str]:
    """What the model is made of."""
    yield "| figure | what | gfx942 | gfx950 | from |"
    yield "|---|---|--:|--:|---|"
    for figure in FIGURES:
        values = [
            f"{getattr(figure, chip)}{' **assumed**' if chip in figure.assumed else ''}"
            for chip in ("gfx942", "gfx950")
        ]
        yield f"| `{figure.name}` | {figure.what} | {values[0]} | {values[1]} | {figure.source} |"


def lds() -> Iterator[str]:
    """Reads of LDS, beside a microbenchmark."""
    yield "| waves | conflict | measured | model |"
    yield "|--:|--:|--:|--:|"
    for waves, ways, clocks in LDS_READS:
        found = replayed(streams.lds_reads(), waves, ways).clocks / 32
        yield f"| {waves} | {'none' if ways == 1 else f'{ways}-way'} | {clocks} | {found:.1f} |"


def ratio(percent: float, report: LoopReport) -> str:
    """The model's share, and how far it is from what was measured."""
    return f"{report.utilisation:.1%} | {100 * report.utilisation / percent - 1:+.1%}"


def causes(report: LoopReport) -> str:
    """What the matrix cores lose most to."""
    found = [f"{cause} {clocks:.0f}" for cause, clocks in report.idle_by_cause().items() if clocks >= 1]
    return ", ".join(found[:3]) or "nothing"


def efficiencies() -> Iterator[str]:
    """Loops with a reported efficiency."""
    yield "| loop | measured | model | off by | clocks a turn | the model's idle clocks |"
    yield "|---|--:|--:|--:|--:|---|"
    for one in REPORTED:
        report = one.report
        found = ratio(one.percent, report)
        yield f"| {one.what} | {one.percent}% | {found} | {report.clocks:.0f} | {causes(report)} |"


def tiles() -> Iterator[str]:
    """Tiles of one loop."""
    yield "| tile | stages | measured | model | off by | the model's idle clocks |"
    yield "|---|--:|--:|--:|--:|---|"
    for rows, columns, stages, percent in TILES:
        report = replayed(streams.sliced(rows, columns, stages=stages), 4)
        yield f"| {rows}x{columns} | {stages} | {percent}% | {ratio(percent, report)} | {causes(report)} |"


GUESSES = (
    ("barrier", 4), ("barrier", 16), ("barrier", 32), ("branch", 16), ("branch", 64), ("lds_latency", 96),
    ("load_latency", 800), ("load_latency", 1200), ("load_latency", 1500),
)  # fmt: skip
"""Figures, and what they might be instead."""


def guesses() -> Iterator[str]:
    """What some loops become if a figure is another."""
    loops = {
        "v9": (streams.sliced(), 4),
        "ping-pong": (streams.ping_pong(wide=True), 8),
        "fav4": (streams.attention(lazy=True), 8),
        "256x128": (streams.sliced(256, 128, stages=3), 4),
    }
    yield f"| figure | {' | '.join(loops)} |"
    yield f"|---|{'--:|' * len(loops)}"
    yield f"| as above | {' | '.join(f'{replayed(*loop).utilisation:.1%}' for loop in loops.values())} |"
    for name, value in GUESSES:
        shares = (
            replay_loop(text, chip="gfx950", waves=waves, taken=None, turns=None, **{name: value}).utilisation
            for text, waves in loops.values()
        )
        yield f"| `{name}` {value} | {' | '.join(f'{share:.1%}' for share in shares)} |"


def specialised() -> Iterator[str]:
    """Warp specialisation against ping-pong."""
    whole = replayed(streams.ping_pong(), 8)
    yield "| consumers' share of the registers | tile | measured, of 1522 TFLOP/s | model, of the ping-pong |"
    yield "|--:|---|--:|--:|"
    for rows, columns, consumers, share, tflops in SPECIALISED:
        report = replayed(streams.producers(rows, columns, consumers), consumers + 4)
        found = report.utilisation / whole.utilisation
        yield f"| {share} | {rows}x{columns} | {tflops / UNSPECIALISED:.0%} | {found:.0%} |"


ORDERS = (
    ("64 MFMAs with 16 reads and 8 loads ahead of them", 1052, 1052, 1564, 1056),
    ("128x128x64, woven", 1052, 1052, 1408, 1272),
    ("256x256x64, woven", 4180, 4124, 4200, 4156),
)
"""What the solver found in 20 s with one worker, loads landing in 100 clocks: clocks, bound, the model's before, after.

``python docs/cdna_model.py --orders`` solves again. The time decides what is found, so nothing holds these numbers.
"""


def orders() -> Iterator[str]:
    """Orders by CP-SAT."""
    yield "| turn | solver | bound | model, as written | model, as found |"
    yield "|---|--:|--:|--:|--:|"
    for what, found, bound, before, after in ORDERS:
        yield f"| {what} | {found} | {bound} | {before} | {after} |"


def solved() -> Iterator[tuple[str, str]]:
    """The turns of `ORDERS`."""
    turn = ["s_waitcnt vmcnt(12) lgkmcnt(0)", "s_barrier", *streams.reads(16), *streams.loads(8)]
    yield ORDERS[0][0], streams.text(streams.loads(16), [*turn, *(streams.mfma(n) for n in range(64))])
    yield ORDERS[1][0], streams.sliced(128, 128)
    yield ORDERS[2][0], streams.sliced()


def objects() -> Iterator[str]:
    """AITER's kernels."""
    yield "| kernel | clocks a turn | of a k-block or KV tile | matrix cores busy |"
    yield "|---|--:|--:|--:|"
    for file, what, _, k_tiles, clocks, share in AITER:
        yield f"| `{file}`: {what} | {clocks} | {clocks / k_tiles:.0f} | {share:.1%} |"


def ladder_mhz() -> float:
    """The clock at which the ladder's last step ran: its clocks, by its efficiency, over its time."""
    clocks = 8192 / 64 * 2048 / LADDER_BUSY + LADDER_ENDS
    return clocks / (2 * 4096**2 * 8192 / (LADDER_TFLOPS * 1e12)) / 1e6


def tflops(n: int, mhz: float) -> float:
    """Of a cube in bf16, by tiles of 256x256 and the ping-pong's loop."""
    waves = -(-((n // 256) ** 2) // CUS)
    report = replayed(streams.ping_pong(), 8)
    clocks = waves * (n / 64 * report.clocks / 2 + LADDER_ENDS)
    return 2 * n**3 / (clocks / (mhz * 1e6)) / 1e12


def cubes() -> Iterator[str]:
    """Cubes in bf16."""
    mhz = ladder_mhz()
    yield f"| cube | of peak | at {MHZ} MHz | at {mhz:.0f} MHz | reported |"
    yield "|---|--:|--:|--:|---|"
    for n, reported in CUBES.items():
        peak = CUS * 4096 * MHZ / 1e6
        others = ", ".join(f"{who} {value}" for who, value in reported)
        high, low = tflops(n, MHZ), tflops(n, mhz)
        yield f"| {n}³ | {high / peak:.1%} | {high:.0f} | {low:.0f} | {others} |"


def page() -> str:
    """The page."""
    best = max(abs(100 * one.report.utilisation / one.percent - 1) for one in REPORTED)
    needed = 1700 / tflops(8192, MHZ) * MHZ
    woven, taking_turns = replayed(streams.sliced(), 4).utilisation, replayed(streams.ping_pong(), 8).utilisation
    ends = 1 - tflops(8192, MHZ) / (CUS * 4096 * MHZ / 1e6 * taking_turns)
    drawn = str(replayed(streams.ping_pong(wide=True), 8)).replace(" \n", "\n")
    return f"""# A cycle model of a CDNA compute unit

How fast a loop of AMDGCN code runs on a compute unit of an MI300X (`gfx942`) or MI355X (`gfx950`), and what
stalls. **Nothing on this page has been measured by this project**: there was no AMD GPU.
`python docs/cdna_model.py` writes it, from the model in [`tilekit/cycles`](../tilekit/cycles/__init__.py).

```console
tilekit cycles kernel.s --k-tiles 2        # text of any origin
tilekit cycles kernel.hsaco --json         # or a code object
```

```python
from tilekit.cycles import replay_loop

MFMA = "v_mfma_f32_16x16x32_bf16 a[{{0}}:{{1}}], v[0:3], v[4:7], a[{{0}}:{{1}}]"
turn = [MFMA.format(4 * n, 4 * n + 3) for n in range(8)]
text = "\\n".join(["turn:", *turn, "s_cbranch_scc1 turn", "s_endpgm"])
report = replay_loop(text, chip="gfx950", waves=4)
print(f"{{report.clocks:.0f}} clocks, matrix cores {{report.utilisation:.0%}}, idle: {{report.idle_by_cause()}}")
```

```text
148 clocks, matrix cores 86%, idle: {{'branch': 20.0}}
```

## What it does

The loop is the innermost one with MFMAs, or the one whose label is given. Each wave is walked from the kernel's
entry by the branches that the text decides (its number, and what follows from that), so that waves with a copy of
the loop of their own, waves that only load, and groups one barrier apart are what they are; a branch that the
text does not decide is named in the report, and `--take` turns it. Then all waves issue their instructions in
order:

- a wave issues one instruction in four clocks; a SIMD has one port for vector and matrix instructions, one for
  scalar ones, and one for memory and LDS; of waves that are ready at once the higher priority (`s_setprio`) goes
  first, then the longer wait;
- an MFMA keeps the matrix core for its passes, and the vector port while its factors are read; packed f32
  instructions wait until the wave's MFMA is over; results are waited for as long as LLVM's hazard table asks, and
  accumulating into the same registers is free;
- LDS has a queue for each pair of SIMDs, its own rate and its bus's; what loads write to it takes its time there;
- loads wait for the vector L1, and no more bytes are in flight than it and its queue hold;
- `s_waitcnt` counts as the hardware does; `s_barrier` joins the waves of a workgroup.

Turns are replayed until they repeat. Of each gap between two MFMAs on a SIMD the report says what the wave whose
MFMA ends it was waiting for; what it did not wait for is the issue of instructions in between. Bank conflicts are
not found by the model, which sees no addresses: `--lds-ways` gives them, and `tilekit.emulator.gcn.banks.conflicts`
counts those of 64 addresses.

## The figures

{chr(10).join(figures())}

## Beside a microbenchmark of LDS

Clocks from one `ds_read_b128` to the next on a gfx950, measured by {TUTORIALS}.

{chr(10).join(lds())}

## Beside efficiencies measured in loops

Share of the loop's clocks in which the matrix cores work, by thread traces on an MI355X ({TUTORIALS}). The loops
are [rebuilt](cdna_streams.py) after the descriptions there, so the order of single instructions is ours. The
largest difference is {best:.1%}.

{chr(10).join(efficiencies())}

One loop with tiles of other shapes, where what the loads have in flight limits it:

{chr(10).join(tiles())}

How much the guesses matter. Three things were chosen after a first look at what came out: `barrier`, which is 8
because the ping-pong of {REPORTED[4].percent}% came out lower with 16; a load's latency, which counts from its issue,
as the source of its figure counts it, and not from when the vector L1 takes it (v5 had 50.2% then); and the stages of
the tiles, which are as many as LDS has room for (with two, 128x64 is bound by latency at 36%).

{chr(10).join(guesses())}

Eight waves in ping-pong, one turn of two k-blocks:

```text
{drawn}
```

## AITER's kernels

The same model over code objects that AITER ships for gfx950, as they are. No one has published what these reach
inside their loops; 1591 TFLOP/s is reported for the first at 8192³.

{chr(10).join(objects())}

## What it does not reproduce

- **HipKittens' consumers.** Waves that only load cost registers, so tiles are smaller. The model has the same
  order, and is too low for the larger tile. Neither the order of instructions in those kernels nor, beside these
  numbers, their tiles are published: the tiles are what such shares have room for, and the rebuilt loops read all of
  a k-block before they multiply:

{chr(10).join(specialised())}

- **FlyDSL's attention** (lazy rescale 86.3%, eager 61.2%): its instruction stream is not published in enough
  detail to be rebuilt.
- **fav3 and fav4** come out too high: reads of three registers beside returns of LDS contend for ports of the
  register file, which the tutorials measure at some percent, and the chain of the softmax is not in the rebuilt
  loops.
- **HipKittens' four waves against eight** (bf16 1507 and 1580 TFLOP/s, f8 3303 and 3066): the model has {woven:.1%}
  and {taking_turns:.1%} for bf16. Differences of a few percent between kernels at the power limit are of the clock,
  which the model does not know.
- **MXFP4 in the tutorials** (92.4%): scales go through LDS by a route of their own, which was not rebuilt.

## Orders found

`tilekit.cycles.order.best_order` gives a turn's instructions to CP-SAT (OR-tools: `pip install
'tilekit-gpu[schedule]'`): waits, barriers and branches stay where they are, memory instructions of a kind in their
order, registers are written and read as before, and each unit does one thing at a time. It proves a bound for one turn
by itself, and what it finds is replayed beside the given order; a slower one is not taken. What an order computes is
not changed: the emulator gives the same numbers for random turns before and after. Loads land in 100 clocks here, and
the solver had 20 s:

{chr(10).join(orders())}

## Fraction of peak

Cubes in bf16 on {CUS} compute units: tiles of 256x256, the ping-pong's loop, and {LADDER_ENDS} clocks a tile
before and after the loop, as one of the tutorials' kernels needs. The ladder's last step, {LADDER_TFLOPS} TFLOP/s
at 4096x4096x8192 with {LADDER_BUSY:.2%} in its loop, ran at {ladder_mhz():.0f} MHz by this count: the chip is
limited by power, not by its loop.

{chr(10).join(cubes())}

1,700 TFLOP/s for 8192³ need {needed:.0f} MHz with this loop. What the model says can still be won in clocks is
the beginning and the end of a tile, {ends:.1%} of 8192³.

## What is not known

- every figure marked **assumed**, above all `barrier` and `branch`, of which a loop has one or two a region;
- gfx942's memory: its figures are gfx950's where no one has published others;
- the latency of loads under load: 1000 clocks hold while L2 has most of the data; `--load-latency` tries others;
- contention for the ports of the register file, instruction fetch, address conflicts in the vector L1, the
  translation of addresses;
- loops that spin on counters in LDS: how often they go round must be given (`--turns`).
"""


def check(folder: Path) -> None:
    """Replay AITER's code objects, and compare with what the page says of them."""
    for file, _, taken, k_tiles, clocks, share in AITER:
        path = folder / file
        if not path.exists():
            print(f"{file}: not there")
            continue
        text = decode(path.read_bytes(), exact=False)
        report = replay_loop(text, k_tiles=k_tiles, taken=dict.fromkeys(taken, True))
        print(f"{file}: {report.clocks:.0f} clocks, {report.utilisation:.3f}")
        if (round(report.clocks), round(report.utilisation, 3)) != (clocks, share):
            sys.exit(f"the page has {clocks} and {share}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--aiter", type=Path)
    parser.add_argument("--orders", action="store_true")
    given = parser.parse_args()
    if given.aiter:
        check(given.aiter)
    if given.orders:
        for what, loop in solved():
            order = best_order(loop, seconds=20, load_latency=100)
            print(f"{what}: {order.found} {order.bound} {order.before:.0f} {order.after:.0f}")
    PAGE.write_text(page(), "utf-8")

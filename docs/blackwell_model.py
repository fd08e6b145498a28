"""Write ``blackwell-model.md``: ``python docs/blackwell_model.py`` after the picker's model changes.

Every number of the page is computed here, from the figures of `tilekit.kernels.matmul.sm_100a.model` and of the
target; only what others have reported stands in `REPORTS`. The tests fail when the page is out of date.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilekit import BlackwellConfig, MatmulSpec
from tilekit.bench.scaled import ScaledWorkload
from tilekit.kernels.matmul.estimates import Grid, Grids
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.sm_100a import model
from tilekit.targets import SM_90A, SM_100A

PAGE = Path(__file__).resolve().with_name("blackwell-model.md")
SPEC = MatmulSpec()
SIZES = (4096, 8192)
NOMINAL = 2250
"""Dense bf16 TFLOP/s of a B200 as NVIDIA gives it."""

H200_MHZ = {"in a burst of 6 ms": 1744, "sustained": 1590}
"""Clocks that an H200 holds on random numbers while its tensor cores are busy (benchmarks/README.md)."""

REPORTS = (
    (4096, "Modular, 2-SM MMA, CLC, two accumulators", 1772, "Modular, Matrix Multiplication on Blackwell, part 4"),
    (4096, "cuBLAS, beside it", 1763, "the same posts, parts 1 and 2"),
    (4096, "ThunderKittens", 1540, "its README"),
    (4096, "cuBLAS", 1359, "gau-nernst/learn-cuda, README"),
    (8192, "cuBLAS", 1414, "gau-nernst/learn-cuda, README"),
    (8192, "2-SM persistent kernel by hand", 1283, "gau-nernst/learn-cuda, README"),
)
"""bf16 matmuls on a B200: size, who, TFLOP/s, where it is reported."""

SCALED_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 6144, 4096))
SCALED_REPORTS = {
    ("mxfp8", (16384, 6144, 4096)): (2545, "CUTLASS in vLLM, 8 bits with scales of rows, PR 19566"),
    ("nvfp4", (16384, 6144, 4096)): (3904, "CUTLASS in vLLM before it was tuned, PR 20646"),
}
"""TFLOP/s of products of 8 and 4 bits on a B200, and who reports them."""


@dataclass(frozen=True)
class Prediction:
    """One config on one cube.

    Attributes
    ----------
    n, config, grid, clocks
        Extent, config, how the tiles fall, and the model's clocks.
    """

    n: int
    config: BlackwellConfig
    grid: Grid
    clocks: model.LaunchClocks

    @classmethod
    def of(cls, n: int, config: BlackwellConfig) -> Prediction:
        """Ask the model."""
        one = model.collect([config], SPEC)
        resident = model.resident(one, SM_100A.multiprocessors)
        (grid,) = Grids.of(one, SPEC, m=n, n=n, k=n, batches=1, resident=resident).each
        return cls(n, config, grid, model.LaunchClocks.of(config, SPEC, grid))

    @property
    def tile(self) -> str:
        """Of an instruction, and the cluster."""
        rows, columns = self.config.tile
        return f"{rows * self.config.cta_group}x{columns}, cluster {self.config.cluster[0]}x{self.config.cluster[1]}"

    @property
    def flop_per_clock(self) -> float:
        """Of an SM's tensor core, at the model's rate for this instruction."""
        rows, columns = self.config.tile
        return 2 * rows * columns * self.config.k_block(SPEC.a_dtype) / self.clocks.block.tensor

    @property
    def ideal(self) -> float:
        """Clocks if every tensor core were busy to the end."""
        return 2 * self.n**3 / (SM_100A.multiprocessors * self.flop_per_clock)

    @property
    def busy(self) -> float:
        """Clocks that the tensor core of an SM needs that has a tile in every wave."""
        return self.grid.waves * self.grid.k_blocks * self.clocks.block.tensor

    @property
    def fractions(self) -> tuple[float, float, float]:
        """Of peak: what the waves leave, the main loops, and the ends of the launch."""
        return tuple(self.ideal / clocks for clocks in (self.busy, self.clocks.loops, self.clocks.total))  # type: ignore[return-value]

    def tflops(self, mhz: float) -> float:
        """At a clock."""
        return 2 * self.n**3 / (self.clocks.total / (mhz * 1e6)) / 1e12


def predictions(n: int) -> list[Prediction]:
    """Whole pairs, what the picker takes, and a tile with fewer empty places in the last wave."""
    picked = pick(SPEC, SM_100A, m=n, n=n, k=n)
    assert isinstance(picked, BlackwellConfig)
    configs = (BlackwellConfig(), picked, BlackwellConfig(tile=(128, 192)))
    return [Prediction.of(n, config) for config in dict.fromkeys(configs)]


def peak(mhz: float = SM_100A.boost_mhz) -> float:
    """TFLOP/s of all tensor cores at a clock."""
    return SM_100A.multiprocessors * Prediction.of(SIZES[0], BlackwellConfig()).flop_per_clock * mhz / 1e6


def figures() -> Iterator[str]:
    """What the model is made of."""
    fastest = Prediction.of(SIZES[0], BlackwellConfig())
    per_sm = model.L2_BYTES_PER_CLOCK / SM_100A.multiprocessors
    yield "| figure | value | from |"
    yield "|---|--:|---|"
    for name, value, source in (
        ("multiprocessors, clock", f"{SM_100A.multiprocessors}, {SM_100A.boost_mhz} MHz", "published"),
        (
            "tensor core, m256n256 of a pair",
            f"{fastest.flop_per_clock:.0f} FLOP a clock and SM",
            "measured by SemiAnalysis on a B200: 128 clocks an instruction; the same for every type of 32 bytes of K",
        ),
        ("so the peak", f"{peak():.0f} TFLOP/s", f"their product; {NOMINAL} by NVIDIA"),
        ("shared memory", f"{model.SHARED_BYTES_PER_CLOCK} B a clock and SM", "measured, by the same"),
        (
            "L2, the whole chip",
            f"{model.L2_BYTES_PER_CLOCK} B a clock, {per_sm:.0f} an SM",
            "**assumed**: what an H200 delivers",
        ),
        ("into one SM", f"{model.SM_L2_BYTES_PER_CLOCK} B a clock", "**assumed**: as on an H200"),
        (
            "shared memory beyond its rate",
            f"{model.SHARED_RATE_COST:.1%} a byte and clock",
            "**assumed**: scaled so that pairs gain what they were reported to",
        ),
        ("accumulators out, another tile behind", f"{model.STORE_BYTES_PER_CLOCK} B a clock", "**assumed**: an H200's"),
        ("the last tile's", f"{model.LAST_STORE_BYTES_PER_CLOCK} B a clock", "**assumed**: an H200's"),
        (
            "a launch; a cluster; the last claim",
            f"{model.LAUNCH_CLOCKS}; {model.CLUSTER_CLOCKS}; {model.CLAIM_CLOCKS} clocks",
            "**assumed**: an H200's; guesses",
        ),
    ):
        yield f"| {name} | {value} | {source} |"


def tiles() -> Iterator[str]:
    """Clocks of one CTA's tile, by resource."""
    resources = "tensor core | shared memory: operands | TMA: writes there | TMA: L2 | TMA: into the SM"
    yield f"| | tile | k-blocks | {resources} | stores |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for n in SIZES:
        for p in predictions(n):
            block, count = p.clocks.block, p.grid.k_blocks
            cells = [block.tensor, block.operands, block.writes, block.l2, block.port]
            most = max(cells)
            shown = [f"**{count * c:.0f}**" if c == most else f"{count * c:.0f}" for c in cells]
            yield f"| {n}³ | {p.tile} | {count} | {' | '.join(shown)} | {p.clocks.store:.0f} |"


def launches() -> Iterator[str]:
    """Where the clocks of a launch go."""
    yield "| | tile | waves | of peak after waves | after main loops | after both ends | clocks | µs | TFLOP/s |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for n in SIZES:
        for p in predictions(n):
            clusters = p.grid.tiles / p.config.cluster_size
            room = model.resident(model.collect([p.config], SPEC), SM_100A.multiprocessors)[0] // p.config.cluster_size
            after = " | ".join(f"{f:.1%}" for f in p.fractions)
            yield (
                f"| {n}³ | {p.tile} | {clusters:.0f} / {room} = {clusters / room:.2f} → {p.grid.waves} | {after} | "
                f"{p.clocks.total:.0f} | {p.clocks.total / SM_100A.boost_mhz:.1f} | {p.tflops(SM_100A.boost_mhz):.0f} |"
            )


def clocks() -> Iterator[str]:
    """The best prediction at the clocks that power leaves."""
    share = {name: mhz / SM_90A.boost_mhz for name, mhz in H200_MHZ.items()}
    held = "".join(f" {name}: at {SM_100A.boost_mhz * s:.0f} MHz |" for name, s in share.items())
    yield f"| | at {SM_100A.boost_mhz} MHz |{held}"
    yield "|---|--:|" + "--:|" * len(share)
    for n in SIZES:
        p = best(n)
        cells = [p.tflops(SM_100A.boost_mhz * s) for s in (1.0, *share.values())]
        yield f"| {n}³, {p.tile} | " + " | ".join(f"{c:.0f}" for c in cells) + " |"


def reports() -> Iterator[str]:
    """What others measured, beside the prediction."""
    yield f"| | who | TFLOP/s | of {peak():.0f} | of this model's | where |"
    yield "|---|---|--:|--:|--:|---|"
    for n, who, tflops, where in REPORTS:
        predicted = best(n).tflops(SM_100A.boost_mhz)
        yield f"| {n}³ | {who} | {tflops} | {tflops / peak():.0%} | {tflops / predicted:.2f} | {where} |"


def scaled_prediction(kind: str, shape: tuple[int, int, int]) -> tuple[BlackwellConfig, float]:
    """What the picker takes for a block-scaled product, and its TFLOP/s by the model at the published clock."""
    workload = ScaledWorkload(*shape, scaled=kind)
    spec = workload.spec_on("sm_100a")
    m, n, k = shape[0], shape[1], shape[2] // spec.a_dtype.packed
    config = pick(spec, SM_100A, m=m, n=n, k=k)
    assert isinstance(config, BlackwellConfig)
    one = model.collect([config], spec)
    resident = model.resident(one, SM_100A.multiprocessors)
    (grid,) = Grids.of(one, spec, m=m, n=n, k=k, batches=1, resident=resident).each
    total = model.LaunchClocks.of(config, spec, grid).total
    return config, workload.flops / (total / (SM_100A.boost_mhz * 1e6)) / 1e12


def scaled() -> Iterator[str]:
    """Block-scaled products, beside what others report of such a shape."""
    yield "| | format | tile | TFLOP/s | of peak | reported | of this model's | by |"
    yield "|---|---|---|--:|--:|--:|--:|---|"
    for shape in SCALED_SHAPES:
        for kind in ("mxfp8", "mxfp4", "nvfp4"):
            config, tflops = scaled_prediction(kind, shape)
            most = peak() * (2 if kind == "mxfp8" else 4)
            rows, columns = config.tile
            tile = f"{rows * config.cta_group}x{columns}, cluster {config.cluster[0]}x{config.cluster[1]}"
            who = SCALED_REPORTS.get((kind, shape))
            theirs = "| | |" if who is None else f"| {who[0]} | {who[0] / tflops:.2f} | {who[1]}"
            what = f"{'x'.join(map(str, shape))} | {kind.upper()} | {tile}"
            yield f"| {what} | {tflops:.0f} | {tflops / most:.0%} {theirs} |"


def best(n: int) -> Prediction:
    """The quickest of a size's predictions."""
    return min(predictions(n), key=lambda p: p.clocks.total)


def limits(n: int) -> str:
    """What limits a size, in words."""
    p = best(n)
    waves, loops, total = p.fractions
    block = p.clocks.block
    names = {
        "the tensor core": block.tensor,
        "shared memory": block.operands,
        "L2": block.l2,
        "the way into the SM": block.port,
    }
    slowest = max(names, key=lambda name: names[name])
    lost = {
        "waves that do not fill the chip": 1 - waves,
        f"main loops, which wait for {slowest}": waves - loops,
        "the beginning and the end of the launch": loops - total,
    }
    parts = ", ".join(f"{loss:.1%} of peak in {name}" for name, loss in lost.items() if loss > 0.0005)
    return f"**{n}³** reaches {total:.1%} of peak, {p.tflops(SM_100A.boost_mhz):.0f} TFLOP/s. It loses {parts}."


def page() -> str:
    """The whole page."""
    modular = REPORTS[0][2]
    others = sorted(tflops for n, _, tflops, _ in REPORTS if n == SIZES[0])[:2]
    p = best(SIZES[0])
    whole = Prediction.of(SIZES[0], BlackwellConfig())
    slowest = modular / (whole.fractions[0] * peak(1.0))
    rows = {name: "\n".join(lines()) for name, lines in TABLES.items()}
    return _wrapped(f"""# A paper model of the Blackwell matmul

How fast the bf16 matmul should be on a B200, from published figures and from what an H200 does. **Nothing on this
page has been measured on a B200 by this project.** `python docs/blackwell_model.py` writes it, from the model by
which the picker chooses ([`sm_100a/model.py`](../tilekit/kernels/matmul/sm_100a/model.py)); what is known of
the kernel beside its speed is on [another page](blackwell.md).

## What it is made of

{rows["figures"]}

## A tile

Clocks that each resource of an SM needs for the tile of one CTA, each as if nothing else took time; the largest
bounds the main loop. TMA's writes go through shared memory beside the operand reads. Where two accumulators
alternate, the stores of a tile run while the next one is multiplied.

{rows["tiles"]}

What a pair with 256 rows and columns fetches takes {whole.clocks.block.l2 / whole.clocks.block.tensor:.0%} of the
time of its products if L2 delivers what an H200's does; clusters of two pairs share an operand, and need
{p.clocks.block.l2 / p.clocks.block.tensor:.0%}. A tile that is any smaller waits for L2 without sharing.

## A launch

{rows["launches"]}

*After waves*: the tensor cores' clocks if every wave ran at full rate, with the places that the last wave leaves
empty, and those that clusters leave empty in a GPC. *After main loops*: with what bounds them. *After both ends*:
with the launch, the filling of the ring, and the last stores.

- {limits(SIZES[0])}
- {limits(SIZES[1])}

So by this model the small cube is limited by **wave quantisation**, and then by what every launch costs; the large
one by the rate of L2, and by the clock.

## Clock and power

The model counts clocks; what a clock lasts is for the power limit to say. An H200 holds {H200_MHZ["sustained"]} of
its {SM_90A.boost_mhz} MHz while its tensor cores multiply random numbers, and {H200_MHZ["in a burst of 6 ms"]} for
some milliseconds ([benchmarks](../benchmarks/README.md)). If a B200's clock fell by as much:

{rows["clocks"]}

## Beside what others report

{rows["reports"]}

{modular} TFLOP/s for {SIZES[0]}³ are {modular / NOMINAL:.0%} of NVIDIA's {NOMINAL} and {
        modular / p.tflops(SM_100A.boost_mhz):.2f} of what the model gives at {
        SM_100A.boost_mhz
    } MHz. With tiles of 256x256, four
waves allow {whole.fractions[0]:.1%} of peak, so if it used those the chip ran at {slowest:.0f} MHz at least. Two
reports for the same size are {1 - others[1] / modular:.0%} and {1 - others[0] / modular:.0%} lower, one of them of
cuBLAS: clock, power limit, operands and the way of timing differ by more than kernels do, and the reports do not
say all of them. That one agrees with the model to a few percent confirms neither.

## Block-scaled products

The same for [block-scaled products](scaled-matmul.md) into bf16, whose peaks are {2 * peak():.0f} TFLOP/s of 8 bits and
{4 * peak():.0f} of 4. A tile of 256 columns has one accumulator beside its scales, so its stores are not hidden.

{rows["scaled"]}

Neither report is of the same thing: one has scales of rows and not of blocks, the other is of a kernel before its
authors tuned it. What `tcgen05.cp` takes of the tensor pipe, and the power limit, are not in the model, so what it
gives is an upper bound.

## What is not known

- every figure marked **assumed**, above all what L2 delivers; crossing from one die to the other is not in it;
- what multicast costs: a byte counts in the SM that fetches it, and not in those that receive it as well;
- the clock under load, and so every TFLOP/s here;
- how many multiprocessors a GPC has, which says how many clusters of more than a pair run at once ({model.GPC_SMS}
assumed);
- how long a claim takes, and in which order claimed tiles come;
- whether the kernel reaches these rates at all: it has been assembled and emulated, and never timed on a B200.
""")


def _wrapped(text: str) -> str:
    """Paragraphs and lists with lines of one width, whatever numbers stand in them."""
    parts = []
    for part in text.strip().split("\n\n"):
        if not part.startswith(("|", "#")):
            lines = [" ".join(item.split()) for item in re.split(r"\n(?=- )", part)]
            part = "\n".join(
                textwrap.fill(
                    line,
                    120,
                    subsequent_indent="  " if line.startswith("- ") else "",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for line in lines
            )
        parts.append(part)
    return "\n\n".join(parts) + "\n"


TABLES = {
    "figures": figures,
    "tiles": tiles,
    "launches": launches,
    "clocks": clocks,
    "reports": reports,
    "scaled": scaled,
}

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Draw the pictures of the documentation from the objects they show: ``python docs/pictures.py``, or ``--check``.

Kernels, layouts and the trace are drawn from kernels traced and emulated as this runs, the roofline and the ratios from
the measurements in ``benchmarks/results``. ``--check`` writes nothing, and exits with 1 if a picture is out of date.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilekit
from tilekit.kernels.picture import svg as kernel_svg
from tilekit.runtime.trace import TileTrace
from tilekit.targets.ceilings import CEILINGS
from tilekit.tensor import AddressSpace, Layout, Swizzle, TileTensor

DOCS = Path(__file__).resolve().parent
FOLDER = DOCS / "pictures"
RESULTS = DOCS.parent / "benchmarks" / "results" / "h200-2026-11-22-random-3.md"
OURS, PEER = "#d1495b", "#4e79a7"
STYLE = """
text { font-family: ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2328;
  font-size: 12px; }
.title { font-size: 15px; font-weight: 600; } .soft { fill: #57606a; font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.rule { stroke: #8c959f; stroke-opacity: .35; } .roof { stroke: #57606a; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .soft { fill: #9198a1; } .roof { stroke: #9198a1; }
}
"""


def document(width: int, height: int, title: str, under: str, parts: list[str]) -> str:
    """Return an SVG with a title and a line below it."""
    head = [f'<text class="title" x="16" y="24">{escape(title)}</text>', text(16, 42, under, "soft")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        + "\n".join([*head, *parts])
        + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, kind: str = "rule") -> str:
    """A straight line."""
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


# -- kernels, layouts, a trace ----------------------------------------------------------------------------------------


def hopper() -> str:
    """The default matmul for sm_90a."""
    return kernel_svg(tilekit.compile(tilekit.MatmulSpec(), "sm_90a").shown())


def blackwell() -> str:
    """The default matmul for sm_100a."""
    return kernel_svg(tilekit.compile(tilekit.MatmulSpec(), "sm_100a").shown())


def swizzle(span: int) -> str:
    """Eight rows of bf16 in 16-byte chunks, under a swizzle, coloured by bank."""
    columns = span // 2
    tile = TileTensor(Layout.row_major(8, columns), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(span))
    return tile.vectorize(1, 8).svg("bank")


def trace() -> str:
    """What each role of a CTA did when: a matmul of 512x512x512 on the emulator, in steps of its schedule."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((512, 512)).astype(ml_dtypes.bfloat16) for _ in range(2))
    config = tilekit.MatmulConfig(tile=(128, 128), cluster=(1, 1), consumers=2, profile_tiles=16)
    plan = tilekit.compile(tilekit.MatmulSpec(), "sm_90a", config).bind(a, b.T, multiprocessors=4, seed=3)
    plan()
    return timeline(plan.trace())


def timeline(found: TileTrace) -> str:
    """Draw a trace: a band for each CTA, a row for each of its activities."""
    records = found.records
    filled = records[records["turn"] > 0]
    first, last = int(filled["begin"].min()), int(filled["end"].max())
    left, width, row = 120, 640, 14
    hues = (PEER, "#59a14f", "#f28e2b", "#b07aa1")
    parts, y = [], 64
    for cta in range(records.shape[0]):
        if not (records[cta]["turn"] > 0).any():
            continue
        parts.append(text(16, y + 11, f"CTA {cta}"))
        for lane, name in enumerate(found.lanes):
            done = records[cta, lane][records[cta, lane]["turn"] > 0]
            if not done.size:
                continue
            parts.append(text(left - 8, y + 11, name, "soft end"))
            for tile, one in enumerate(done):
                x, to = (left + width * (int(one[key]) - first) / (last - first) for key in ("begin", "end"))
                fill = f'fill="{hues[lane % len(hues)]}" fill-opacity="{0.9 if tile % 2 else 0.6}"'
                tip = f"<title>{name}, tile {tile}: {int(one['end']) - int(one['begin'])} {found.unit}</title>"
                parts.append(
                    f'<rect {fill} x="{x:.1f}" y="{y}" width="{max(1.0, to - x - 0.8):.1f}" '
                    f'height="{row - 3}">{tip}</rect>'
                )
            y += row
        y += 10
    under = f"{last - first:,} {found.unit}, from left to right; each box is an output tile, light and dark in turn"
    return document(left + width + 24, y + 6, f"{found.kernel}: who worked on which tile when", under, parts)


# -- measurements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A measured case: its name and class, our TFLOP/s and GB/s, and the peer's time by ours."""

    name: str
    types: str
    tflops: float
    gigabytes: float
    ratio: float


def rows() -> list[Row]:
    """The cases of the three random seeds."""
    pattern = r"^\| (\S.*?) \| random \| (.*?) \| [\d.]+ \| (\d+) \| (\d+) \| [\d.]+ \| \*\*([\d.]+)\*\*"
    found = re.findall(pattern, RESULTS.read_text("utf-8"), re.MULTILINE)
    return [Row(name, types, float(t), float(g), float(ratio)) for name, types, t, g, ratio in found]


def ratios() -> str:
    """Every case's time with cuBLAS by tilekit's, sorted."""
    cases = sorted(rows(), key=lambda case: case.ratio)
    left, top, width, height = 52, 62, 720, 240
    low, high = 0.7, 3.0

    def y(ratio: float) -> float:
        part = math.log(min(max(ratio, low), high) / low) / math.log(high / low)
        return top + height * (1 - part)

    each = width / len(cases)
    parts = []
    for tick in (0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0):
        parts.append(line(left, y(tick), left + width, y(tick)))
        parts.append(text(left - 6, y(tick) + 4, f"{tick:g}", "soft end"))
    for better, colour in ((False, OURS), (True, "#59a14f")):
        at = [(left + (index + 0.5) * each, y(c.ratio)) for index, c in enumerate(cases) if (c.ratio >= 1) is better]
        bars = "".join(f"M{a:.1f} {b:.1f}V{y(1.0):.1f}" for a, b in at)
        parts.append(f'<path stroke="{colour}" stroke-width="{each - 0.3:.2f}" d="{bars}"/>')
    parts.append(line(left, y(1.0), left + width, y(1.0), "roof"))
    mean = math.exp(sum(math.log(case.ratio) for case in cases) / len(cases))
    behind = sum(case.ratio < 1 for case in cases)
    words = f"{len(cases)} products drawn at random, one H200; geometric mean {mean:.3f}, {behind} below 1"
    parts.append(text(left, top + height + 20, "slowest beside cuBLAS", "soft"))
    parts.append(text(left + width, top + height + 20, "quickest", "soft end"))
    return document(left + width + 24, top + height + 34, "cuBLAS's time by tilekit's, sorted", words, parts)


def roofline() -> str:
    """Every case by its FLOP per byte, with the ceilings that an H200 sustains."""
    cases = [case for case in rows() if case.tflops >= 3]  # they are measured in whole TFLOP/s
    ceilings = CEILINGS["H200"]
    bandwidth = 1000 * ceilings.read_tbps
    left, top, width, height = 60, 62, 700, 380
    xs, ys = (1.0, 6000.0), (1.0, 2000.0)

    def x(value: float) -> float:
        return left + width * math.log(value / xs[0]) / math.log(xs[1] / xs[0])

    def y(value: float) -> float:
        return top + height * (1 - math.log(value / ys[0]) / math.log(ys[1] / ys[0]))

    parts = []
    for tick in (1, 10, 100, 1000):
        parts += [
            line(x(tick), top, x(tick), top + height),
            text(x(tick), top + height + 16, f"{tick:,}", "soft middle"),
        ]
        parts += [line(left, y(tick), left + width, y(tick)), text(left - 6, y(tick) + 4, f"{tick:,}", "soft end")]
    for bits, name in ((16, "bf16"), (8, "fp8")):
        level = ceilings.sustained[bits]
        knee = level * 1000 / bandwidth
        start = max(xs[0], ys[0] * 1000 / bandwidth)
        points = [(start, start * bandwidth / 1000), (knee, level), (xs[1], level)]
        path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
        parts.append(f'<path class="roof" d="M{path}"/>')
        parts.append(text(left + width, y(level) - 5, f"{name} {level:,.0f} TFLOP/s", "soft end"))
    for colour, marks in (
        (PEER, [case.tflops / case.ratio for case in cases]),
        (OURS, [case.tflops for case in cases]),
    ):
        at = [case.tflops * 1000 / case.gigabytes for case in cases]
        inside = [(x(a), y(b)) for a, b in zip(at, marks, strict=True) if a >= xs[0] and b >= ys[0]]
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in inside)
        parts.append(
            f'<path stroke="{colour}" stroke-opacity=".7" stroke-width="5" stroke-linecap="round" d="{dots}"/>'
        )
    for index, (name, colour) in enumerate((("tilekit", OURS), ("cuBLAS", PEER))):
        at = left + 16 + 90 * index
        parts.append(f'<circle fill="{colour}" cx="{at}" cy="{top + 16}" r="5"/>')
        parts.append(text(at + 10, top + 20, name))
    parts.append(text(left + width / 2, top + height + 34, "FLOP per byte of operands and result", "soft middle"))
    under = f"TFLOP/s of {len(cases)} products drawn at random, those of 3 or more; memory {bandwidth:,.0f} GB/s"
    return document(left + width + 24, top + height + 46, "Roofline of one H200", under, parts)


PICTURES: dict[str, Callable[[], str]] = {
    "kernel-hopper": hopper,
    "kernel-blackwell": blackwell,
    "swizzle-64": lambda: swizzle(64),
    "trace": trace,
    "ratios": ratios,
    "roofline": roofline,
}


def main(arguments: Any = None) -> int:
    """Draw, or check, every picture."""
    check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name, draw in PICTURES.items():
        path, drawn = FOLDER / f"{name}.svg", draw()
        if not path.exists() or path.read_text("utf-8") != drawn:
            stale.append(path.name)
            if not check:
                path.write_text(drawn, "utf-8")
    print(f"{len(stale)} of {len(PICTURES)} {'out of date' if check else 'drawn'}: {', '.join(stale) or 'none'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

"""Measured cases as a roofline: an SVG with every case and library, and the ceilings of the chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final
from xml.etree import ElementTree

from tilekit.bench.entrants import OURS
from tilekit.bench.matmul import Case, Result
from tilekit.bench.record import Record
from tilekit.targets.ceilings import CEILINGS, Ceilings

__all__ = ["roofline_svg"]


_WIDTH, _HEIGHT = 1120, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 84, 64
_OURS_COLOUR: Final = "#d1495b"
_PEER_COLOURS: Final = ("#1d3557", "#2a9d8f", "#8a6fb0", "#b5832e", "#6c757d")
_INK, _FAINT, _RULE = "#22252b", "#7c838f", "#e4e7ec"
_FONT: Final = "Inter, Helvetica, Arial, sans-serif"
_NAMES: Final = {16: "bf16", 8: "fp8"}


def roofline_svg(record: Record) -> str:
    """Return a roofline of a run: FLOP per byte against TFLOP/s, both logarithmic, a mark for each case and library.

    Bytes are those of the operands and the result, each counted once, so a mark may lie above the memory roof only if a
    cache helps. Lines are the ceilings of the chip where they are known. A mark's tooltip names its case.
    """
    marks = [(case, result) for case in record.cases for result in case.results if result.tflops is not None]
    ceilings = next((known for name, known in CEILINGS.items() if name in record.about["device"]), None)
    names = list(dict.fromkeys(result.name for _, result in marks))
    # The order of colours is that of the first case's entrants, tilekit drawn last so that nothing covers it.
    names.sort(key=lambda name: name == OURS)
    axes = _Axes.around(marks, ceilings)
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {_HEIGHT}",
            "width": str(_WIDTH),
            "height": str(_HEIGHT),
            "font-family": _FONT,
            "font-size": "13",
            "fill": _INK,
        },
    )
    _add(svg, "rect", width=_WIDTH, height=_HEIGHT, fill="#ffffff")
    _text(svg, _LEFT, 34, f"Roofline: {len(record.cases)} cases on {record.about['device']}", size=19, weight="600")
    details = ", ".join(f"{key} {value}" for key, value in record.about.items() if key not in ("device", "capability"))
    _text(svg, _LEFT, 56, f"sustained, median over rounds; {details}", fill=_FAINT)
    _grid(svg, axes)
    if ceilings is not None:
        drawn = sorted({case.bits for case, _ in marks} & ceilings.sustained.keys())
        for bits in drawn:
            _roof(svg, axes, ceilings, bits)
        if drawn:
            _slope_label(svg, axes, ceilings, ceilings.sustained[drawn[0]])
    for case in record.cases:
        _tie(svg, axes, case)
    colours = dict(zip((name for name in names if name != OURS), cycle(_PEER_COLOURS), strict=False))
    colours[OURS] = _OURS_COLOUR
    draws = dict(zip((name for name in names if name != OURS), cycle(_PEER_SHAPES), strict=False))
    draws[OURS] = _disc
    for name in names:
        group = _add(svg, "g", **{"class": "marks", "data-library": name})
        for case, result in marks:
            if result.name == name:
                assert result.tflops is not None
                x, y = axes.x(case.intensity), axes.y(result.tflops)
                mark = draws[name](group, x, y, colours[name])
                _add(mark, "title").text = _tooltip(case, result)
    _legend(svg, names, colours, draws)
    ElementTree.indent(svg, " ")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


@dataclass(frozen=True, slots=True)
class _Axes:
    """Logarithmic axes over decades-and-parts that hold every mark."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    @classmethod
    def around(cls, marks: Sequence[tuple[Case, Result]], ceilings: Ceilings | None) -> _Axes:
        xs = [case.intensity for case, _ in marks] or [1.0, 1000.0]
        ys = [result.tflops for _, result in marks if result.tflops] or [1.0, 1000.0]
        if ceilings is not None:
            ys += [ceilings.burst[case.bits] for case, _ in marks if case.bits in ceilings.burst]
        # Room on the right, where the ceilings have their names.
        return cls(min(xs) / 1.4, max(xs) * 2.6, min(ys) / 1.5, max(ys) * 1.35)

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(value / self.low_x) / math.log(self.high_x / self.low_x)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return _TOP + height * (1 - math.log(value / self.low_y) / math.log(self.high_y / self.low_y))


def _ticks(low: float, high: float) -> Iterator[float]:
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in (1, 2, 5):
            if low <= digit * 10.0**exponent <= high:
                yield digit * 10.0**exponent


def _grid(svg: ElementTree.Element, axes: _Axes) -> None:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in _ticks(axes.low_x, axes.high_x):
        x = axes.x(value)
        _add(svg, "line", x1=x, y1=_TOP, x2=x, y2=bottom, stroke=_RULE)
        _text(svg, x, bottom + 20, f"{value:g}", anchor="middle", fill=_FAINT)
    for value in _ticks(axes.low_y, axes.high_y):
        y = axes.y(value)
        _add(svg, "line", x1=_LEFT, y1=y, x2=right, y2=y, stroke=_RULE)
        _text(svg, _LEFT - 8, y + 4, f"{value:g}", anchor="end", fill=_FAINT)
    _text(svg, (_LEFT + right) / 2, _HEIGHT - 16, "arithmetic intensity, FLOP per byte", anchor="middle")
    upright = _text(svg, 0, 0, "TFLOP/s", anchor="middle")
    upright.set("transform", f"translate(22 {(_TOP + bottom) / 2:.1f}) rotate(-90)")


def _roof(svg: ElementTree.Element, axes: _Axes, ceilings: Ceilings, bits: int) -> None:
    """Draw the memory's slope up to the sustained ceiling, that ceiling, and the burst ceiling above it, dashed."""
    ends = {}
    for style, level in (("", ceilings.sustained[bits]), ("5 5", ceilings.burst[bits])):
        knee = min(max(level / ceilings.read_tbps, axes.low_x), axes.high_x)
        start = max(axes.low_x, axes.low_y / ceilings.read_tbps)
        points = [(knee, level), (axes.high_x, level)]
        if not style:
            points.insert(0, (start, min(level, start * ceilings.read_tbps)))
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        line = _add(svg, "polyline", points=path, fill="none", stroke=_INK, **{"stroke-width": 1.4})
        if style:
            line.set("stroke-dasharray", style)
        ends[style] = axes.y(level)
    right = _WIDTH - _RIGHT - 6
    name = _NAMES[bits]
    _text(svg, right, ends[""] + 15, f"{name} {ceilings.sustained[bits]:.0f} sustained", size=11, anchor="end")
    _text(svg, right, ends["5 5"] - 5, f"{name} {ceilings.burst[bits]:.0f} burst", size=11, anchor="end", fill=_FAINT)


def _slope_label(svg: ElementTree.Element, axes: _Axes, ceilings: Ceilings, level: float) -> None:
    """Write what the memory's slope is along it, half way up to a ceiling."""
    speed = ceilings.read_tbps
    middle = math.sqrt(max(axes.low_x, axes.low_y / speed) * level / speed)
    if axes.low_x < middle < axes.high_x:
        x, y = axes.x(middle), axes.y(middle * speed)
        turn = math.degrees(math.atan2(axes.y(2 * middle * speed) - y, axes.x(2 * middle) - x))
        label = _text(svg, 0, 0, f"read {speed:g} TB/s", size=11, anchor="middle")
        label.set("transform", f"translate({x:.1f} {y:.1f}) rotate({turn:.1f}) translate(0 -7)")


def _tie(svg: ElementTree.Element, axes: _Axes, case: Case) -> None:
    """Join the marks of one case, so that they are seen to belong together."""
    levels = [result.tflops for result in case.results if result.tflops is not None]
    if len(levels) > 1:
        x = axes.x(case.intensity)
        _add(svg, "line", x1=x, y1=axes.y(min(levels)), x2=x, y2=axes.y(max(levels)), stroke="#c3c8d1")


def _legend(svg: ElementTree.Element, names: Sequence[str], colours: dict[str, str], draws: dict[str, _Draw]) -> None:
    x, y = _WIDTH - _RIGHT - 216, _HEIGHT - _BOTTOM - 18 - 22 * (len(names) - 1)
    box = {"fill": "#ffffff", "fill-opacity": "0.9", "stroke": _RULE, "rx": "4"}
    _add(svg, "rect", x=x - 18, y=y - 20, width=228, height=22 * len(names) + 16, **box)
    for row, name in enumerate(reversed(names)):
        draws[name](svg, x, y + 22 * row - 1, colours[name])
        _text(svg, x + 14, y + 22 * row + 3, name)


def _tooltip(case: Case, result: Result) -> str:
    name = f"{case.suite} {case.label}".strip()
    ratio = "" if result.ratio is None else f", tilekit {result.ratio:.3f} times as fast"
    return f"{name} {case.kind}\n{result.name}: {result.us:.2f} us, {result.tflops:.0f} TFLOP/s{ratio}"


_Draw = Callable[[ElementTree.Element, float, float, str], ElementTree.Element]


def _disc(parent: ElementTree.Element, x: float, y: float, colour: str) -> ElementTree.Element:
    style = {"fill": colour, "fill-opacity": "0.85", "stroke": "#ffffff", "stroke-width": "0.8"}
    return _add(parent, "circle", cx=x, cy=y, r=4.2, **style)


def _outline(*corners: tuple[float, float]) -> _Draw:
    """Return a function that draws a hollow polygon of these corners, in pixels from its middle."""

    def draw(parent: ElementTree.Element, x: float, y: float, colour: str) -> ElementTree.Element:
        points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
        return _add(parent, "polygon", points=points, fill="#ffffff", stroke=colour, **{"stroke-width": 1.6})

    return draw


_PEER_SHAPES: Final = (
    _outline((-4, -4), (4, -4), (4, 4), (-4, 4)),
    _outline((0, -5), (5, 4), (-5, 4)),
    _outline((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
    _outline((0, 5), (5, -4), (-5, -4)),
    _outline((-5, -2), (5, -2), (5, 2), (-5, 2)),
)


def _text(
    parent: ElementTree.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    anchor: str = "start",
    fill: str = _INK,
    weight: str = "400",
) -> ElementTree.Element:
    style = {"font-size": size, "text-anchor": anchor, "fill": fill, "font-weight": weight}
    element = _add(parent, "text", x=x, y=y, **style)
    element.text = text
    return element


def _add(parent: ElementTree.Element, tag: str, **attributes: object) -> ElementTree.Element:
    return ElementTree.SubElement(
        parent,
        tag,
        {key: f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in attributes.items()},
    )

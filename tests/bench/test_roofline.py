"""The roofline: well-formed, a mark a case and library, in the right places under the right ceilings."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench.simulated import measured
from tilekit.bench.matmul import Case
from tilekit.bench.record import Record
from tilekit.bench.roofline import roofline_svg
from tilekit.targets.ceilings import CEILINGS

NAMESPACE = "{http://www.w3.org/2000/svg}"
ABOUT = {"device": "NVIDIA H200", "tilekit": "1.0"}


def drawn(*cases: Case, device: str = "NVIDIA H200") -> ElementTree.Element:
    """The plot of these cases, parsed."""
    return ElementTree.fromstring(roofline_svg(Record({**ABOUT, "device": device}, list(cases))))


def marks(root: ElementTree.Element) -> dict[str, list[ElementTree.Element]]:
    """The marks of each library."""
    return {str(g.get("data-library")): list(g) for g in root.iter(f"{NAMESPACE}g") if g.get("class") == "marks"}


def texts(root: ElementTree.Element) -> list[str]:
    """All words in the plot."""
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def test_every_case_and_library_has_a_mark() -> None:
    """Marks are grouped by library with a tooltip each, tilekit's drawn last; a failure has none."""
    failed = measured("3x8x8", {"cuBLAS": [1.0]})
    failed.results[1].failure = "ValueError: <no> & never"
    failed.results[1].summarise(failed.flops)
    cases = [measured("1x8x8", {"cuBLAS": [1.5], "Triton": [2.0]}), measured("2x8x8", {"cuBLAS": [0.5]}), failed]
    found = marks(drawn(*cases))
    assert list(found) == ["cuBLAS", "Triton", "tilekit"]
    assert {name: len(group) for name, group in found.items()} == {"cuBLAS": 2, "Triton": 1, "tilekit": 3}
    titles = [mark.findtext(f"{NAMESPACE}title") for group in found.values() for mark in group]
    assert "decode 1x8x8 bf16→bf16 k/k\nTriton: 20.00 us, 100 TFLOP/s, tilekit 2.000 times as fast" in titles


def test_faster_is_higher_and_denser_is_further_right() -> None:
    """A mark's place follows TFLOP/s upwards and FLOP per byte to the right, both by their logarithms."""
    slow, fast = measured("1x8x8", {}), measured("2x8x8", {}, us=1.0)
    dense = measured("3x8x8", {})
    dense.bytes //= 10
    places = [(float(m.get("cx", 0)), float(m.get("cy", 0))) for m in marks(drawn(slow, fast, dense))["tilekit"]]
    assert places[0][0] == places[1][0] < places[2][0]
    assert places[1][1] < places[0][1] == places[2][1]


def test_the_ceilings_are_those_of_the_chip_and_the_types() -> None:
    """bf16 cases have the bf16 roof, 8-bit ones theirs as well; a chip that was not measured has none."""
    eight = measured("2x8x8", {}, suite="fp8")
    eight.bits = 8
    known = CEILINGS["H200"]
    words = texts(drawn(measured("1x8x8", {}), eight))
    assert f"bf16 {known.sustained[16]:.0f} sustained" in words
    assert f"fp8 {known.sustained[8]:.0f} sustained" in words
    assert "fp8 1673 sustained" not in texts(drawn(measured("1x8x8", {})))
    assert not any("sustained" in word and "bf16" in word for word in texts(drawn(measured("1x8x8", {}), device="RTX")))


def test_a_mark_at_the_roof_lies_on_the_roof() -> None:
    """A case that reads at the ceiling's speed is drawn on the memory's slope."""
    case = measured("1x8x8", {}, us=1.0)
    case.flops, case.bytes = 10**7, 4_600_000
    case.results[0].summarise(case.flops)
    dense = measured("2x8x8", {})
    root = drawn(case, dense)
    mark = marks(root)["tilekit"][0]
    x, y = float(mark.get("cx", 0)), float(mark.get("cy", 0))
    roof = next(line for line in root.iter(f"{NAMESPACE}polyline") if not line.get("stroke-dasharray"))
    (x0, y0), (x1, y1) = [tuple(map(float, point.split(","))) for point in str(roof.get("points")).split()][:2]
    assert x0 <= x <= x1
    assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.3)


def test_an_empty_run_is_a_plot_too() -> None:
    """No case leaves axes and a title."""
    assert any("0 cases" in word for word in texts(drawn()))

"""Kernels, layouts, findings and reports as pictures: every role, ring and object is drawn, and nothing is made up."""

from __future__ import annotations

import base64
import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.emulator import Device, RaceError
from tilekit.errors import ArgumentError
from tilekit.kernels.picture import svg
from tilekit.tensor import AddressSpace, Layout, Swizzle, TileTensor

ROOT = Path(__file__).parents[2]


def words(drawing: str) -> list[str]:
    """Every text of a drawing, in order."""
    return [e.text or "" for e in ElementTree.fromstring(drawing).iter() if e.tag.endswith("}text")]


def unpacked(html: str) -> str:
    """The SVG inside of what a notebook is given."""
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert found is not None
    return base64.b64decode(found[1]).decode()


def own(name: str) -> Any:
    """The kernel of an example."""
    found = runpy.run_path(str(ROOT / "examples" / name))
    return next(v for v in found.values() if type(v).__name__ == "ComposedKernel")


KERNELS = {
    "sm_90a": lambda: tilekit.compile(tilekit.MatmulSpec(), "sm_90a"),
    "sm_100a": lambda: tilekit.compile(tilekit.MatmulSpec(), "sm_100a"),
    "composed": lambda: own("gated_row_sums.py"),
    "gemv": lambda: tilekit.kernel_for(np.ones((4, 512), np.float16), np.ones((512, 256), np.float16)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_draws_what_it_has(name: str) -> None:
    """Roles with their warps, each ring with its stages and both sides, every object of shared memory: as explained."""
    kernel = KERNELS[name]()
    shown, drawing = kernel.shown(), svg(kernel.shown())
    texts = words(drawing)
    assert texts[0] == kernel.name
    for role in shown.roles:
        assert any(text.startswith(f"{role.name}: {len(role.warps)} warp") for text in texts)
    for array in shown.shared:
        assert any(text.startswith(array.name + " ") for text in texts)
        if array.name.endswith(".full") and any(a.name == array.name[:-4] + "empty" for a in shown.shared):
            ring = array.name.removesuffix(".full")
            stages = f"ring {ring}: {array.count} stage{'s' if array.count > 1 else ''}"
            assert stages in texts
            assert f"full {array.arrivals}" in texts
    assert f"{shown.shared_bytes:,} of {shown.target.shared_bytes:,} B" in texts
    assert unpacked(kernel._repr_html_()) == drawing


@pytest.mark.parametrize("name", KERNELS)
def test_boxes_lie_inside_and_apart(name: str) -> None:
    """No box leaves the picture, and shared memory's boxes follow each other as its objects do."""
    drawing = svg(KERNELS[name]().shown())
    root = ElementTree.fromstring(drawing)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [{k: float(e.attrib[k]) for k in ("x", "y", "width", "height")} for e in root.iter() if "}rect" in e.tag]
    assert all(b["x"] >= 0 and b["x"] + b["width"] <= width and b["y"] + b["height"] <= height for b in boxes)
    text = [float(e.attrib["y"]) for e in root.iter() if e.tag.endswith("}text")]
    assert max(text) < height


def test_registers_add_up() -> None:
    """The sum that the picture shows is that which `explain` prints."""
    kernel = KERNELS["sm_90a"]()
    used = re.search(r"registers (\d+) of (\d+)", kernel.explain())
    assert used is not None
    assert f"{int(used[1]):,} of {int(used[2]):,}" in words(svg(kernel.shown()))


def test_explain_as_a_page() -> None:
    """`html=True` is a document with the drawing and the words; without it nothing has changed."""
    kernel = KERNELS["sm_90a"]()
    page = kernel.explain(html=True)
    assert page.startswith("<!doctype html>")
    assert svg(kernel.shown()) in page
    assert kernel.explain().splitlines()[2] in page
    assert "<svg" not in kernel.explain()


def test_layouts_show_themselves() -> None:
    """Layouts, swizzles of them and tiles are their drawings; what has too many cells is words."""
    layout = Layout((4, 8), (8, 1))
    tile = TileTensor(Layout.row_major(8, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    for value in (layout, Swizzle.tma(32) @ Layout(64), tile):
        assert unpacked(value._repr_html_()) == value.svg()
    large = Layout.row_major(128, 64)
    assert large._repr_html_() == f"<pre>{large}, 8,192 elements</pre>"


RACE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() {
    .reg .b32 v; .reg .pred low;
    .shared .align 4 .b32 slot;
    mov.u32 v, %tid.x;
    setp.eq.u32 low, v, 0;
    @low st.shared.u32 [slot], v;
    ld.shared.u32 v, [slot];
    ret;
}
"""


def test_reports_and_findings_show_themselves() -> None:
    """A report is a table of roles and a verdict; a finding has its facts and its hint; text is escaped."""
    a = np.ones((64, 64), ml_dtypes.bfloat16)
    launch = tilekit.kernel_for(a, a).bind(a, a)
    launch()
    html = launch.report._repr_html_()
    assert "nothing found" in html
    assert all(
        f"<td>{role}</td>" in html and f"{count:,}" in html for role, count in launch.report.instructions.items()
    )
    ElementTree.fromstring(html)
    with pytest.raises(RaceError):
        Device("sm_90a").load(RACE)["k"].launch(1, 64)
    text = RACE.replace("ld.shared.u32 v, [slot];", "").replace(
        "ret;", "add.u32 v, never, 1; st.shared.u32 [slot], v; ret;"
    )
    text = text.replace(".reg .b32 v;", ".reg .b32 v, never;").replace("@low st.shared.u32 [slot], v;", "")
    report = Device("sm_90a").load(text)["k"].launch(1, 1)
    (finding,) = report.findings
    shown = finding._repr_html_()
    assert shown in report._repr_html_()
    ElementTree.fromstring(shown)
    assert finding.kind in shown


@pytest.mark.parametrize("html", ["kernel.html", 1, None, b""])
def test_html_is_asked_for_with_true(html: object) -> None:
    """A path is not where the document goes: said, with what writes it."""
    kernel = tk.portable_matmul("sm_90a")
    with pytest.raises(ArgumentError, match=r"html: given .*legal: True or False.*nearest legal: True.*TK-ARG-001"):
        kernel.explain(html=html)  # type: ignore[arg-type]

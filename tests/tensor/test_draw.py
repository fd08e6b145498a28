"""Pictures: golden text, and SVG that is well-formed, complete and coloured by what it claims."""

import itertools
import xml.etree.ElementTree as ElementTree
from collections import Counter
from textwrap import dedent

import pytest

from tilekit.tensor import AddressSpace, Layout, LayoutError, Swizzle, TileTensor, picture_of_threads

SVG = "{http://www.w3.org/2000/svg}"


def cells_of(svg, kind="cell"):
    """The rectangles of one kind, each as (x, y, classes, style)."""
    root = ElementTree.fromstring(svg)
    return [
        (float(r.get("x")), float(r.get("y")), r.get("class").split(), r.get("style"))
        for r in root.iter(SVG + "rect")
        if kind in r.get("class").split()
    ]


def golden(text):
    return dedent(text).strip("\n")


def test_text_of_a_flat_layout():
    """Rows are mode 0, columns mode 1, both numbered."""
    assert Layout.row_major(3, 4).text() == golden(
        """
        (3,4):(4,1)
             0  1  2  3
          ┌────────────
        0 │  0  1  2  3
        1 │  4  5  6  7
        2 │  8  9 10 11
        """
    )


def test_text_of_a_nested_layout():
    """Nested modes are ruled at the bounds of their innermost part."""
    assert Layout(((2, 2), (2, 3)), ((1, 4), (2, 8))).text() == golden(
        """
        ((2,2),(2,3)):((1,4),(2,8))
             0  1    2  3    4  5
          ┌───────┬───────┬──────
        0 │  0  2 │  8 10 │ 16 18
        1 │  1  3 │  9 11 │ 17 19
          ├───────┼───────┼──────
        2 │  4  6 │ 12 14 │ 20 22
        3 │  5  7 │ 13 15 │ 21 23
        """
    )


def test_text_of_one_and_three_modes():
    """A single mode is one row; further modes follow one another across."""
    assert Layout(4, 2).text() == golden(
        """
        4:2
            0 1 2 3
          ┌────────
        0 │ 0 2 4 6
        """
    )
    assert Layout((1, 2, 2), (0, 1, 5)).text() == golden(
        """
        (1,2,2):(0,1,5)
            0 1   2 3
          ┌─────┬────
        0 │ 0 1 │ 5 6
        """
    )


def test_text_of_threads():
    """Each cell names its first thread and value; cells that no thread holds show a dot."""
    picture = picture_of_threads(Layout(((2, 2), 2), ((4, 1), 2)), (2, 5))
    assert picture.text() == golden(
        """
        ((2,2),2):((4,1),2) on (2,5)
               0    1    2    3    4
          ┌─────────────────────────
        0 │ T0V0 T0V1 T1V0 T1V1    ·
        1 │ T2V0 T2V1 T3V0 T3V1    ·
        """
    )
    coloured = picture.text(ansi=True)
    assert coloured.count("\x1b[48;5;") == coloured.count("\x1b[0m") == 8
    assert picture_of_threads(Layout((4, 2), (1, 0)), (2, 2)).text().splitlines()[-2:] == [
        "0 │ T0V0 T2V0",
        "1 │ T1V0 T3V0",
    ]


def test_text_of_a_swizzled_tile():
    """A tile draws physical offsets, those of a part by its place in the whole."""
    tile = TileTensor(Layout.row_major(4, 4), "b64", AddressSpace.SHARED, swizzle=Swizzle(1, 3, 2), base_alignment=64)
    assert tile.tile((4, 2), (0, 1)).text() == golden(
        """
        shared b64 S(1,0,2) o 2 o (4,2):(4,1)
             0  1
          ┌──────
        0 │  2  3
        1 │  7  6
        2 │ 10 11
        3 │ 15 14
        """
    )
    assert (Swizzle(1, 0, 2) @ Layout.row_major(2, 2)).text().splitlines()[0] == "S(1,0,2) o (2,2):(2,1)"


@pytest.mark.parametrize("shape", [(8, 8), (8, (8, 4)), ((2, 4), (2, 3)), (64, 64), 5, (2, 3, 4)])
def test_svg_is_well_formed_with_a_cell_for_each_coordinate(shape):
    """Parsing succeeds, no two cells coincide, every offset is printed, and all of it lies within the view box."""
    layout = Layout.col_major(shape)
    svg = layout.svg()
    root = ElementTree.fromstring(svg)
    cells = cells_of(svg)
    assert len(cells) == len({cell[:2] for cell in cells}) == layout.size
    width, height = (float(root.get(name)) for name in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    assert all(0 < x < width and 0 < y < height for x, y, *_ in cells)
    labels = Counter(t.text for t in root.iter(SVG + "text") if t.get("class") is None)
    assert labels == Counter(str(i) for i in range(layout.size))
    assert root.find(SVG + "title").text == str(layout)


def test_svg_leaves_gaps_between_blocks():
    """Nested modes are told apart by wider steps at the bounds of their blocks."""
    xs = sorted({x for x, *_ in cells_of(Layout(((2, 4), (2, 3))).svg())})
    steps = [b - a for a, b in itertools.pairwise(xs)]
    assert steps[0] == steps[2] == steps[4] < steps[1] == steps[3]


def test_svg_by_bank():
    """Cells of one bank share a colour, the legend shows all 32, and the swizzle gives a column eight hues."""
    tile = TileTensor(Layout.row_major(8, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128))
    svg = tile.svg("bank")
    legend = [(classes[-1], style) for _, _, classes, style in cells_of(svg, "swatch")]
    assert len(set(legend)) == len(legend) == 32
    cells = cells_of(svg)
    for (_, _, classes, style), (row, column) in zip(cells, ((r, c) for r in range(8) for c in range(64)), strict=True):
        assert (classes[-1], style) == legend[tile.byte_offset(row, column) // 4 % 32]
    assert len({style for _, _, _, style in cells[::64]}) == 8


def test_svg_by_thread():
    """The 32 lanes of a warp have 32 colours, and each lane's cells share one."""
    svg = picture_of_threads(Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), (16, 8)).svg()
    colours = Counter((classes[-1], style) for _, _, classes, style in cells_of(svg))
    assert len(colours) == 32
    assert set(colours.values()) == {4}


def test_svg_follows_the_theme_and_escapes_its_title():
    """The document answers to a dark theme, has no background, and survives any title."""
    picture = Layout(4).picture()
    assert "prefers-color-scheme: dark" in picture.svg()
    assert len(cells_of(picture.svg())) == len(list(ElementTree.fromstring(picture.svg()).iter(SVG + "rect")))
    titled = type(picture)("a < b & c", picture.rows, picture.axes, picture.breaks)
    assert ElementTree.fromstring(titled.svg()).find(SVG + "title").text == "a < b & c"


def test_svg_has_room_for_its_cells_and_its_title():
    """The page ends to the right of the last cell, and of a title that is longer than the picture."""
    picture = Layout(4).picture()
    for layout in (Layout.row_major(2, 24), Layout(4)):
        root = ElementTree.fromstring(layout.svg())
        right = max(float(r.get("x")) + float(r.get("width")) for r in root.iter(SVG + "rect"))
        assert float(root.get("width")) > right
    titled = type(picture)("a title of forty characters, more or less", picture.rows, picture.axes, picture.breaks)
    assert float(ElementTree.fromstring(titled.svg()).get("width")) > 40 * 6


def test_errors_of_thread_pictures():
    """A thread-value layout needs two modes and must stay on the tile."""
    with pytest.raises(LayoutError, match=r"of rank 1; it must have two modes"):
        picture_of_threads(Layout(8), (2, 4))
    with pytest.raises(LayoutError, match=r"reaches index 8; shape \(2,4\) ends at index 7"):
        picture_of_threads(Layout((4, 2), (2, 2)), (2, 4))

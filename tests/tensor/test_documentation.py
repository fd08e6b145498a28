"""The examples in the documentation and the docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

from tilekit.tensor import AddressSpace, Layout, Swizzle, TileTensor, picture_of_threads

DOCS = Path(__file__).parents[2] / "docs"


def test_layouts_page_runs():
    """Every example of docs/layouts.md gives the output that is printed below it."""
    result = doctest.testfile(str(DOCS / "layouts.md"), module_relative=False, encoding="utf-8")
    assert result.attempted > 40
    assert result.failed == 0


@pytest.mark.parametrize("module", ["dtypes", "layout", "swizzle", "tile_tensor"])
def test_docstring_examples_run(module):
    """Every example in the docstrings gives the output that is printed below it."""
    result = doctest.testmod(importlib.import_module(f"tilekit.tensor.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_pictures_of_the_page_are_current():
    """The SVG files beside the page are what its examples draw today."""
    chunks = TileTensor(Layout.row_major(8, 64), "bf16", AddressSpace.SHARED, swizzle=Swizzle.tma(128)).vectorize(1, 8)
    assert (DOCS / "layouts-swizzle.svg").read_text("utf-8") == chunks.svg("bank")
    warp = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    assert (DOCS / "layouts-accumulator.svg").read_text("utf-8") == picture_of_threads(warp, ((8, 2), 8)).svg()

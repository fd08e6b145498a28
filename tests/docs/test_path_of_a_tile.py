"""What docs/path-of-a-tile.md quotes is what tilekit generates, and what its sources say."""

from __future__ import annotations

import re
from functools import cache

import pytest
from pages import ROOT, Block, blocks

import tilekit

SCRATCH = re.compile(r"\b(add|and|c|desc|elected|eq|k_block|min|mul|ne|packed|phase|sel|stage|sub|tile|xor)\d+\b")
PAGE = ROOT / "docs" / "path-of-a-tile.md"


@cache
def _kernel() -> list[str]:
    config = tilekit.MatmulConfig(tile=(128, 256), cluster=(2, 1), consumers=2)
    return [_comparable(line) for line in tilekit.compile(tilekit.MatmulSpec(), config=config).ptx.splitlines()]


def _comparable(line: str) -> str:
    """A line of PTX without its indentation, source line number and the numbers of its scratch registers."""
    line = re.sub(r"(//@ .*):\d+$", r"\1", " ".join(line.split()))
    return re.sub(
        r"\b(add|and|c|desc|elected|eq|k_block|min|mul|ne|packed|phase|sel|stage|sub|tile|xor)\d+\b", r"\1", line
    )


def _pattern(quoted: str) -> re.Pattern[str]:
    text, _, origin = _comparable(quoted).partition(" //@ ")
    pattern = re.escape(text).replace("…", ".*")
    return re.compile(pattern + (r" //@ " + re.escape(origin) if origin else r"( //@ .*)?"))


@pytest.mark.parametrize("block", blocks(PAGE, "ptx"), ids=str)
def test_quoted_ptx_is_generated(block: Block):
    """Each block's lines occur in the kernel's text in that order, with the component they name."""
    position = 0
    for line in filter(None, block.text.splitlines()):
        pattern = _pattern(line)
        found = next((i for i in range(position, len(_kernel())) if pattern.fullmatch(_kernel()[i])), None)
        assert found is not None, f"{block}: not in the kernel's text, or not in this order: {line}"
        position = found + 1


SOURCES = [block for block in blocks(PAGE, "python") if block.text.startswith("# tilekit/")]


@pytest.mark.parametrize("block", SOURCES, ids=str)
def test_quoted_python_is_in_the_sources(block: Block):
    """Each quotation of a source file stands in that file, line by line and without gaps."""
    head, quoted = block.text.split("\n", 1)
    assert quoted in (ROOT / head.removeprefix("# ")).read_text("utf-8")

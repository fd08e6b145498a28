"""Draw what a convolution's kernel has that a matmul's has not: ``python docs/conv2d_diff.py`` writes conv2d-diff.svg.

Both kernels are traced with the same config, and each line of their PTX is counted for the role and the component that
wrote it. A test fails when the picture is out of date.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import tilekit
from tilekit import MatmulConfig, MatmulSpec
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec

PICTURE = Path(__file__).with_name("conv2d-diff.svg")
CONFIG = MatmulConfig(tile=(128, 128), cluster=(1, 1))
COLUMNS = (
    ("plain matmul", MatmulSpec()),
    ("conv2d, Im2colLoader", ConvSpec()),
    ("conv2d, GatherLoader", ThreadSpec(a_load=2, b_load=2)),
)
ROLES = ("setup", "load", "mma")
_ORIGIN = re.compile(r"//@ (\S+) (\w+)")
_ROW, _WIDTH, _NAMES = 18, 190, 200
SAME, OTHER, NONE = "#d0d7de", "#f0883e", "#ffffff"


def components(spec: MatmulSpec) -> Counter[tuple[str, str]]:
    """Lines of PTX by role and component."""
    return Counter(found.groups() for found in _ORIGIN.finditer(tilekit.compile(spec, "sm_90a", CONFIG).ptx))


def rows() -> list[tuple[str, str, list[int]]]:
    """Role, component and lines in each kernel, those that differ first."""
    counts = [components(spec) for _, spec in COLUMNS]
    names = {name for count in counts for name in count}
    found = [(role, name, [count[role, name] for count in counts]) for role, name in names if role in ROLES]
    return sorted(found, key=lambda row: (ROLES.index(row[0]), len(set(row[2])) == 1, row[1]))


def picture() -> str:
    """The picture: a row a component, a box a kernel, coloured where it is not the matmul's."""
    lines = rows()
    width, height = _NAMES + len(COLUMNS) * _WIDTH + 10, (len(lines) + len(ROLES) + 3) * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]

    def text(x: int, row: int, words: str, extra: str = "") -> None:
        parts.append(f'<text x="{x}" y="{row * _ROW + 13}" {extra}>{words}</text>')

    for column, (name, _) in enumerate(COLUMNS):
        text(_NAMES + column * _WIDTH, 0, name, 'font-weight="bold"')
    at, last = 1, ""
    for role, name, counts in lines:
        if role != last:
            text(6, at, f"role {role}", 'font-weight="bold"')
            at, last = at + 1, role
        text(16, at, name)
        for column, count in enumerate(counts):
            colour = SAME if count == counts[0] and count else OTHER if count else NONE
            x = _NAMES + column * _WIDTH
            stroke = 'stroke="#d0d7de"'
            parts.append(
                f'<rect x="{x}" y="{at * _ROW + 1}" width="{_WIDTH - 10}" height="15" fill="{colour}" {stroke}/>'
            )
            # Only what differs has its number: the rest may change with the matmul, and says nothing here.
            words = "the same" if colour == SAME and column else f"{count} lines" if colour == OTHER else ""
            text(x + 6, at, words)
        at += 1
    changed = sum(len(set(counts)) > 1 for _, _, counts in lines)
    text(6, at, f"{changed} of {len(lines)} components differ; config {CONFIG.tile[0]}x{CONFIG.tile[1]}, sm_90a")
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")

"""Pictures of layouts: a grid of cells as text or as an SVG document, with the standard library alone.

The SVG has no background of its own and follows the viewer's light or dark theme.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from tilekit.tensor import nested
from tilekit.tensor.nested import IntTuple, LayoutError

if TYPE_CHECKING:
    from tilekit.tensor.layout import Layout

_HUES = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_ANSI_HUES = (110, 215, 114, 210, 116, 221, 182, 180)
_SHADES = 4
_BANKS, _BANK_BYTES = 32, 4
_SWATCH, _SWATCHES_A_ROW = (24, 20), 16
_MOST_CELLS = 4096

_STYLE = """
text { font-family: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328;
  text-anchor: middle; font-size: 11px; }
.title { font-size: 13px; font-weight: 600; text-anchor: start; }
.axis { fill: #6e7781; font-size: 10px; }
.side { text-anchor: end; }
.minor { fill-opacity: .72; font-size: 9px; }
.cell { stroke: #8c959f; stroke-opacity: .45; stroke-width: .75; fill: #4e79a7; }
.bare { fill: none; }
.s0 { fill-opacity: .78; } .s1 { fill-opacity: .56; } .s2 { fill-opacity: .38; } .s3 { fill-opacity: .22; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .axis { fill: #8d96a0; }
  .s0 { fill-opacity: .58; } .s1 { fill-opacity: .43; } .s2 { fill-opacity: .29; } .s3 { fill-opacity: .17; }
}
"""


@dataclass(frozen=True, slots=True)
class Colour:
    """One of eight hues in one of four shades, 0 the strongest."""

    hue: int
    shade: int

    @classmethod
    def of_thread(cls, thread: int) -> "Colour":
        """Return the colour of a thread: all 32 lanes of a warp differ, in hue first."""
        return cls(thread % len(_HUES), thread // len(_HUES) % _SHADES)

    @classmethod
    def of_bank(cls, bank: int) -> "Colour":
        """Return the colour of a shared-memory bank: a hue for every 16 bytes, a shade for each bank therein."""
        return cls(bank // _SHADES % len(_HUES), bank % _SHADES)


@dataclass(frozen=True, slots=True)
class Cell:
    """One square: lines of text, and either a colour, a strength from 0 to 1 of the neutral hue, or neither."""

    lines: tuple[str, ...]
    colour: Colour | float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A titled grid of cells, ready to be written as text or SVG.

    Attributes
    ----------
    title : str
        Printed above the grid.
    rows : tuple of tuple of Cell
        The cells, top row first.
    axes : tuple of str
        The names of the vertical and the horizontal axis.
    breaks : tuple of int
        A gap is left after every so many rows and columns.
    legend : tuple of Cell
        Swatches printed below the grid, possibly none.
    """

    title: str
    rows: tuple[tuple[Cell, ...], ...]
    axes: tuple[str, str]
    breaks: tuple[int, int]
    legend: tuple[Cell, ...] = ()

    def text(self, *, ansi: bool = False) -> str:
        """Return the picture as lines of text, with ANSI background colours if `ansi`."""
        margin = len(str(len(self.rows) - 1))
        width = max(len(str(len(self.rows[0]) - 1)), max(len("".join(cell.lines)) for row in self.rows for cell in row))

        def joined(entries: Sequence[str], separator: str) -> str:
            step = self.breaks[1]
            groups = (entries[i : i + step] for i in range(0, len(entries), step))
            return separator.join(" ".join(group) for group in groups)

        def rule(left: str, cross: str) -> str:
            columns = ["─" * width] * len(self.rows[0])
            return " " * margin + f" {left}─" + joined(columns, f"─{cross}─").replace(" ", "─")

        header = joined([str(c).rjust(width) for c in range(len(self.rows[0]))], "   ")
        lines = [self.title, " " * margin + "   " + header, rule("┌", "┬")]
        for r, row in enumerate(self.rows):
            if r and r % self.breaks[0] == 0:
                lines.append(rule("├", "┼"))
            cells = [_painted("".join(cell.lines).rjust(width), cell.colour if ansi else None) for cell in row]
            lines.append(f"{r:>{margin}} │ " + joined(cells, " │ "))
        return "\n".join(lines)

    def svg(self) -> str:
        """Return the picture as a complete SVG document."""
        cells = [cell for row in self.rows for cell in row]
        tall = max(len(cell.lines) for cell in cells)
        width = max(26, 10 + 7 * max(len(line) for cell in cells for line in cell.lines))
        height = 24 if tall == 1 else 8 + 12 * tall
        left, top = 42 + 7 * len(str(len(self.rows) - 1)), 66
        xs = _positions(len(self.rows[0]), width, self.breaks[1], left)
        ys = _positions(len(self.rows), height, self.breaks[0], top)
        right, bottom = xs[-1] + width, ys[-1] + height
        title_end = 16 + 8 * len(self.title)

        body = [f'<text class="title" x="16" y="24">{escape(self.title)}</text>']
        body.append(f'<text class="axis" x="{(left + right) / 2:g}" y="42">{escape(self.axes[1])}</text>')
        if self.axes[0]:
            middle = (top + bottom) / 2
            body.append(
                f'<text class="axis" transform="translate(20 {middle:g}) rotate(-90)">{escape(self.axes[0])}</text>'
            )
            body += (
                f'<text class="axis side" x="{left - 8}" y="{y + height / 2 + 3.5:g}">{r}</text>'
                for r, y in enumerate(ys)
            )
        body += (f'<text class="axis" x="{x + width / 2:g}" y="{top - 8}">{c}</text>' for c, x in enumerate(xs))
        for row, y in zip(self.rows, ys, strict=True):
            for cell, x in zip(row, xs, strict=True):
                body += _svg_cell(cell, x, y, width, height, "cell")
        if self.legend:
            body += _svg_legend(self.legend, left, bottom + 18)
            right = max(right, left + _SWATCH[0] * min(len(self.legend), _SWATCHES_A_ROW))
            bottom += 18 + _SWATCH[1] * -(-len(self.legend) // _SWATCHES_A_ROW)
        size = (max(right, title_end) + 16, bottom + 16)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
            f'width="{size[0]}" height="{size[1]}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
        )


def embedded(svg: str, words: str) -> str:
    """Return an SVG document as an HTML image, whose styles touch nothing else on a page; `words` say what it shows."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt={quoteattr(words)} style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def in_notebook(words: str, size: int, picture: Callable[[], Picture]) -> str:
    """Return what a notebook shows of a layout: its picture, or its words where it has too many cells."""
    if size > _MOST_CELLS:
        return f"<pre>{escape(words)}, {size:,} elements</pre>"
    return embedded(picture().svg(), words)


def picture_of_offsets(
    shape: IntTuple, offsets: Sequence[int], *, title: str, byte_offsets: Sequence[int] | None = None
) -> Picture:
    """Return the picture of what lies where: mode 0 of `shape` down, all other modes across.

    Parameters
    ----------
    shape : int or nested tuple of int
        The shape of the coordinates; nested modes leave gaps between their blocks.
    offsets : sequence of int
        What to print, for each colexicographic index.
    title : str
        Printed above the grid.
    byte_offsets : sequence of int, optional
        Shared-memory offsets in bytes, to colour each cell by its bank rather than by ascending offset.
    """
    largest = max(1, *offsets)
    if byte_offsets is None:
        cells = [Cell((str(offset),), offset / largest) for offset in offsets]
        return _picture(shape, cells, title)
    banks = [offset // _BANK_BYTES % _BANKS for offset in byte_offsets]
    cells = [Cell((str(offset),), Colour.of_bank(bank)) for offset, bank in zip(offsets, banks, strict=True)]
    legend = tuple(Cell((str(bank),), Colour.of_bank(bank)) for bank in range(_BANKS))
    return _picture(shape, cells, f"{title}, coloured by shared-memory bank", legend)


def picture_of_threads(threads_and_values: "Layout", shape: IntTuple) -> Picture:
    """Return the picture of who holds what: thread ``T`` and value ``V`` in every cell of `shape`.

    Parameters
    ----------
    threads_and_values : Layout
        Of rank 2: from (thread, value) to the colexicographic index in `shape`.
    shape : int or nested tuple of int
        The shape of the tile that the threads share.

    Raises
    ------
    LayoutError
        If the layout is not of rank 2, or reaches outside `shape`.
    """
    if threads_and_values.rank != 2:
        raise LayoutError(
            f"threads_and_values is {threads_and_values}, of rank {threads_and_values.rank}; "
            "it must have two modes, the thread and the value"
        )
    cells = [Cell(("·",))] * nested.size(shape)
    if threads_and_values.cosize > len(cells):
        raise LayoutError(
            f"threads_and_values is {threads_and_values} and reaches index {threads_and_values.cosize - 1}; "
            f"shape {nested.text(shape)} ends at index {len(cells) - 1}"
        )
    for value in reversed(range(threads_and_values[1].size)):
        for thread in reversed(range(threads_and_values[0].size)):
            cells[threads_and_values(thread, value)] = Cell((f"T{thread}", f"V{value}"), Colour.of_thread(thread))
    return _picture(shape, cells, f"{threads_and_values} on {nested.text(shape)}")


def _picture(shape: IntTuple, cells: Sequence[Cell], title: str, legend: tuple[Cell, ...] = ()) -> Picture:
    modes = shape if isinstance(shape, tuple) else (shape,)
    row_shape, column_modes = (modes[0], modes[1:]) if len(modes) > 1 else (1, modes)
    count = nested.size(row_shape)
    rows = tuple(tuple(cells[r::count]) for r in range(count))
    column_shape = column_modes if len(column_modes) > 1 else column_modes[0]
    first = len(modes) - len(column_modes)
    named = ", ".join(str(first + k) for k in range(len(column_modes)))
    across = f"mode {named}" if len(column_modes) == 1 else f"modes {named}"
    return Picture(
        title=title,
        rows=rows,
        axes=("mode 0" if first else "", across),
        breaks=(_block(row_shape), _block(column_shape)),
        legend=legend,
    )


def _block(shape: IntTuple) -> int:
    """Return the extent of the first mode of a nested shape, where a gap helps the eye; all of it otherwise."""
    return max(1, nested.size(shape[0])) if isinstance(shape, tuple) else nested.size(shape)


def _positions(count: int, extent: int, block: int, start: int) -> list[int]:
    gap = 6 if block > 1 else 0
    return [start + i * extent + i // block * gap for i in range(count)]


def _painted(label: str, colour: Colour | float | None) -> str:
    if not isinstance(colour, Colour):
        return label
    return f"\x1b[48;5;{_ANSI_HUES[colour.hue]};38;5;16m{label}\x1b[0m"


def _svg_cell(cell: Cell, x: float, y: float, width: float, height: float, kind: str) -> Iterator[str]:
    match cell.colour:
        case Colour(hue, shade):
            look = f'class="{kind} s{shade}" style="fill:{_HUES[hue]}"'
        case None:
            look = f'class="{kind} bare"'
        case strength:
            look = f'class="{kind}" fill-opacity="{0.05 + 0.5 * strength:.3f}"'
    yield f'<rect {look} x="{x}" y="{y}" width="{width}" height="{height}"/>'
    first = y + height / 2 + 4 - 6 * (len(cell.lines) - 1)
    for k, line in enumerate(cell.lines):
        minor = ' class="minor"' if k else ""
        yield f'<text{minor} x="{x + width / 2:g}" y="{first + 12 * k:g}">{escape(line)}</text>'


def _svg_legend(legend: Iterable[Cell], left: int, top: int) -> Iterator[str]:
    for k, cell in enumerate(legend):
        down, across = divmod(k, _SWATCHES_A_ROW)
        yield from _svg_cell(cell, left + _SWATCH[0] * across, top + _SWATCH[1] * down, *_SWATCH, "swatch")

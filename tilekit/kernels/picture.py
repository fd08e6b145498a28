"""A kernel as a picture: warps by role, registers, rings with who fills and reads them, and shared memory.

An SVG with the standard library alone; it has no background and follows the viewer's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Role
from tilekit.targets import Target

__all__ = ["Shown", "page", "svg"]

_HUES = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#9c755f", "#edc948")
_LEFT, _WIDTH = 16, 760
_STYLE = """
text { font-family: ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #1f2328;
  font-size: 12px; }
.title { font-size: 15px; font-weight: 600; } .head { font-weight: 600; } .soft { fill: #57606a; font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.box { stroke: #8c959f; stroke-opacity: .6; stroke-width: .75; } .bare { fill: none; }
.line { stroke: #57606a; fill: none; stroke-width: 1.2; } .tip { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .soft { fill: #9198a1; } .line { stroke: #9198a1; } .tip { fill: #9198a1; }
}
"""


@dataclass(frozen=True)
class Shown:
    """What of a kernel is drawn.

    Attributes
    ----------
    name, target, threads, cluster
        The entry's symbol, the chip, threads of a CTA, CTAs of a cluster.
    roles
        Those of the trace; none where a kernel has none.
    launch_registers
        Registers a thread where a role's are not its own, if known.
    shared, shared_bytes
        The map of shared memory, and the bytes of a launch.
    """

    name: str
    target: Target
    threads: int
    cluster: int
    roles: Sequence[Role]
    launch_registers: int | None
    shared: Sequence[SharedArray]
    shared_bytes: int


def page(kernel: Shown, words: str) -> str:
    """Return an HTML document: the picture, and below it what `explain` prints."""
    title = escape(f"{kernel.name} for {kernel.target.name}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="color-scheme" content="light dark"></head>\n'
        f'<body style="font-family: sans-serif; margin: 2em">\n{svg(kernel)}'
        f"<pre>{escape(words)}</pre>\n</body>\n</html>\n"
    )


def svg(kernel: Shown) -> str:
    """Return the picture as a complete SVG document."""
    d = _Drawing(_colours(kernel.roles))
    shape = f"{kernel.threads} threads, {kernel.target.name}" + (
        f", cluster of {kernel.cluster}" if kernel.cluster > 1 else ""
    )
    d.text(_LEFT, d.y + 14, kernel.name, "title")
    d.text(_LEFT, d.y + 32, shape, "soft")
    d.y += 58
    _warps(d, kernel)
    _registers(d, kernel)
    for name, full, empty in _rings(kernel.shared):
        _ring(d, kernel, name, full, empty)
    _memory(d, kernel)
    height = d.y
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _LEFT} {height}" '
        f'width="{_WIDTH + 2 * _LEFT}" height="{height}" role="img">\n<title>{escape(kernel.name)}</title>\n'
        f"<style>{_STYLE}</style>\n" + "\n".join(d.parts) + "\n</svg>\n"
    )


def _colours(roles: Sequence[Role]) -> dict[str, str]:
    return {role.name: _HUES[i % len(_HUES)] for i, role in enumerate(roles)}


@dataclass
class _Drawing:
    """SVG elements so far, and how far down they reach."""

    colours: dict[str, str]
    parts: list[str] = field(default_factory=list)
    y: int = 12

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{style} x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "", tip: str = "", strong: float = 0.8
    ) -> None:
        look = f'class="box" fill="{fill}" fill-opacity="{strong:g}"' if fill else 'class="box bare"'
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect {look} x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2">{title}</rect>'
        )

    def arrow(self, x: float, y: float, to: float) -> None:
        """A horizontal arrow."""
        back = 6 if to > x else -6
        self.parts.append(f'<path class="line" d="M{x:g} {y:g}H{to - back / 2:g}"/>')
        self.parts.append(f'<path class="tip" d="M{to:g} {y:g}l{-back} -4v8z"/>')


def _warps(d: _Drawing, kernel: Shown) -> None:
    count = -(-kernel.threads // kernel.target.lanes)
    side = min(34, _WIDTH / count)
    d.text(_LEFT, d.y, "warps", "head")
    top = d.y + 8
    owner = {warp: role for role in kernel.roles for warp in role.warps}
    for warp in range(count):
        role = owner.get(warp)
        fill = d.colours[role.name] if role is not None else ""
        d.box(_LEFT + warp * side, top, side - 2, 26, fill, f"warp {warp}: {role.name if role else 'no role'}")
        d.text(_LEFT + warp * side + side / 2 - 1, top + 17, str(warp), "middle")
    d.y = top + 44
    for role in kernel.roles:
        registers = role.registers or kernel.launch_registers
        d.box(_LEFT, d.y - 10, 12, 12, d.colours[role.name])
        words = f"{role.name}: {_count(len(role.warps), 'warp')}"
        words += f", {registers} registers a thread" if registers else ""
        d.text(_LEFT + 20, d.y, words)
        d.text(_LEFT + 330, d.y, f"may {', '.join(sorted(role.may))}" if role.may else "", "soft")
        d.y += 18
    d.y += 14


def _registers(d: _Drawing, kernel: Shown) -> None:
    known = [(role, role.registers or kernel.launch_registers) for role in kernel.roles]
    used = [(role, kernel.target.lanes * len(role.warps) * each) for role, each in known if each]
    if not used:
        return
    total = kernel.target.registers
    d.text(_LEFT, d.y, "registers", "head")
    d.text(_LEFT + _WIDTH, d.y, f"{sum(each for _, each in used):,} of {total:,}", "soft end")
    x: float = _LEFT
    d.box(_LEFT, d.y + 8, _WIDTH, 22)
    for role, each in used:
        width = _WIDTH * each / total
        d.box(x, d.y + 8, width, 22, d.colours[role.name], f"{role.name}: {each:,} registers")
        label = f"{role.name} {each:,}"
        if width > 7.5 * len(label):
            d.text(x + width / 2, d.y + 23, label, "middle")
        x += width
    d.y += 54


def _rings(shared: Sequence[SharedArray]) -> Iterator[tuple[str, SharedArray, SharedArray]]:
    """Name, `full` and `empty` of each pair of barrier arrays that goes round."""
    barriers = {array.name: array for array in shared if array.kind == "mbarrier"}
    for name, full in barriers.items():
        prefix, _, word = name.rpartition(".")
        empty = barriers.get(f"{prefix}.empty")
        if word == "full" and empty is not None and empty.count == full.count:
            yield prefix, full, empty


def _ring(d: _Drawing, kernel: Shown, name: str, full: SharedArray, empty: SharedArray) -> None:
    tiles = [a for a in kernel.shared if a.kind != "mbarrier" and a.name.startswith(f"{name}.")]
    bytes_ = sum(tile.stride for tile in tiles)
    holds = ", ".join(f"{tile.name.rpartition('.')[2]} {tile.stride:,} B" for tile in tiles)
    d.text(_LEFT, d.y, f"ring {name}: {_count(full.count, 'stage')}", "head")
    d.text(_LEFT + _WIDTH, d.y, f"{holds}; {bytes_:,} B a stage" if len(tiles) > 1 else holds, "soft end")
    top, side = d.y + 26, 110
    height = max(44, 16 * max(len(full.arrive), len(full.wait)))
    for words, x in ((full.arrive, _LEFT), (full.wait, _LEFT + _WIDTH - side)):
        each = height / max(1, len(words))
        for i, role in enumerate(words):
            d.box(x, top + i * each, side, each, d.colours.get(role, "#8c959f"))
            d.text(x + side / 2, top + i * each + each / 2 + 4, role, "middle")
    first, last = _LEFT + side + 90, _LEFT + _WIDTH - side - 90
    width = (last - first) / full.count
    for stage in range(full.count):
        d.box(first + stage * width, top, width - 3, height, "#8c959f", f"{name}, stage {stage}: {holds}", 0.25)
        if width > 14:
            d.text(first + (stage + 0.5) * width - 1, top + height / 2 + 4, str(stage), "middle")
    d.arrow(_LEFT + side + 6, top + 12, first - 8)
    d.arrow(last + 6, top + 12, _LEFT + _WIDTH - side - 8)
    d.arrow(_LEFT + _WIDTH - side - 8, top + height - 10, last + 4)
    d.arrow(first - 8, top + height - 10, _LEFT + side + 6)
    d.text((_LEFT + side + first) / 2, top - 6, f"full {full.arrivals}", "soft middle")
    d.text((last + _LEFT + _WIDTH - side) / 2, top - 6, "waits", "soft middle")
    d.text((last + _LEFT + _WIDTH - side) / 2, top + height + 14, f"empty {empty.arrivals}", "soft middle")
    d.text((_LEFT + side + first) / 2, top + height + 14, "waits", "soft middle")
    d.y = top + height + 44


def _memory(d: _Drawing, kernel: Shown) -> None:
    total = kernel.target.shared_bytes
    if not kernel.shared or not total:
        return
    d.text(_LEFT, d.y, "shared memory", "head")
    d.text(_LEFT + _WIDTH, d.y, f"{kernel.shared_bytes:,} of {total:,} B", "soft end")
    top = d.y + 8
    d.box(_LEFT, top, _WIDTH, 26)
    rows = []
    for number, array in enumerate(kernel.shared):
        fill = _HUES[number % len(_HUES)]
        for element in range(array.count):
            at = array.offset + element * array.stride
            words = f"{array.name}[{element}]: {array.stride:,} B at {at:#x}"
            d.box(_LEFT + _WIDTH * at / total, top, max(0.8, _WIDTH * array.stride / total), 26, fill, words)
        count = f"[{array.count}] x {array.stride:,} B" if array.count > 1 else f"{array.stride:,} B"
        rows.append((fill, f"{array.name} {count}", f"{array.offset:#x}"))
    d.y = top + 46
    for number, (fill, words, offset) in enumerate(rows):
        x, y = _LEFT + number % 2 * (_WIDTH // 2), d.y + number // 2 * 18
        d.box(x, y - 10, 12, 12, fill)
        d.text(x + 20, y, words)
        d.text(x + _WIDTH // 2 - 30, y, offset, "soft end")
    d.y += -(-len(rows) // 2) * 18 + 6


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

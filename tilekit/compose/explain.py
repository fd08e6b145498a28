"""A composed kernel in one screen: operands, roles, shared memory, barriers, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilekit.kernels.operands import Operand, Output
from tilekit.kernels.shared_map import shared_memory_map

if TYPE_CHECKING:
    from tilekit.compose.kernel import ComposedKernel


def explain(kernel: ComposedKernel) -> str:
    """Describe a traced kernel."""
    traced = kernel.traced
    inputs = ", ".join(_spelled(o) for o in kernel.operands if not isinstance(o, Output))
    outputs = ", ".join(_spelled(o) for o in kernel.operands if isinstance(o, Output))
    shape = f"{kernel.threads} threads, cluster {kernel.cluster}, {kernel.target.name}"
    overlaps = kernel.launch_config(kernel.cluster).pdl
    lines = [
        f"{kernel.name}: {inputs} -> {outputs}, {shape}",
        "",
        *_roles(kernel),
        *shared_memory_map(traced.shared, traced.shared_bytes, kernel.target.shared_bytes),
        "",
        *_barriers(kernel),
        f"parameters   {', '.join(f'{p.name} ({p.type})' for p in traced.parameters) or 'none'}",
        f"launch       {'may start while the kernel ahead runs' if overlaps else 'after the kernel ahead'}",
    ]
    return "\n".join(lines)


def _spelled(operand: Operand) -> str:
    return f"{operand.name} ({', '.join(operand.shape)}) {operand.dtype}"


def _roles(kernel: ComposedKernel) -> list[str]:
    roles = kernel.traced.roles
    if not roles:
        return []
    rows = [("role", "warps", "threads", "registers", "may")]
    for role in roles:
        first, last = role.warps.start, role.warps.stop - 1
        rows.append(
            (
                role.name,
                f"{first}-{last}" if last > first else f"{first}",
                str(kernel.target.lanes * len(role.warps)),
                str(role.registers or "-"),
                ", ".join(sorted(role.may)),
            )
        )
    return [*_table(rows), ""]


def _barriers(kernel: ComposedKernel) -> list[str]:
    barriers = [array for array in kernel.traced.shared if array.kind == "mbarrier"]
    if not barriers:
        return []
    rows = [("barrier", "count", "arrives", "waits")]
    rows += [(f"{b.name}[{b.count}]", str(b.arrivals), ", ".join(b.arrive), ", ".join(b.wait)) for b in barriers]
    return [*_table(rows), ""]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns as wide as their words."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    return ["".join(f"{word:<{width}}" for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]

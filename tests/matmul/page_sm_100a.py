"""Write the tables of docs/blackwell.md: `python -m tests.matmul.page_sm_100a`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.generated import with_tables
from tests.matmul.bugs_sm_100a import BARRIERS, BROKEN, HARMLESS
from tests.matmul.bugs_sm_100a_output import BUGS_OUTPUT
from tests.matmul.bugs_sm_100a_rings import BUGS_RINGS
from tests.matmul.bugs_sm_100a_tensor import BUGS_TENSOR
from tests.matmul.launches_sm_100a import CASES

PAGE = Path(__file__).parents[2] / "docs" / "blackwell.md"


def kernels() -> Iterator[str]:
    """Which values the knobs have, and in how many of the kernels."""
    configs, specs = [case.config for case in CASES], [case.spec for case in CASES]
    yield f"{len(CASES)} kernels:\n"
    yield "| knob | values, and kernels that have them |"
    yield "|---|---|"
    for name, values in (
        ("CTAs of an instruction", [c.cta_group for c in configs]),
        ("rows of a CTA", [c.tile[0] for c in configs]),
        ("columns of a tile", [c.tile[1] for c in configs]),
        ("cluster", [c.cluster for c in configs]),
        ("slices of K in a stage", [c.k_group for c in configs]),
        ("stages", [c.stages or 0 for c in configs]),
        ("accumulators", [c.accumulator_stages for c in configs]),
        ("claims in flight", [c.clc_stages for c in configs]),
        ("output buffers", [c.output_buffers for c in configs]),
        ("shares of a sum", [c.split_k for c in configs]),
        ("walked first along", [c.raster_order for c in configs]),
        ("cluster rows walked together", [c.raster_group or 0 for c in configs]),
        ("swapped operands", [c.swap_ab for c in configs]),
        ("types of A and B", [f"{s.a_dtype} {s.b_dtype}" for s in specs]),
        ("type of the output", [s.out_dtype.name for s in specs]),
        ("majors", [f"{s.a_major} {s.b_major}" for s in specs]),
        ("stores", [s.store for s in specs]),
        ("operands before the residual", [c.load_order for c in configs]),
        ("residual", [s.functions.residual is not None for s in specs]),
        ("bias", [s.functions.bias is not None for s in specs]),
        ("scale", [s.functions.scale or "none" for s in specs]),
        ("activation", [s.functions.activation or "none" for s in specs]),
        ("batched", [s.batched for s in specs]),
    ):
        counts: Counter[object] = Counter(values)
        shown = [f"{_value(name, value)}: {counts[value]}" for value in sorted(counts, key=_order)]
        yield f"| {name} | {', '.join(shown)} |"


def bugs() -> Iterator[str]:
    """What was broken, and by what kind of report it is caught."""
    barriers = sum(map(len, BARRIERS.values()))
    yield f"{len(BROKEN)} bugs, and {barriers} barriers, each with a count one too low and one too high."
    for title, some in (
        ("Tensor memory and matrix instructions", BUGS_TENSOR),
        ("Inputs, claims, cluster", BUGS_RINGS),
        ("The way out", BUGS_OUTPUT),
    ):
        yield f"\n| {title} | kernel | caught as |"
        yield "|---|---|---|"
        yield from (f"| {bug} | {bug.kernel} | {bug.caught} |" for bug in some)


def harmless() -> Iterator[str]:
    """Changes that are no bugs."""
    yield "| change | why nothing is reported |"
    yield "|---|---|"
    yield from (f"| {change} | {why} |" for change, why in HARMLESS)


TABLES = {"kernels": kernels, "bugs": bugs, "harmless": harmless}


def current(text: str) -> str:
    """The page with its tables as they are now."""
    return with_tables(text, {name: lines() for name, lines in TABLES.items()})


def _value(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        {"stages": "auto", "claims in flight": "static", "cluster rows walked together": "auto"}.get(name, "0")
        if value == 0
        else str(value)
    )


def _order(value: object) -> tuple[int, object]:
    return (0, value) if isinstance(value, int | tuple) else (1, str(value))


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text("utf-8")), "utf-8")
    print(f"wrote {PAGE}")

"""Every rule a matmul config must meet, and the nearest value that meets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilekit.epilogue.staged import STMATRIX_COLUMNS
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tile_op.wgmma import ATOM_ROWS, MAX_N

if TYPE_CHECKING:
    from tilekit.kernels.matmul.config import MatmulConfig

STAGED_HEADROOM = 32
"""Registers a consumer thread needs beside its accumulators for the staged epilogue, scale and activation included.

128 of 160, 192 of 232 and 208 of 240 assemble without a spill for every output type; 144 of 160 and 216 of 240 do not
(ptxas 13.5.37; so for the next two).
"""

DIRECT_HEADROOM = 64
"""The same for direct stores, each with an address and a predicate: 168 of 232 fits; 192 of 255, 128 of 160 spill."""

BIAS_HEADROOM = 96
"""The same with a bias, whose loads ptxas moves up: 136 of 232 fits; 160 of 255, 144 of 232 and 96 of 160 may spill."""

INSTRUCTION_HEADROOM = 24
"""Registers left at launch beside one instruction's accumulators: with 128 at launch ptxas refuses n = 256 (C7602)."""

CONSUMERS = (1, 2, 3)
OUTPUT_BUFFERS = range(1, 9)
L2_PROMOTIONS = (None, "64B", "128B", "256B")

_FALLBACKS = ("tile", "cluster", "output_buffers")
"""What else to change where no value of the field itself helps."""


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes
    ----------
    rule
        Its name.
    field, text
        The config's field to change, and what is wrong.
    phase
        0: a field or the tile by itself; 1: the tile in its cluster; 2: registers and shared memory. A phase is checked
        once the one before it finds nothing.
    """

    rule: str
    field: str
    text: str
    phase: int = 0


def explained_problems(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> list[str]:
    """One sentence for each broken rule, ending in ``nearest: <field>=<value>``, the smallest change that mends it."""
    found = violations(config, chip, spec)
    return [f"{v.text}; nearest: {nearest_change(v, found, config, chip, spec)}" for v in found]


def violations(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> list[Violation]:
    """All broken rules of the first phase that has any."""
    return (
        [*_field_rules(config, chip), *_tile_rules(config, spec)]
        or [*_slice_rules(config, spec)]
        or [*_register_rules(config, chip, spec), *_shared_memory_rules(config, chip, spec)]
    )


def nearest_change(
    violation: Violation, found: list[Violation], config: MatmulConfig, chip: Target, spec: MatmulSpec
) -> str:
    """The nearest value of the violation's field, or else of another one, that mends it.

    Best is a change after which only the other fields' violations are left; next one after which a later phase finds
    that another field must change too; and where two rules ask for more than one field can give, one that mends this.
    """
    others = {v.field for v in found} - {violation.field}
    known = {v.rule for v in found} - {violation.rule}
    second = third = ""
    for field in dict.fromkeys((violation.field, *_FALLBACKS)):
        for value in _candidates(config, chip, spec, field):
            left = violations(replace(config, **{field: value}), chip, spec)
            if all(v.field in others for v in left):
                return f"{field}={value!r}"
            if not second and all(v.field != violation.field for v in left):
                second = f"{field}={value!r}"
            if not third and all(v.rule in known or v.phase > violation.phase for v in left):
                third = f"{field}={value!r}"
    # Where no one field helps, the least of everything does.
    return second or third or f"tile=({ATOM_ROWS * config.consumers}, 64), cluster=(1, 1), output_buffers=1"


def _candidates(config: MatmulConfig, chip: Target, spec: MatmulSpec, field: str) -> list[Any]:
    """Values of a field, those nearest to the config's first, and of two as near the larger."""
    every: dict[str, list[Any]] = {
        "consumers": list(CONSUMERS),
        "tile": [(m, n) for m in range(ATOM_ROWS, 769, ATOM_ROWS) for n in range(8, MAX_N + 1, 8)],
        "cluster": [(m, n) for m in range(1, chip.max_cluster + 1) for n in range(1, chip.max_cluster // m + 1)],
        "output_buffers": list(OUTPUT_BUFFERS),
        "in_flight": [0, 1],
        "raster_group": [1],
        "l2_promotion": ["256B"],
        "stages": list(range(1, config.stage_budget(chip, spec) + 1)),
    }
    given = getattr(config, field)
    return sorted(every[field], key=lambda value: (_distance(value, given), -_size(value)))


def _distance(value: Any, given: Any) -> float:
    if isinstance(value, tuple):
        return float(sum(abs(v - g) for v, g in zip(value, given, strict=True)))
    return float(abs(value - given)) if isinstance(value, int) else 0.0


def _size(value: Any) -> int:
    return sum(value) if isinstance(value, tuple) else value if isinstance(value, int) else 0


def _field_rules(config: MatmulConfig, chip: Target) -> Iterator[Violation]:
    if config.consumers not in CONSUMERS:
        yield Violation(
            "consumers", "consumers", f"consumers={config.consumers}: a CTA has 1, 2 or 3 consumer warpgroups"
        )
    if min(config.cluster) < 1 or config.cluster_size > chip.max_cluster:
        yield Violation("cluster", "cluster", f"cluster={config.cluster}: 1 to {chip.max_cluster} CTAs in all")
    if config.output_buffers not in OUTPUT_BUFFERS:
        yield Violation(
            "output_buffers", "output_buffers", f"output_buffers={config.output_buffers}: 1 to {OUTPUT_BUFFERS[-1]}"
        )
    if config.in_flight not in (0, 1):
        yield Violation("in_flight", "in_flight", f"in_flight={config.in_flight}: 0 or 1")
    if config.raster_group is not None and config.raster_group < 1:
        yield Violation("raster_group", "raster_group", f"raster_group={config.raster_group}: at least 1, or None")
    if config.l2_promotion not in L2_PROMOTIONS:
        yield Violation(
            "l2_promotion", "l2_promotion", f"l2_promotion={config.l2_promotion!r}: None, '64B', '128B' or '256B'"
        )


def _tile_rules(config: MatmulConfig, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    if config.consumers in CONSUMERS and (rows <= 0 or rows % (ATOM_ROWS * config.consumers)):
        yield Violation(
            "tile M",
            "tile",
            f"tile M={rows}: each of {config.consumers} consumer warpgroups takes a multiple of {ATOM_ROWS} rows",
        )
    step = STMATRIX_COLUMNS if spec.store == "tma" and spec.out_dtype.bits == 16 else 8
    if not 0 < columns <= MAX_N or columns % step:
        reason = f", and stmatrix stores {step} columns of {spec.out_dtype}" if step == STMATRIX_COLUMNS else ""
        yield Violation("tile N", "tile", f"tile N={columns}: a multiple of {step} up to {MAX_N} (one wgmma{reason})")


def _slice_rules(config: MatmulConfig, spec: MatmulSpec) -> Iterator[Violation]:
    (rows, columns), (cluster_m, cluster_n) = config.tile, config.cluster
    for operand, used, sharers, major in (
        ("A", rows, cluster_n, spec.a_major),
        ("B", columns, cluster_m, spec.b_major),
    ):
        unit = 8 if major == "k" else 64
        extent = -(-used // unit) * unit
        if extent % (unit * sharers):
            yield Violation(
                f"slices of {operand}",
                "tile",
                f"tile {rows}x{columns} in a {cluster_m}x{cluster_n} cluster: {operand}'s {extent} rows are fetched in "
                f"{sharers} slices of whole {unit}-row groups",
                phase=1,
            )


def _register_rules(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    rows, columns = config.tile
    plan = config.warps(chip, spec)
    launch = plan.launch_registers(chip.registers)
    share = plan.mma.registers or launch
    headroom = DIRECT_HEADROOM if spec.store == "direct" else STAGED_HEADROOM
    limit = share - (BIAS_HEADROOM if spec.functions.bias is not None else headroom)
    if columns // 2 > launch - INSTRUCTION_HEADROOM:
        yield Violation(
            "launch registers",
            "tile",
            f"tile N={columns} with {config.consumers} consumers: one instruction's {columns // 2} accumulators do not "
            f"fit the {launch} registers a thread is launched with",
            phase=2,
        )
    if config.accumulators > limit:
        yield Violation(
            "accumulators",
            "tile",
            f"tile {rows}x{columns} over {config.consumers} consumers: {config.accumulators} accumulators a thread are "
            f"{config.accumulators - limit} more than fit its {share} registers beside the epilogue",
            phase=2,
        )


def _shared_memory_rules(config: MatmulConfig, chip: Target, spec: MatmulSpec) -> Iterator[Violation]:
    budget, least = config.stage_budget(chip, spec), 1 + config.in_flight
    if budget < least:
        output = config.output_bytes(spec)
        yield Violation(
            "shared memory",
            "tile",
            f"shared memory: {least} stages of {config.stage_bytes(spec)} B and {output} B of output slabs are "
            f"{config.shared_bytes(spec, least) - chip.shared_bytes} B over the {chip.shared_bytes} B of a CTA; the "
            f"{'input stages' if least * config.stage_bytes(spec) > output else 'output slabs'} are the largest object",
            phase=2,
        )
    elif config.stages is not None and not least <= config.stages <= budget:
        over = config.shared_bytes(spec, config.stages) - chip.shared_bytes
        why = (
            f"in_flight={config.in_flight} holds one stage back"
            if config.stages < least
            else f"{over} B over the {chip.shared_bytes} B of a CTA"
            if over > 0
            else "more hide no more latency"
        )
        yield Violation("stages", "stages", f"stages={config.stages}: {least} to {budget} fit ({why})", phase=2)

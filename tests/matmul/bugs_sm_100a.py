"""All bugs that are planted in Blackwell matmuls, miscounted barriers among them, and changes that are no bugs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.matmul.broken_sm_100a import Broken, Edits, count, no_throttle, removed, waits_removed, without
from tests.matmul.bugs_sm_100a_output import BUGS_OUTPUT
from tests.matmul.bugs_sm_100a_rings import BUGS_RINGS
from tests.matmul.bugs_sm_100a_tensor import AFTER, BUGS_TENSOR
from tests.mutations.statements import Program

BROKEN: tuple[Broken, ...] = (*BUGS_TENSOR, *BUGS_RINGS, *BUGS_OUTPUT)
"""One bug each."""

BARRIERS: dict[str, tuple[str, ...]] = {
    "pair": tuple(
        f"{ring}.{side}"
        for ring, sides in (("inputs", "full empty"), ("accumulators", "full empty"), ("clc", "full empty began asked"))
        for side in sides.split()
    ),
    "residual": ("residual.full", "residual.empty"),
    "load order": ("load_order",),
}
"""By kernel, the barriers that are made to wait for an arrival too few or too many: every one there is."""


def miscounted() -> Iterator[Broken]:
    """Every barrier with an arrival count one too low, and one too high."""
    for kernel, arrays in BARRIERS.items():
        for array in arrays:
            name = re.escape(array)
            name += r"\[\d\]" if "." in array else ""
            low = rf"{name}: initialised with count 0|{name} phase \d|{name}: phase \d"
            yield Broken(f"count of {array} too low", kernel, count(array, -1), "", low, r"role \w+ \(warp")
            high = rf"role \w+ \(warps? [\d-]+\) waits for {name} phase \d"
            yield Broken(f"count of {array} too high", kernel, count(array, 1), "deadlock", high)


def _no_fence_after_claims(program: Program) -> Edits:
    found = []
    for index, s in enumerate(program.statements):
        if s.is_a("clusterlaunchcontrol.query_cancel.is_canceled"):
            found.append(next(f for f in program.statements[index:] if f.is_a("fence.proxy.async")))
    return without(*found)


HARMLESS: tuple[tuple[Broken, str], ...] = (
    (
        Broken("the permit to allocate kept", "pair", removed("mma", "tcgen05.relinquish_alloc_permit")),
        "Only another CTA on the same multiprocessor would miss the permit, and only if it allocates later. "
        "`tilekit lint` says so.",
    ),
    (
        Broken("no throttle", "pair", no_throttle),
        "The throttle is for speed: without it a cluster claims tiles that another could begin sooner.",
    ),
    (
        Broken("no proxy fence after a claim is read", "deep", _no_fence_after_claims),
        "The PTX ISA's example has it, between a read and the asynchronous write of the next answer, and so has the "
        "kernel. The emulator asks for a proxy fence between a write and an asynchronous access only: reads that a "
        "barrier orders before a copy need none in kernels that are known to work.",
    ),
    (
        Broken("no fence of the barriers' initialisation", "pair", removed("setup", "fence.mbarrier_init")),
        "The cluster's barrier behind it releases the initialisation as well.",
    ),
    (
        Broken("the residual loaded before the operands", "load order", waits_removed("epilogue_load", "load_order")),
        "The order is for speed: operands are needed from the start, the residual once a tile is multiplied.",
    ),
    (
        Broken("one fence less before the matrix instructions", "pair", removed("mma", AFTER, number=1)),
        "Each block of K begins with a fence of its own, after the wait for its operands.",
    ),
)
"""Changes that nothing reports, and why."""

"""The rules of `GemvConfig`: threads, loads on their way, and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilekit.heuristics.rules import Choice, RuleBook, Violation
from tilekit.kernels.gemv.spec import VECTOR, GemvSpec
from tilekit.targets import Target

if TYPE_CHECKING:
    from tilekit.kernels.gemv.config import GemvConfig

MAX_UNITS = 64
"""Warps of a cluster: what one thread adds up at the end of a tile."""

REGISTERS = 128
"""Registers of a thread, so that an SM holds 512 threads: this kernel's, and the first CTAs of the next one."""

MAX_LOADS = 16
"""Loads of 16 bytes that a thread has on their way: for more, `REGISTERS` have no room (ptxas 13.5.37, as below)."""

NARROW_THREADS = 256
"""Threads of a CTA with loads narrower than 16 bytes, whose addresses and parts take up to 255 registers."""

GROUPS = Choice("groups", (1, 2, 4), "1, 2 or 4 groups of columns")
DEPTH = Choice("depth", range(1, 9), "1 to 8 slots of a warp")
WARPS = Choice("warps", (2, 4, 8, 16), "2, 4, 8 or 16")
CLUSTER = Choice("cluster", (1, 2, 4, 8), "1, 2, 4 or 8 CTAs that divide K")
CTAS_PER_SM = Choice("ctas_per_sm", (1, 2, 4, 8), "1, 2, 4 or 8")
PREFETCH = Choice("prefetch", range(9), "0 to 8 steps of a CTA")
L2_BYTES = Choice("l2_bytes", (128, 256), "128 or 256")
OVERLAP = Choice("overlap", range(1, 65), "1 to 64 steps")


def _units(config: GemvConfig, chip: Target, spec: GemvSpec) -> Iterator[Violation]:
    if config.units > MAX_UNITS:
        parts = f"{config.warps} warps in {config.cluster} CTAs divide K into {config.units} parts, {MAX_UNITS} at most"
        yield Violation("units", "cluster", parts)


def _threads(config: GemvConfig, chip: Target, spec: GemvSpec) -> Iterator[Violation]:
    threads = chip.registers // REGISTERS
    if config.ctas_per_sm * config.threads > threads:
        yield Violation(
            "threads",
            "ctas_per_sm",
            f"ctas_per_sm={config.ctas_per_sm} of {config.threads} threads: an SM holds {threads} threads of "
            f"{REGISTERS} registers",
        )


def _loads(config: GemvConfig, chip: Target, spec: GemvSpec) -> Iterator[Violation]:
    width = min(spec.a_access, spec.b_access)
    if width < VECTOR:
        for field in ("groups", "depth"):
            given = getattr(config, field)
            if given != 1:
                text = f"{field}={given}: loads of {width} bytes leave room for one slot of one group"
                yield Violation(f"narrow {field}", field, text)
        if config.threads > NARROW_THREADS:
            text = f"warps={config.warps}: loads of {width} bytes leave room for {NARROW_THREADS} threads"
            yield Violation("narrow warps", "warps", text)
    elif config.loads(spec) > MAX_LOADS:
        one = replace(config, depth=1).loads(spec) <= MAX_LOADS
        text = f"a thread has {config.loads(spec)} loads of 16 bytes on their way, and registers for {MAX_LOADS}"
        yield Violation("loads", "depth" if one else "groups", text)


def _sums(config: GemvConfig, chip: Target, spec: GemvSpec) -> Iterator[Violation]:
    size = config.shared_bytes(spec)
    if size > chip.shared_bytes:
        text = f"the warps' sums take {size} bytes of shared memory, {chip.shared_bytes} at most"
        yield Violation("sums", "cluster", text)


def _values(field: str, config: GemvConfig, chip: Target, spec: GemvSpec) -> Sequence[Any]:
    raise KeyError(field)  # every field is a choice


def _least(config: GemvConfig) -> str:
    return "groups=1, depth=1, warps=2, cluster=1, ctas_per_sm=1"


RULES = RuleBook(
    phases=(
        (GROUPS, DEPTH, WARPS, CLUSTER, CTAS_PER_SM, PREFETCH, L2_BYTES, OVERLAP),
        (_units, _threads, _loads, _sums),
    ),
    values=_values,
    fallbacks=("cluster", "groups", "depth", "warps"),
    least=_least,
)
"""Fields by themselves; registers and shared memory."""

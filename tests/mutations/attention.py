"""Attention broken on purpose: small launches of whole arrays, caches and packed sequences, some mutations of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import tilekit
from tests.attention.caches import CacheCase
from tests.attention.cases import Called, Case
from tests.attention.packed import PackedCase
from tilekit import AttentionConfig, BlackwellAttentionConfig
from tilekit.emulator import Device, LaunchReport, TensorMap
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import AttentionKernel
from tilekit.kernels.attention.packed import STARTS
from tilekit.runtime.parameters import pack
from tilekit.targets import ChipName

from .launches import STEP_BUDGET, Arguments
from .mutation import Mutation, mutations

EVERY, EVERY_PACKED = 29, 11
"""Of the mutations of a launch, one in so many is tried; of packed sequences, whose tiles are searched for, more."""

UNITS = 2
"""CTAs that run at once, where a launch does not say: each has several tiles, so that every ring wraps."""


@dataclass(frozen=True)
class AttentionCase:
    """A call and a config, small enough to run hundreds of times."""

    name: str
    chip: ChipName
    case: Called
    config: Any
    words: str
    units: int = UNITS

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        """The call's arrays as its arguments are named."""
        return self.case.call(11)[0]

    @cached_property
    def _given(self) -> AttentionArguments:
        out, lse = self.case.outputs()
        return AttentionArguments.parse(**self._arrays, out=out, lse=lse, target=self.chip, **self.case.options)

    @cached_property
    def kernel(self) -> AttentionKernel:
        """The compiled kernel."""
        kernel = tilekit.compile(self._given.spec, self.chip, self.config)
        assert isinstance(kernel, AttentionKernel)
        return kernel

    @cached_property
    def text(self) -> str:
        """Its PTX."""
        return self.kernel.ptx

    @cached_property
    def expected(self) -> tuple[Any, Any]:
        """What the unbroken kernel computes, which depends on no order."""
        return self._run(self.text, "fair", 0, lambda arguments: arguments)[1]

    def run(
        self,
        text: str,
        schedule: Any,
        seed: int,
        change: Callable[[Arguments], Arguments] = lambda arguments: arguments,
    ) -> tuple[LaunchReport, bool]:
        """Launch `text` in the kernel's place; return the report, and whether results and counters are right."""
        right = self.expected
        report, found, zeroed = self._launched(text, schedule, seed, change)
        return report, zeroed and all(map(np.array_equal, found, right))

    def _run(self, *how: Any) -> tuple[LaunchReport, tuple[Any, Any]]:
        report, found, _ = self._launched(*how)
        return report, found

    def _launched(
        self, text: str, schedule: Any, seed: int, change: Callable[[Arguments], Arguments]
    ) -> tuple[LaunchReport, tuple[Any, Any], bool]:
        given, kernel = self._given, self.kernel
        device = Device(self.chip, schedule=schedule, seed=seed, multiprocessors=self.units)
        arrays = dict(self._arrays)
        if (lengths := arrays.pop("lengths", None)) is not None:
            arrays |= zip(STARTS, lengths if isinstance(lengths, tuple) else (lengths, lengths), strict=True)
        arrays |= zip(("o", "lse"), self.case.outputs(), strict=True)
        buffers = {name: device.buffer(array, name) for name, array in arrays.items()}
        own: dict[str, Any] = {}

        def scratch(name: str, size: int) -> int:
            own[name] = device.buffer(np.zeros(size, np.uint8), name)
            return int(own[name].address)

        addresses = {name: buffer.address for name, buffer in buffers.items()}
        launch = kernel.launch(given.call(addresses, self.units, scratch))
        named = dict(zip((one.name for one in kernel.parameters), launch.parameters, strict=True))
        report = device.load(text)[kernel.name].launch(
            grid=launch.grid,
            block=kernel.threads,
            shared_bytes=kernel.launch_bytes,
            params=pack(list(change(named).values()), TensorMap.encode).data,
            step_budget=STEP_BUDGET,
        )
        zeroed = not any(buffer.read().any() for name, buffer in own.items() if "count" in name or "claim" in name)
        bits = tuple(buffers[name].read().view(np.uint8) for name in ("o", "lse"))
        return report, (bits[0], bits[1]), zeroed


# Slack is such that in every launch on sm_90a some maxima are raised and others kept.
ALONE = AttentionConfig(1, 48, 2, turns=False, slack=4)
CACHED = replace(ALONE, slack=3)
PAIR = AttentionConfig(2, 48, 2, slack=3)
PACKED = replace(PAIR, query_stages=2, ahead=False)
BLACKWELL = BlackwellAttentionConfig(2, 48, 2, slack=1)
SINGLE = replace(BLACKWELL, tiles=1)


@cache
def attention_cases() -> dict[str, AttentionCase]:
    """The launches by name."""
    masked = Case(2, 150, 150, 2, 1, 64, 64, options={"causal": True})
    wide = replace(masked, queries=260, keys=100)
    few = Case(3, 5, 400, 2, 1, 64, 64, options={"scale": 0.25})
    shared = replace(few, batch=1, keys=1290)
    paged = CacheCase((133, 0, 71), 16, 70, 2, 1, 64)
    packed = PackedCase((71, 40, 149, 1, 131), (71, 40, 149, 1, 131), 2, 1, 64, 64, options={"causal": True})
    # 300: enough whole blocks in a row that warpgroups whose turns are not awaited come out of step.
    longer = replace(packed, queries=(71, 40, 300, 1, 131), keys=(71, 40, 300, 1, 131))
    every = (
        AttentionCase("sm_90a, causal", "sm_90a", masked, PAIR, "150 queries and keys"),
        AttentionCase("sm_90a, few queries", "sm_90a", few, ALONE, "5 queries, 400 keys"),
        AttentionCase("sm_90a, many shares", "sm_90a", shared, ALONE, "5 queries, 1290 keys in 9 shares", units=9),
        AttentionCase("sm_90a, paged", "sm_90a", paged, CACHED, "70 queries; 133, 0 and 71 keys in blocks of 16"),
        AttentionCase("sm_90a, packed", "sm_90a", longer, PACKED, "causal, 71, 40, 300, 1 and 131 positions"),
        AttentionCase("sm_100a, causal", "sm_100a", wide, BLACKWELL, "260 queries, 100 keys"),
        AttentionCase("sm_100a, packed", "sm_100a", packed, SINGLE, "causal, 71, 40, 149, 1 and 131 positions"),
    )
    return {case.name: case for case in every}


def tried(case: AttentionCase) -> list[Mutation]:
    """The mutations of a launch that are tried."""
    return mutations(case.text)[:: EVERY_PACKED if case.name.endswith("packed") else EVERY]


UNNOTICED: tuple[tuple[str, str], ...] = (
    (
        r"sm_\w+, packed: load _Boxes\._box: cp\.async\.bulk\.tensor\.4d\.global #(5|8): .*",
        "zeros for the values of a sequence without keys, of which there is none here "
        "(`test_more_ctas_than_tiles` has one)",
    ),
    (
        r"sm_90a, paged: load _Boxes\._box: cp\.async\.bulk\.tensor\.4d\.global( #17)?: .*",
        "an entry whose last keys fill a stage, or that has a single one, of which there is none here "
        "(`test_ends_at_and_beside_a_tile` has both)",
    ),
    (
        r".*(wgmma\.mma_async|tcgen05\.mma\S*)( #\d+)?: [AB]: leading byte offset 16 more",
        "operands along K whose rows are one swizzle span, and values of one slice, have no leading byte offset",
    ),
    (
        r".*tcgen05\.mma\S*( #\d+)?: exchanged with the one before",
        "the factors of two products of one sum change places: what is added first makes no difference here",
    ),
    (
        r"sm_90a.*: mma BoundHeadEpilogue\.finish: bar\.warp: removed",
        "the role ends there: the lanes do nothing more",
    ),
    (
        r".*: bar\.warp( #\d+)?: removed",
        "the lanes run together there already, and the arrival behind it is of a warp that does",
    ),
    (
        r".*fence\.mbarrier_init\.release\.cluster: removed",
        "the barrier that follows has release semantics and publishes the initialised barriers too",
    ),
    (
        r"sm_100a, causal: load (EngineProducer\.tail|RingPosition\.advance: (add|xor) #(7|8|9|10)): .*"
        r"|sm_100a, causal: load EngineProducer\.tail: bra( #\d+)?: never taken",
        "at the end of the role: the ring's position is not used again",
    ),
    (
        r"sm_100a, causal: softmax RowGiver\.give: mbarrier\.try_wait #[23]: removed"
        r"|sm_100a, causal: correction RowTaker\.take: mbarrier\.arrive( #[23])?: relaxed",
        "the scores that the softmax has read were multiplied behind the correction's release, by which it says that "
        "sums fit, and that comes behind taking the pair",
    ),
    (
        r"sm_90a.*: mma BoundSoftmax\.pin: st\.shared\.v2( #\d+)?: removed",
        "no thread executes the store, which is there for ptxas: its guard asks for more keys than a call may have",
    ),
    (
        r"sm_90a, few queries: mma BoundSharedHeads\._add_up: setp\.lt: one iteration fewer",
        "a tile has two shares, and the loop, which takes eight at a time, runs once (`many shares` has nine)",
    ),
    (
        r"sm_90a, many shares: mma ArriveConsumer\.consumer_release: mbarrier\.arrive #5: doubled",
        "each CTA has one tile here, whose last stage is not filled again",
    ),
    (
        r"sm_90a.*: mma BoundHeadEpilogue\.store: fence\.proxy\.async: behind the barrier",
        "the thread that starts the copy executes the fence as well, which may stand anywhere on the path to the copy",
    ),
    (
        r"sm_90a, packed: mma PackedHeadStorer\.store: setp\.lt: one iteration more",
        "the rows behind the tile's last one lie behind their sequence's end too, and are not stored",
    ),
)
"""Launches and names of mutations that nothing shows, as regular expressions, and why each is harmless."""


def why_unnoticed(launch: str, name: str) -> str | None:
    """Why a mutation of a launch goes unnoticed, where it is known."""
    return next((why for pattern, why in UNNOTICED if re.fullmatch(pattern, f"{launch}: {name}")), None)

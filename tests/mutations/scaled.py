"""Block-scaled products broken on purpose: what loads scales, brings them to tensor memory, multiplies and quantises.

What such a kernel shares with other matmuls is broken elsewhere. Here it is what only these have, and of the whole text
one mutation in so many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import tilekit
from tests.block_scaled.operands import draw, without_numbers_behind
from tilekit.emulator import Device, LaunchReport, TensorMap
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.kernels.launch_call import Addresses
from tilekit.runtime.parameters import pack

from .conv2d import _arithmetic
from .launches import STEP_BUDGET, Arguments
from .mutation import SCRATCH, Changes, Mutation, instead, mutations, scoped
from .statements import Program, Statement

OWN = re.compile(
    r"\w+ (BoundScaleLoader|BoundBlockScaled|BoundQuantised|_FromRegisters|_ScaleRows|_ScaleAtoms|BoundRowImages|"
    r"pack_elements|pack_narrow|_store_byte|store_element)\b"
)
"""Components that only these kernels have, and what packs and stores elements for them."""

FIRST = 2
"""How many instructions of a kind are changed at a site: the others are the same code, unrolled."""

EVERY = 23
"""Of the mutations of what is shared with other matmuls, one in so many is tried."""

BESIDE = 64
"""Bytes of each result's rows that belong to something else."""


@dataclass(frozen=True)
class ScaledCase:
    """A product and a config, small enough to run hundreds of times.

    Attributes
    ----------
    kind, shape
        Format of the operands, and M, N and K.
    keywords
        Of the call.
    """

    name: str
    kind: str
    shape: tuple[int, int, int]
    config: Any
    keywords: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Operands, with scales as the tensor core reads them and no numbers where there are no rows."""
        p = draw(self.kind, *self.shape, seed=11, spread=True)
        # The memory that rows are cut from; e2m1 of a byte each are packed as a call packs them.
        sides = {"a": p.a, "b": p.b.T}
        if self.kind != "mxfp8":
            sides = {name: _pairs(one) for name, one in sides.items()}
        sides["a"][3] = 0
        scales = {"scale_a": without_numbers_behind(p.scale_a), "scale_b": without_numbers_behind(p.scale_b)}
        bias = np.random.default_rng(1).normal(0, 3, self.shape[1]).astype(np.float32)
        bias[:32] = 0  # with the row of zeros a block of zeros
        if self.keywords.get("out_dtype") == "mxfp8":
            bias[40] = np.inf
        return {**sides, **scales, "bias": bias}

    @cached_property
    def _given(self) -> tuple[BlockScaledArguments, dict[str, Any]]:
        given = self.inputs
        m, n, _ = self.shape
        results: dict[str, Any] = {"out": np.zeros((m, n), np.float32)}
        if "out_dtype" in self.keywords:
            made = tilekit.quantise(np.ones((m, n), np.float32), self.keywords["out_dtype"])
            scales = made.scales if "scale_layout" not in self.keywords else tilekit.lay_out_scales(made.scales)
            results = {"out": made.values, "out_scales": scales}
        memory, views = {}, {}
        for name, one in results.items():
            width = one.shape[-1] * one.dtype.itemsize
            beside = 0 if len(one.shape) > 2 else BESIDE  # laid out, scales lie behind each other
            memory[name] = np.full((*one.shape[:-1], width + beside), 0xAA, np.uint8)
            views[name] = memory[name][..., :width].view(one.dtype)
        out: Any = tuple(views.values()) if len(views) > 1 else views["out"]
        call = BlockScaledArguments.parse(
            given["a"], given["b"].T, given["scale_a"], given["scale_b"], bias=given["bias"], out=out,
            config=self.config, target="sm_100a", **self.keywords,
        )  # fmt: skip
        return call, memory

    @cached_property
    def kernel(self) -> Any:
        """The compiled kernel."""
        return tilekit.compile(self._given[0].spec, "sm_100a", self.config)

    @cached_property
    def text(self) -> str:
        """Its PTX."""
        return str(self.kernel.ptx)

    @cached_property
    def expected(self) -> dict[str, Any]:
        """What the unbroken kernel leaves in the results' memory, which depends on no order."""
        return self._launched(self.text, "fair", 0, lambda arguments: arguments)[1]

    def run(
        self,
        text: str,
        schedule: Any,
        seed: int,
        change: Callable[[Arguments], Arguments] = lambda arguments: arguments,
    ) -> tuple[LaunchReport, bool]:
        """Launch `text` in the kernel's place; return the report, and whether the results' memory is right."""
        right = self.expected
        report, found = self._launched(text, schedule, seed, change)
        return report, all(np.array_equal(found[name], right[name]) for name in right)

    def _launched(
        self, text: str, schedule: Any, seed: int, change: Callable[[Arguments], Arguments]
    ) -> tuple[LaunchReport, dict[str, Any]]:
        (call, memory), kernel = self._given, self.kernel
        device = Device("sm_100a", schedule=schedule, seed=seed, multiprocessors=self.config.cluster_size)
        inputs = {name: one if one.base is None else one.base for name, one in self.inputs.items()}
        buffers = {name: device.buffer(one.copy(), name) for name, one in {**inputs, **memory}.items()}
        kept = []

        def scratch(name: str, size: int) -> int:
            kept.append(device.buffer(np.zeros(size, np.uint8), name))
            return int(kept[-1].address)

        addresses = Addresses.of({name: buffer.address for name, buffer in buffers.items()})
        launch = kernel.launch_of(call.call, addresses, 1, scratch)
        named = dict(zip((p.name for p in kernel.text.parameters), launch.parameters, strict=True))
        report = device.load(text)[kernel.name].launch(
            grid=launch.grid,
            block=kernel.text.threads,
            shared_bytes=kernel.text.shared_bytes,
            params=pack(list(change(named).values()), TensorMap.encode).data,
            step_budget=STEP_BUDGET,
        )
        return report, {name: buffers[name].read() for name in memory}


def _pairs(values: Any) -> Any:
    """e2m1 in pairs, rows padded to 16 bytes, the padding no zeros."""
    codes = values.view(np.uint8)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    wide = np.full((len(packed), -(-packed.shape[1] // 16) * 16), 0x77, np.uint8)
    wide[:, : packed.shape[1]] = packed
    return wide[:, : packed.shape[1]]


@cache
def scaled_cases() -> dict[str, ScaledCase]:
    """The launches by name."""
    single = tilekit.BlackwellConfig(
        tile=(128, 128), accumulator_stages=1, clc_stages=0, cta_group=1, cluster=(1, 1), stages=2, output_buffers=1
    )
    pair = replace(single, tile=(128, 256), cta_group=2, cluster=(2, 1))
    every = (
        ScaledCase("nvfp4, a pair", "nvfp4", (260, 260, 416), replace(pair, tile=(128, 128))),
        ScaledCase("to mxfp8, 128x4", "mxfp8", (130, 272, 160), replace(single, tile=(128, 256)),
                   {"out_dtype": "mxfp8", "scale_layout": "128x4"}),
        ScaledCase("to nvfp4, rows, stored by threads", "mxfp4", (130, 136, 160), single,
                   {"out_dtype": "nvfp4", "out_scale": 0.75, "activation": "relu"}),
    )  # fmt: skip
    return {case.name: case for case in every}


def scaled_mutations(case: ScaledCase) -> Iterator[Mutation]:
    """Every mutation of a launch that is tried: of the family's own components all, of others one in `EVERY`."""
    every = mutations(case.text)
    own = [m for m in every if OWN.match(m.site)]
    yield from (m for m in own if m.ordinal < FIRST)
    seen: Counter[tuple[str, str, str]] = Counter()
    for statement in Program.read(case.text).statements:
        if not OWN.match(statement.site) and ".block_scale." not in statement.opcode:
            continue
        for change, edits in _changes(statement):
            key = (statement.site, statement.opcode, change)
            if seen[key] < FIRST:
                yield Mutation("arithmetic", statement.opcode, statement.site, change, edits, seen[key])
            seen[key] += 1
    yield from [m for m in every if not OWN.match(m.site)][::EVERY]


def _changes(s: Statement) -> Changes:
    """What arithmetic of other loaders has, and sizes, conversions, copies of scales and instructions' descriptors."""
    if not s.opcode.endswith(".f32"):
        yield from _arithmetic(s)
    elif s.is_a("add", "mul"):
        yield "second operand left out", instead(s, s.written("mov.f32", s.operands[:2]))
    if s.is_a("max.u32"):
        yield "the smaller", instead(s, s.written("min.u32"))
    elif s.is_a("shl", "shr"):
        yield "not shifted", instead(s, s.written("mov.b32", s.operands[:2]))
    elif s.is_a("and.b32"):
        yield "not masked", instead(s, s.written("mov.b32", s.operands[:2]))
    elif s.is_a("or.b32"):
        yield "the second left out", instead(s, s.written("mov.b32", s.operands[:2]))
    elif s.is_a("setp.gt", "setp.eq"):
        other = s.opcode.replace(".gt.", ".lt.").replace(".eq.", ".ne.")
        yield "otherwise", instead(s, s.written(other))
    elif s.is_a("div.rn"):
        yield "not divided", instead(s, s.written("mov.f32", s.operands[:2]))
    elif s.is_a("cvt.rn.satfinite.e4m3x2"):
        yield "e5m2", instead(s, s.written(s.opcode.replace("e4m3", "e5m2")))
        yield "exchanged", instead(s, s.written(operands=(s.operands[0], s.operands[2], s.operands[1])))
    elif s.is_a("cvt.rn.satfinite.e2m1x2"):
        yield "exchanged", instead(s, s.written(operands=(s.operands[0], s.operands[2], s.operands[1])))
    elif s.is_a("tcgen05.cp"):
        yield "removed", instead(s, "")
        changed = f"add.u32 {SCRATCH}, {s.operands[0].strip('[]')}, 4;"
        yield "4 columns on", scoped(s, "b32", changed, s.with_operand(0, f"[{SCRATCH}]"))
    elif s.is_a("tcgen05.mma"):
        yield "removed", instead(s, "")
        *_, descriptor, scale_a, scale_b, _ = s.operands
        at = s.operands.index(descriptor)
        if descriptor.isdigit():
            for bit in (4, 23, 29):
                yield f"descriptor's bit {bit}", instead(s, s.with_operand(at, str(int(descriptor) ^ 1 << bit)))
        operands = (*s.operands[: at + 1], scale_b, scale_a, s.operands[-1])
        yield "scales exchanged", instead(s, s.written(operands=operands))


UNNOTICED: tuple[tuple[str, str], ...] = (
    (
        r".*: mma BoundBlockScaled\.__init__\.listcomp: (and|or)\.b32( #2)?: .*",
        "images lie below 256 KiB, and a copy of one column of 16 bytes has no leading byte offset",
    ),
    (
        r".*: mma BoundTcgen05\.multiply: tcgen05\.mma\S*( #\d+)?: [AB]: leading byte offset 16 more",
        "operands along K whose rows are one swizzle span have no leading byte offset",
    ),
    (
        r".*: setup MbarrierSync\.initialise: fence\.mbarrier_init\.release\.cluster: removed",
        "the barrier that follows has release semantics and publishes the initialised barriers too",
    ),
    (
        r"nvfp4, a pair: load WarpSpecialized\._load: setp\.lt: one iteration more",
        "K ends inside its last k-block",
    ),
    (
        r"nvfp4, a pair: epilogue BoundStagedEpilogue\._leave: fence\.proxy\.async( #\d+)?: behind the barrier",
        "the thread that starts the copy executes the fence as well, which may stand anywhere on the path to the copy",
    ),
    (
        r".*: epilogue BoundRowImages\.(piece: bra( #2)?|finish: bra): never taken"
        r"|.*: epilogue BoundRowImages\.__init__: setp\.eq\.u32: otherwise",
        "other lanes wait for stores of their own, and store the same bytes: stores that change nothing race with none",
    ),
    (
        r".*: epilogue BoundRowImages\.(piece|finish): bar\.warp: removed",
        "the emulator has lanes run together again behind a branch, as GPUs do where nothing keeps them apart, and PTX "
        "does not promise",
    ),
    (
        r".*: epilogue (_ScaleAtoms\.at\.keep: st\.global: guard dropped"
        r"|BoundQuantised\._applied: (setp\.lt\.u32( #2)?: one more|add\.u32: second operand left out|selp.*the first)"
        r"|(_FromRegisters\.piece|_ScaleRows\.at|_ScaleAtoms\.at)\.keep: "
        r"(and\.pred( #2)?: second|setp\.lt\.u32( #2)?: one more|add\.u32( #2)?: second).*)",
        "the first two columns of a tile, and its first scales, are always the result's",
    ),
    (
        r"to mxfp8, 128x4: epilogue _ScaleAtoms\.at: setp\.lt\.u32 #2: one more"
        r"|to mxfp8, 128x4: epilogue _ScaleAtoms\.at\.keep: and\.pred( #2)?: first condition left out",
        "no tile begins behind the last row (in `test_scales_laid_out` one does)",
    ),
    (
        r"to nvfp4.*: load BoundScaleLoader\.load: (shr\.u32( #2)?: not shifted|mul\.lo\.u32 #2: .*)",
        "K is one k-block, which begins with 0",
    ),
    (
        r"to nvfp4.*: epilogue BoundQuantised\._divided: and\.b32( #2)?: not masked",
        "relu leaves no negative number",
    ),
    (
        r"to mxfp8, 128x4: epilogue BoundQuantised\._power: (selp\.u32 #2: always the second|shl\.b32 #2: not shifted)",
        "of a tile's first two blocks the second alone has no numbers, and its elements mean nothing "
        "(`test_numbers_of_all_sizes`)",
    ),
    (r"to nvfp4.*: epilogue _store_byte: cvt\.rn\.satfinite\.e2m1x2\.f32 #2: exchanged", "both are zero"),
    (r"to nvfp4.*: epilogue BoundQuantised\._quotient: cvt\.u16\.u32( #\d+)?: zero", "it is zero"),
)
"""Launches and names of mutations that nothing shows, as regular expressions, and why each is harmless."""


def why_unnoticed(launch: str, name: str) -> str | None:
    """Why a mutation of a launch goes unnoticed, where it is known."""
    return next((why for pattern, why in UNNOTICED if re.fullmatch(pattern, f"{launch}: {name}")), None)

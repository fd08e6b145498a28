"""Convolutions whose loaders are broken on purpose: five launches, and what is changed in them.

What a load role shares with other kernels' is broken elsewhere. Here it is what only these loaders have: their copies
and stores, the arithmetic that finds pixels and places, the im2col map, and the numbers that the host passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import tilekit
from tests.conv2d.convolutions import Convolution
from tests.conv2d.test_conv2d_gradients import Gradients
from tilekit import AmpereConfig, MatmulConfig
from tilekit.arrays import view_of
from tilekit.dtypes import as_dtype
from tilekit.emulator import Device, LaunchReport, TensorMap
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.conv2d.phased import PhasedArguments
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.runtime.parameters import U32, pack
from tilekit.targets import target
from tilekit.tiles.call import Scratch

from .launches import STEP_BUDGET, Arguments
from .mutation import Changes, Mutation, instead, mutations
from .statements import Program, Statement

OWN = re.compile(
    r"load (Pixels|Places|corner|GatheredRows|BoundGather)\b|mma (Pixel|Digits|Places|corner|GatheredRows|BoundPixel)"
    r"|(load|mma) (Phase|Along)"
)
"""Components that only convolutions have."""

COUNTS = re.compile(r"[ab]_|(out_)?phase_")
"""Numbers that the host passes to them."""

FIRST, OF_PHASES = 3, 6
"""How many instructions of a kind are changed at a site: the others are the same code, unrolled. Three components ask
for a phase, down and along."""


@dataclass(frozen=True)
class ConvCase:
    """A convolution and a config, small enough to run hundreds of times."""

    name: str
    case: Convolution

    @property
    def first(self) -> int:
        """Instructions of a kind that are changed at a site."""
        return FIRST

    @property
    def shape(self) -> str:
        """Its operands, in words."""
        return f"{'x'.join(map(str, self.case.x))} by {'x'.join(map(str, self.case.w))}"

    @cached_property
    def _arguments(self) -> MatmulArguments:
        arrays, case = self.arrays, self.case
        return ConvArguments.parse(arrays["x"], arrays["w"], target=case.chip, **case.keywords)

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Images, whose pixels have NaN between them, and filters."""
        return self.case.arrays()

    @cached_property
    def expected(self) -> Any:
        """The exact result."""
        return self.case.expected(self.arrays).astype(as_dtype(self.case.out).numpy)

    @cached_property
    def kernel(self) -> Any:
        """The compiled kernel."""
        return tilekit.compile(self._arguments.spec, self.case.chip, self.case.config)

    @property
    def text(self) -> str:
        """Its PTX."""
        return str(self.kernel.ptx)

    @cached_property
    def parameters(self) -> Arguments:
        """What an unbroken launch is given, with addresses that nothing lies at."""
        return self._launched(Addresses(a=1 << 20, b=1 << 21, out=1 << 22), lambda name, size: 1 << 23)[1]

    def _launched(self, addresses: Addresses, scratch: Scratch) -> tuple[Any, Arguments]:
        launch = self.kernel.launch_of(self._arguments.call, addresses, 1, scratch)
        return launch, dict(zip((p.name for p in self.kernel.text.parameters), launch.parameters, strict=True))

    def run(
        self,
        text: str,
        schedule: Any,
        seed: int,
        change: Callable[[Arguments], Arguments] = lambda arguments: arguments,
    ) -> tuple[LaunchReport, bool]:
        """Launch `text` in the kernel's place for one cluster; return the report, and whether the result is right."""
        device = Device(
            self.case.chip,
            schedule=schedule,
            seed=seed,
            multiprocessors=self.case.config.cluster_size,  # type: ignore[union-attr]
        )
        x, w, expected = self.arrays["x"], self.arrays["w"], self.expected
        out = np.full(expected.shape, np.nan, expected.dtype)
        memory = x if x.base is None else x.base  # with what lies between the pixels
        buffers = device.buffer(memory, "x"), device.buffer(w, "w"), device.buffer(out, "out")
        kept = []

        def scratch(name: str, size: int) -> int:
            kept.append(device.buffer(np.zeros(size, np.uint8), name))
            return kept[-1].address

        launch, named = self._launched(Addresses(*(buffer.address for buffer in buffers)), scratch)
        report = device.load(text)[self.kernel.name].launch(
            grid=launch.grid,
            block=self.kernel.text.threads,
            shared_bytes=self.kernel.text.shared_bytes,
            params=pack(list(change(named).values()), TensorMap.encode).data,
            step_budget=STEP_BUDGET,
        )
        with np.errstate(invalid="ignore"):
            return report, bool(np.array_equal(buffers[2].read(), expected))


@dataclass(frozen=True)
class PhasedCase(ConvCase):
    """The gradient of images with a stride, in one launch: a convolution over the result's gradient, ``x``.

    Attributes
    ----------
    gradients
        The convolution that it is of.
    """

    gradients: Gradients

    @property
    def first(self) -> int:
        """Instructions of a kind that are changed at a site."""
        return OF_PHASES

    @property
    def shape(self) -> str:
        """Its operands, in words."""
        return f"gradient of {'x'.join(map(str, self.gradients.x))}, of {'x'.join(map(str, self.gradients.w))}"

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The result's gradient, whose pixels have NaN between them, and filters."""
        draws, dtype = np.random.default_rng(self.gradients.seed), self.gradients.dtype
        apart = np.full((*self.gradients.result[:3], self.gradients.result[3] + self.case.gap), np.nan, dtype)
        dy = apart[..., : self.gradients.result[3]]
        dy[...] = draws.integers(-2, 3, dy.shape)
        return {"x": dy, "w": draws.integers(-2, 3, self.gradients.w).astype(dtype)}

    @cached_property
    def expected(self) -> Any:
        """The exact gradient."""
        dy, w = (self.arrays[name].astype(np.float64) for name in "xw")
        return self.gradients.expected(np.zeros(self.gradients.x), w, dy)[0].astype(np.float32)

    @cached_property
    def _arguments(self) -> MatmulArguments:
        dy, w = (view_of(self.arrays[name]) for name in "xw")
        out, chip = np.zeros(self.gradients.x, np.float32), target(self.case.chip)
        found = PhasedArguments.phased(dy, w, self.gradients.axes, view_of(out), target=chip, result=out)
        assert found is not None
        return found


@cache
def conv_cases() -> dict[str, ConvCase]:
    """The launches by name."""
    ways: dict[str, Any] = {"types": ("bf16", "bf16"), "out": "f32", "seed": 3, "chip": "sm_90a"}
    plain = MatmulConfig(tile=(64, 32), cluster=(1, 1), consumers=1, stages=2, output_buffers=1)
    shared, split = replace(plain, cluster=(1, 2)), replace(plain, split_k=2)
    every = (
        ConvCase(
            "im2col, cluster 1x2",
            Convolution(x=(9, 7, 13, 96), w=(40, 3, 3, 48), groups=2, stride=(2, 3), padding=(2, 1), dilation=(2, 3),
                        gap=8, config=shared, **ways),
        ),
        ConvCase(
            "im2col of filters too, split K",
            Convolution(x=(6, 9, 8, 72), w=(24, 2, 3, 72), stride=(3, 2), padding=(2, 1), dilation=(3, 2), gap=8,
                        config=split, **ways),
        ),
        ConvCase(
            "threads",
            Convolution(x=(12, 9, 11, 4), w=(24, 5, 7, 2), groups=2, stride=(2, 3), padding=(1, 2), dilation=(2, 1),
                        config=plain, **ways),
        ),
        ConvCase(
            "threads that multiply",
            Convolution(x=(5, 9, 11, 40), w=(24, 5, 2, 20), groups=2, stride=(2, 3), padding=(1, 1), dilation=(2, 3),
                        gap=8, config=AmpereConfig(tile=(32, 64), grid=(2, 4), stages=3),
                        **ways | {"chip": "sm_80"}),
        ),
        PhasedCase(
            "phases",
            Convolution(x=(3, 11, 13, 40), w=(128, 5, 4, 40), gap=8, config=plain, **ways),
            Gradients(3, (3, 11, 13, 40), (128, 5, 4, 40),
                      {"stride": (3, 2), "padding": (4, 3), "dilation": (2, 3), "groups": 1}, np.float16),
        ),
    )  # fmt: skip
    return {case.name: case for case in every}


ENGINE, FILTERS, THREADS = "im2col, cluster 1x2", "im2col of filters too, split K", "threads"
MULTIPLY, PHASES = "threads that multiply", "phases"
IM2COL, EVERY = (ENGINE, FILTERS), (ENGINE, FILTERS, THREADS)
UNNOTICED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        (ENGINE, THREADS),
        r"load (Pixels\._boxes: (setp\.ge.*|selp.*second)|GatheredRows\._place: "
        r"(setp\.lt\.u32: one more|and\.pred( #3)?: first condition left out))"
        r"|host: [ab]_end_y: one more",
        "pixels behind the filter's last place are multiplied by zeros; that there are none matters where one is NaN "
        "(`test_numbers_that_are_none`)",
    ),
    (
        (FILTERS,),
        r"load Pixels\._boxes: (setp\.ge.*|selp.*second)|host: [ab]_end_y: one more",
        "K ends with a stage here, so none ends behind the filter's last place",
    ),
    (IM2COL, r"host: a_map: upper corner one down", "a stride of 2 or 3 passes over the line"),
    ((ENGINE, PHASES), r"host: a_map: 8 channels more", "slices end with the channels"),
    ((ENGINE, THREADS), r"host: [ab]_taps_x: one more", "only the beginning of a share of K is divided by it"),
    (
        (FILTERS,),
        r"load Places\.advance: setp\.ge\.u32( #3)?: .*|host: [ab]_channels: one more",
        "72 or 73 channels, of which a slice ends neither with the last",
    ),
    ((FILTERS, PHASES), r"host: [ab]_group_pitch: one more", "there is one group"),
    (
        (FILTERS,),
        r"load (corner: (div|sub)|Pixels\.__init__: sub)\.u32 #3: .*|host: b_(out|step)_[xy]: one more"
        r"|host: b_map: stride .*",
        "all filters are one tile, which begins with filter 0, at the corner of its only pixel",
    ),
    (
        (THREADS,),
        r"load (corner: div\.u32|GatheredRows\._pixel: sub\.u(32|64)) #3: .*|host: b_(step_[xy]|extent_[xy]): one more",
        "a filter has one output pixel and no padding, and all its places lie within it",
    ),
    ((THREADS,), r"load GatheredRows\.load: (bra: never taken|setp\.ge.*)", "it skips loops of zero iterations"),
    (
        (THREADS,),
        r"load GatheredRows\._pixel: (setp\.lt\.u32 #2: .*|and\.pred.*second.*)",
        "what a thread without a row loads is not stored",
    ),
    (
        (THREADS,),
        r"load BoundGather\.__init__: mul\.lo\.u32 #2: .*",
        "all four warps then load and store rows of the same 32, each with what belongs there",
    ),
    (
        (THREADS,),
        r"load (Places\.advance: selp\.u32( #2)?: always the first|GatheredRows\._place: add\.u64 #2: .*)",
        "the two channels of a place are one load, so each goes on to the next place",
    ),
    (
        (THREADS,),
        r"load GatheredRows\._place: setp\.lt\.u32 #3: .*|host: a_extent_x: one more",
        "the stride leaves out the column behind the last one",
    ),
    (
        (MULTIPLY,),
        r"mma PixelRows\.load: (setp\.lt\.u32: one more|and\.pred( #3)?: first condition left out)"
        r"|host: a_end_y: one more",
        "pixels behind the filter's last place are multiplied by zeros",
    ),
    (
        (MULTIPLY,),
        r"mma BoundPixelLoader\.__init__: (mul\.lo\.u32 #3|add\.u32 #2): .*"
        r"|mma PixelRows\.load: (mul\.lo|add)\.u32: .*",
        "notes are one array, and the first copies are to stage 0: what is added is 0",
    ),
    (
        (MULTIPLY,),
        r"mma BoundPixelLoader\.__init__\.listcomp: add\.u32: .*",
        "a warp has one class of lines, of which it makes all notes: what is added is 0",
    ),
    (
        (MULTIPLY,),
        r"mma GatheredRows\._pixel: (setp\.lt\.u32 #2: .*|and\.pred: second.*)",
        "every line that is noted is one of the tile's",
    ),
    (
        (MULTIPLY,),
        r"mma PixelRows\.load: setp\.lt\.u32 #2: one more",
        "lines of a class are 8 apart, as many as an image has output pixels here, and these reach no line behind it",
    ),
    (
        (PHASES,),
        r"load PhasedPixels\._boxes: (setp\.ge.*|selp.*second)",
        "K ends with a stage here, so none ends behind the filter's last place",
    ),
    ((PHASES,), r"load corner: mul\.lo\.u32 #[24]: .*", "the engine goes over all pixels: its steps are 1"),
    (
        (PHASES,),
        r"(load|mma) Along\.taps: sub\.u32 #4: .*",
        "of four places along, either phase of two has two",
    ),
    (
        (PHASES,),
        r"(load|mma) Along\.first: mul\.lo\.u32 #3: .*|mma Phase\.__init__: sub\.u32 #2: .*",
        "what is left out is even, and a stride of 2 takes the remainder by 2",
    ),
    (
        (PHASES,),
        r"load Phase\.__init__: sub\.u32 #3: .*",
        "places are counted from the last one with a remainder, which is the same for any number that has it",
    ),
    ((PHASES,), r"host: (a_(end_[xy]|taps_x)|b_places): one more", "each phase has places of its own"),
    (
        (PHASES,),
        r"host: a_phase_(apart|origin)_[xy]: one more",
        "what is divided was a multiple of the stride, and is more by less than one",
    ),
    (
        (PHASES,),
        r"host: phase_(taps_[xy]|channels): one more",
        "a longer K ends behind a phase's last place, where pixels are zeros",
    ),
)
"""Launch, names of mutations, and why nothing notices them."""


def why_unnoticed(launch: str, mutation: str) -> str | None:
    """Why a mutation is harmless; None where it must not be."""
    found = (why for launches, names, why in UNNOTICED if launch in launches and re.fullmatch(names, mutation))
    return next(found, None)


def conv_mutations(case: ConvCase) -> Iterator[tuple[Mutation, Callable[[Arguments], Arguments] | None]]:
    """Every mutation of a launch: of copies and stores, of arithmetic, and of what the host passes."""
    own = ("load BoundTmaLoader.load", "load GatheredRows.load")
    yield from ((m, None) for m in mutations(case.text) if m.site in own and m.ordinal == 0)
    seen: Counter[tuple[str, str, str]] = Counter()
    for statement in Program.read(case.text).statements:
        if not OWN.match(statement.site):
            continue
        for change, edits in _arithmetic(statement):
            key = (statement.site, statement.opcode, change)
            if seen[key] < case.first:
                yield Mutation("arithmetic", statement.opcode, statement.site, change, edits, seen[key]), None
            seen[key] += 1
    yield from _host(case)


def _arithmetic(s: Statement) -> Changes:
    """Each operand of a sum, product, quotient, comparison or choice left out."""
    if s.is_a("add", "sub", "div", "mul"):
        neutral = "0" if s.is_a("add", "sub") else "1"
        if s.operands[2] != neutral:
            yield "second operand left out", instead(s, s.with_operand(2, neutral))
    elif s.is_a("selp"):
        for change, kept in (("always the first", 1), ("always the second", 2)):
            yield change, instead(s, s.written("mov.b32", (s.operands[0], s.operands[kept])))
    elif s.is_a("setp.ge", "setp.lt"):
        other = s.opcode.replace(".ge.", ".gt.").replace(".lt.", ".le.")
        yield "one more", instead(s, s.written(other))
    elif s.is_a("and.pred"):
        for change, kept in (("second condition left out", 1), ("first condition left out", 2)):
            yield change, instead(s, s.written("mov.pred", (s.operands[0], s.operands[kept])))
    elif s.is_a("cvt.u16"):
        yield "zero", instead(s, s.written("mov.u16", (s.operands[0], "0")))


def _host(case: ConvCase) -> Iterator[tuple[Mutation, Callable[[Arguments], Arguments]]]:
    for name, value in case.parameters.items():
        if isinstance(value, U32) and COUNTS.match(name):
            yield Mutation("count", name, "host", "one more"), _with(name, U32(value.value + 1))
        elif isinstance(value, TensorMap) and value.pixels is not None:
            for change, broken in _maps(value):
                if broken.problems():
                    continue  # the driver refuses it
                yield Mutation("tensor map", name, "host", change), _with(name, broken)


def _maps(given: TensorMap) -> Iterator[tuple[str, TensorMap]]:
    """An im2col map with one thing wrong."""
    box, steps, strides = given.pixels, given.element_strides, given.strides
    assert box is not None
    for corner in ("lower", "upper"):
        for axis, name in enumerate(("right", "down")):
            moved = tuple(at + (axis == other) for other, at in enumerate(getattr(box, corner)))
            yield f"{corner} corner one {name}", replace(given, pixels=replace(box, **{corner: moved}))
    yield "8 pixels fewer", replace(given, pixels=replace(box, pixels_per_column=box.pixels_per_column - 8))
    yield "half the channels", replace(given, pixels=replace(box, channels_per_pixel=box.channels_per_pixel // 2))
    for axis, name in ((1, "along"), (2, "down")):
        changed = tuple(step + (axis == other) for other, step in enumerate(steps))
        yield f"stride {name} one more", replace(given, element_strides=changed)
        longer = tuple(pitch + 16 * (axis == other) for other, pitch in enumerate(strides))
        yield f"pitch {name} 16 bytes more", replace(given, strides=longer)
    yield "no swizzle", replace(given, swizzle=None)
    yield "8 channels more", replace(given, dims=(given.dims[0] + 8, *given.dims[1:]))


def _with(name: str, value: Any) -> Callable[[Arguments], Arguments]:
    def change(arguments: Arguments) -> Arguments:
        given: Any = arguments[name]
        if isinstance(given, TensorMap):
            return {**arguments, name: replace(value, address=given.address)}
        return {**arguments, name: value}

    return change

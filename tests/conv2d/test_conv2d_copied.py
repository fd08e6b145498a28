"""Convolutions on chips whose matrix instruction is one warp's, by threads that copy pixels: on the emulator, and as
text for sm_80 on a GPU. The cases and what is asked of them are those of the other chips' convolutions.
"""

from __future__ import annotations

from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tests.conv2d.convolutions import WARP_CHIPS, Convolution, convolved, drawn
from tilekit.assembly.types import U32
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16, E4M3, F16, F32, as_dtype
from tilekit.emulator.core.errors import EmulatorError
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError, ConfigError, FindingWarning
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.conv2d.compiled import ConvKernel
from tilekit.kernels.conv2d.copied import BoundPixelLoader, Digits, PixelLoader, PixelRows
from tilekit.kernels.conv2d.copied_spec import CopiedSpec
from tilekit.kernels.conv2d.spec import ConvSpec
from tilekit.kernels.conv2d.threads import ThreadSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.picker import candidates
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.sm_80.config import AmpereConfig
from tilekit.kernels.matmul.sm_89.config import AdaConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_120a.config import Rtx50Config
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.runtime.assembler import assemble
from tilekit.targets import target

SEEDS = 1
"""Drawn cases of each chip in every run; 60 with ``-m breadth``, and 320 on a GPU."""


def _by_hand(chip: str) -> list[Convolution]:
    """Every way in which operands are loaded, at sizes that no tile divides."""
    last = {"seed": 1, "chip": chip, "types": ("bf16", "bf16"), "out": "f32"}
    ways = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}
    kind: Any = platform(target(chip)).config
    split = kind(tile=(64, 32), grid=(2, 1), split_k=3)
    found = [
        Convolution(x=(1, 9, 8, 64), w=(40, 3, 3, 64), **ways, **last),  # one place a k-block
        Convolution(x=(1, 9, 8, 96), w=(40, 3, 3, 96), data="places", config=split, **ways, **last),  # or two
        Convolution(x=(1, 9, 8, 72), w=(40, 3, 3, 72), gap=16, config=split, **ways, **last),  # at any channel
        Convolution(x=(3, 7, 7, 8), w=(24, 5, 5, 8), padding=(2, 2), beta=2.0, bias="bf16", **last),  # eight places
        Convolution(x=(1, 12, 9, 4), w=(24, 3, 3, 4), data="places", padding=(1, 1), **last),  # 8 bytes, over lines
        Convolution(x=(1, 7, 9, 6), w=(24, 3, 2, 6), config=split, **last),  # 4 bytes
        Convolution(x=(1, 9, 7, 3), w=(24, 5, 5, 3), stride=(2, 2), padding=(2, 2), activation="relu", **last),
        Convolution(x=(1, 9, 10, 3), w=(24, 5, 5, 3), stride=(2, 2), padding=(2, 2), config=split, **last),  # lines
        Convolution(x=(1, 5, 5, 64), w=(24, 3, 3, 64), dilation=(130, 1), padding=(130, 0), **last),
        Convolution(x=(2, 6, 5, 64), w=(48, 3, 3, 32), groups=2, bias="f32", beta=1.0, padding=(1, 1), **last),
        Convolution(x=(2, 6, 5, 20), w=(40, 3, 3, 4), groups=5, bias="f32", padding=(1, 1), **last),
        Convolution(x=(2, 7, 9, 64), w=(40, 1, 1, 64), stride=(2, 9), bias="f32", **last),
        Convolution(x=(2, 7, 9, 20), w=(40, 1, 1, 20), bias="f32", beta=1.0, **last),  # a plain product
        Convolution(x=(1, 1, 1, 32), w=(8, 1, 1, 32), padding=(1, 1), **last),  # an image below a pixel's tile
    ]
    if not target(chip).has("float8_matrix"):
        return found
    eight = {**last, "types": ("e4m3", "e5m2")}
    return [
        Convolution(x=(1, 7, 6, 3), w=(24, 2, 3, 3), stride=(1, 3), padding=(2, 1), dilation=(2, 1), **eight),
        Convolution(x=(1, 5, 8, 1), w=(4, 6, 3, 1), stride=(9, 1), padding=(30, 1), config=split, **eight),
        Convolution(x=(2, 6, 6, 48), w=(24, 3, 3, 48), padding=(1, 1), data="places", **eight),
        Convolution(
            x=(2, 6, 6, 12), w=(24, 3, 3, 12), padding=(1, 1), out="bf16", **{k: eight[k] for k in eight if k != "out"}
        ),
    ]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("case", [case for chip in ("sm_80", "sm_89") for case in _by_hand(chip)], ids=str)
def test_each_way_to_load(case: Convolution) -> None:
    """Exact, and clean under an adversarial schedule."""
    case.run(seed=case.x[3])


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", [drawn(seed, chip) for seed in range(SEEDS) for chip in WARP_CHIPS], ids=str)
def test_drawn(case: Convolution) -> None:
    """Types, shapes, strides, padding, dilation, groups, layouts, configs and epilogues, all drawn."""
    case.run(seed=case.seed)


@pytest.mark.breadth
@pytest.mark.parametrize("chip", WARP_CHIPS)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 60))
def test_more_drawn(seed: int, chip: str) -> None:
    """More of the same."""
    drawn(seed, chip).run(seed=seed)


def _specs() -> dict[str, CopiedSpec]:
    """Each way to load, with epilogues that hold registers."""
    more: dict[str, Any] = {"functions": ElementwiseSpec(bias=F32, residual=BF16, activation="relu"), "store": "direct"}
    images: dict[str, Any] = {"im2col_b": True, **more}
    return {
        "16": CopiedSpec(),
        "16, a residual": CopiedSpec(F16, F16, F32, functions=ElementwiseSpec(residual=F32)),
        "16, groups": CopiedSpec(batched=True),
        "8": CopiedSpec(a_load=8, b_load=8, **images),
        "4": CopiedSpec(a_load=4, b_load=4, **images),
        "2": CopiedSpec(a_load=2, b_load=2, **images),
        "lines": CopiedSpec(a_load=4, b_load=4, lines=True, **more),
        "1": CopiedSpec(E4M3, E4M3, a_load=1, b_load=1, **images),
    }


def _assembled(chip: str, way: str, count: int) -> None:
    spec, named = _specs()[way], target(chip)
    if spec.a_dtype == E4M3 and not named.has("float8_matrix"):
        return
    configs = candidates(spec, named)
    assert configs
    for config in Random(f"{chip} {way}").sample(configs, min(count, len(configs))):
        text = trace(spec, config, named)
        used = assemble(text.assembly, chip, kernel_name=text.name).resources
        assert (used.stack_bytes, used.spill_store_bytes) == (0, 0), config


@pytest.mark.parametrize("way", ["16, a residual", "8", "2", "lines"])
def test_what_the_picker_takes_has_no_spills(way: str) -> None:
    """Of each way to load some config of a chip (`assemble` raises where a register goes to memory)."""
    _assembled(WARP_CHIPS[list(_specs()).index(way) % 4], way, 1)


@pytest.mark.breadth
@pytest.mark.parametrize("chip", WARP_CHIPS)
@pytest.mark.parametrize("way", _specs())
def test_more_of_what_it_takes(way: str, chip: str) -> None:
    """A dozen configs of each."""
    _assembled(chip, way, 12)


def _kernel(x: tuple[int, ...], w: tuple[int, ...], **keywords: Any) -> Any:
    arrays = (np.zeros(shape, ml_dtypes.bfloat16) for shape in (x, w))
    return tilekit.conv2d_kernel_for(*arrays, target="sm_80", **keywords)


SWAPPED: list[tuple[Any, Any, dict[str, Any], list[str]]] = [
    ((2, 8, 8, 64), (32, 3, 3, 64), {}, ["PixelLoader for CpAsyncLoader: threads copy pieces of pixels"]),
    ((2, 8, 8, 64), (32, 3, 3, 32), {"groups": 2}, ["PixelLoader for CpAsyncLoader: threads copy pieces of pixels"]),
    ((2, 8, 8, 6), (32, 3, 3, 6), {}, ["PixelLoader for CpAsyncLoader: threads copy pieces of pixels", "filters too"]),
    ((2, 8, 8, 3), (32, 3, 3, 3), {}, ["LineLoader for CpAsyncLoader"]),
    ((2, 8, 7, 3), (32, 3, 3, 3), {}, ["GatherLoader for CpAsyncLoader: threads load elements of pixels", "filters"]),
    ((2, 8, 8, 1), (32, 4, 4, 1), {"dilation": 2}, ["GatherLoader for CpAsyncLoader: threads load elements of pixels"]),
    ((2, 8, 8, 7), (32, 1, 1, 7), {}, []),
]


@pytest.mark.parametrize(("x", "w", "how", "words"), SWAPPED, ids=str)
def test_explain_marks_what_is_swapped(x: Any, w: Any, how: dict[str, Any], words: list[str]) -> None:
    """A line for each component in the place of a matmul's; a plain product has none, whatever its channels."""
    lines = [line for line in _kernel(x, w, **how).explain().splitlines() if line.startswith("swapped")]
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


def test_no_division_in_the_k_loop() -> None:
    """The digits of a place are found by division once a tile, and a k-block is added to them."""
    lines = str(_kernel((2, 8, 8, 24), (32, 3, 3, 24)).ptx).splitlines()
    copies = [at for at, line in enumerate(lines) if "cp.async.cg" in line]
    start = next(at for at, line in enumerate(lines) if "k_loop" in line and ":" in line)
    end = next(at for at, line in enumerate(lines) if at > start and "bra k_loop" in line)
    assert [at for at in copies if start < at < end]
    assert not [line for line in lines[start:end] if "div." in line or "rem." in line]
    assert [line for line in lines[:start] if "div." in line]


@pytest.mark.parametrize(("channels", "width"), [(72, 9), (6, 9), (3, 8)])
def test_numbers_that_are_none(channels: int, width: int) -> None:
    """Infinities and NaN of one pixel reach the outputs that it is part of, and no others."""
    rng = np.random.default_rng(channels)
    x, w = (rng.integers(1, 3, s).astype(np.float16) for s in ((1, 6, width, channels), (16, 3, 3, channels)))
    x[0, 4, 4, 2], x[0, 0, width - 1, 0] = np.nan, np.inf
    found = tilekit.conv2d(x, w, padding=1, target="sm_80")
    expected = convolved(x, w, (1, 1), (1, 1), (1, 1), 1)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_filters_that_lie_apart() -> None:
    """Places of a filter with gaps between them are found one by one, like pixels."""
    x, wide = (np.ones(shape, np.float16) for shape in ((1, 6, 6, 16), (24, 3, 3, 40)))
    wide[..., 16:] = np.nan
    kernel = tilekit.conv2d_kernel_for(x, wide[..., :16], target="sm_80")
    assert kernel.name.endswith("im2col_b")
    found = tilekit.conv2d(x, wide[..., :16], target="sm_80")
    np.testing.assert_array_equal(found, np.full((1, 4, 4, 24), 144))


def test_a_kernel_binds_what_its_call_takes() -> None:
    """Another batch of other images by the same kernel; not what another loader is for."""
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((2, 7, 5, 16), (24, 3, 2, 16)))
    kernel: Any = tilekit.conv2d_kernel_for(x, w, target="sm_80", stride=2)
    plan = kernel.bind(x, w, stride=2, padding=1)
    assert (plan() == convolved(x, w, (2, 2), (1, 1), (1, 1), 1)).all()
    with pytest.raises(ArgumentError, match=r"multiples of 8 bytes only|how images and filters are loaded"):
        kernel.bind(x[..., :4].copy(), w[..., :4].copy())


def test_nothing_to_compute() -> None:
    """An empty batch, no filters, and both with groups."""
    x, w = np.zeros((0, 5, 5, 8), np.float16), np.zeros((8, 3, 3, 8), np.float16)
    assert tilekit.conv2d(x, w, target="sm_80").shape == (0, 3, 3, 8)
    assert tilekit.conv2d(np.zeros((2, 5, 5, 16), np.float16), w[:0], groups=2, target="sm_80").shape == (2, 3, 3, 0)
    assert tilekit.conv2d(x, np.zeros((8, 1, 1, 8), np.float16), target="sm_80").shape == (0, 5, 5, 8)
    assert tilekit.matmul(x[:, 0, 0], np.zeros((8, 24), np.float16), target="sm_80").shape == (0, 24)


def test_an_epilogue_in_python_and_gradients() -> None:
    """What stands behind a convolution, and what is made of convolutions, is the chip's too."""

    @tilekit.epilogue
    def halved(acc: Any, more: Any) -> Any:
        return acc * 0.5 + more

    x, w = np.ones((2, 5, 5, 8), np.float16), np.ones((16, 3, 3, 8), np.float16)
    y = tilekit.conv2d(x, w, epilogue=halved(np.full((2, 3, 3, 16), 2, np.float16)), target="sm_80")
    np.testing.assert_array_equal(y, np.full((2, 3, 3, 16), 38))
    dw = tilekit.conv2d_weight_gradient(x, y, (3, 3), target="sm_80")
    np.testing.assert_array_equal(dw, np.full(w.shape, 38 * 18))
    dx = tilekit.conv2d_input_gradient(np.ones_like(y), w, (5, 5), target="sm_80")
    assert (dx[0, 2, 2, 0], dx[0, 0, 0, 0]) == (144, 16)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "8-bit floats": ({"target": "sm_80"}, "sm_80 has no matrix instruction of 8-bit floats.*TK-MM-001"),
    "promoted sums": ({"target": "sm_89", "accumulation": "promoted"}, "accumulation='promoted'.*TK-MM-027"),
    "a config of another chip": ({"target": "sm_89", "config": MatmulConfig()}, "for sm_89 pass an AdaConfig"),
    "a tile of no warps": ({"target": "sm_89", "config": AdaConfig(tile=(120, 64))}, "a multiple of 32"),
    "a copy engine over images": (
        {"target": "sm_120a", "config": Rtx50Config(driver="warp_specialized")},
        "the copy engine of sm_120a loads matrices, and threads load images; nearest: driver='multistage'",
    ),
}


def test_8bit_results() -> None:
    """What the matmul stores since, the convolution stores: e4m3, rounded once."""
    rng = np.random.default_rng(8)
    x, w = (rng.integers(-1, 2, shape).astype("f2") for shape in ((1, 7, 5, 16), (24, 3, 3, 16)))
    found = tilekit.conv2d(x, w, padding=1, scale=0.25, out_dtype="e4m3", target="sm_89")
    exact = tilekit.conv2d(x, w, padding=1, scale=0.25, out_dtype="f32", target="sm_89")
    assert (found.astype("f4") == exact.astype(ml_dtypes.float8_e4m3fn).astype("f4")).all()


@pytest.mark.parametrize("name", BAD)
def test_what_a_chip_lacks(name: str) -> None:
    """Refused at the call, by name."""
    keywords, words = BAD[name]
    x, w = (np.zeros(shape, ml_dtypes.float8_e4m3fn) for shape in ((1, 6, 6, 16), (8, 3, 3, 16)))
    with pytest.raises((ArgumentError, ConfigError), match=words):
        tilekit.conv2d(x, w, **keywords)


def test_what_is_tried_loads_images_by_threads() -> None:
    """Neither the picker nor tuning tries a role for the copy engine, which knows matrices; of those it has one."""
    model, chip = platform(target("sm_120a")).model, target("sm_120a")
    for spec, drivers in ((CopiedSpec(), {"multistage"}), (MatmulSpec(), {"multistage", "warp_specialized"})):
        tried: list[Any] = [*model.candidates(spec, chip), *model.tuning_candidates(spec, chip)]
        assert {config.driver for config in tried} == drivers


def test_specs_are_for_chips_of_one_kind() -> None:
    """The engine's spec is compiled as a chip without it loads; a spec of threads' copies is for such chips alone."""
    kinds = (
        ConvSpec(swizzle=32, im2col_b=True),
        ThreadSpec(a_load=2, b_load=2),
        ThreadSpec(a_load=4, b_load=4, lines=True),
    )
    found: list[Any] = [tilekit.compile(kind, target="sm_80").spec for kind in kinds]
    assert [(spec.swizzle, spec.im2col_b, spec.lines) for spec in found] == [
        (128, False, False),
        (128, True, False),
        (128, False, True),
    ]
    with pytest.raises(ArgumentError, match=r"a ConvSpec for sm_80, which has no engine.*target='sm_80'.*TK-CONV-006"):
        ConvSpec().check(target("sm_80"))
    with pytest.raises(ArgumentError, match=r"a CopiedSpec for sm_90a, which has an engine.*TK-CONV-006"):
        tilekit.compile(CopiedSpec(), target="sm_90a")


def _without_meetings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "warp_sync", lambda self: None)


def _carrying_nothing(patch: pytest.MonkeyPatch) -> None:
    right = Digits.advance

    def advance(self: Any, w: Any) -> None:
        self._n = self._n | {"apart_y": 0}
        right(self, w)

    patch.setattr(Digits, "advance", advance)


def _ignoring_no_edge(patch: pytest.MonkeyPatch) -> None:
    right = PixelRows.load

    def load(self: Any, w: Any, stage: Any, k: Any) -> None:
        self._loader.n = self._loader.n | {"extent_x": w.constant(U32, (1 << 32) - 1)}
        right(self, w, stage, k)

    patch.setattr(PixelRows, "load", load)


def _noting_a_line_for_another(patch: pytest.MonkeyPatch) -> None:
    right = BoundPixelLoader.__init__

    def bound(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.lines = self.lines[::-1] if len(self.lines) > 1 else [line ^ 8 for line in self.lines]

    patch.setattr(BoundPixelLoader, "__init__", bound)


def _adding_another_block(patch: pytest.MonkeyPatch) -> None:
    right = PixelLoader._digit
    patch.setattr(PixelLoader, "_digit", lambda self, which, call: right(self, which, call) + (which == "right"))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "mutant",
    [
        _without_meetings,
        _carrying_nothing,
        _ignoring_no_edge,
        _noting_a_line_for_another,
        _adding_another_block,
    ],
)
def test_mutants_are_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken in notes, digits or edges is a finding or a wrong sum."""
    config = AmpereConfig(tile=(64, 32), grid=(2, 1), stages=3)
    case = Convolution(
        1, "sm_80", ("f16", "f16"), "f32", (3, 9, 7, 24), (40, 3, 3, 24), padding=(1, 1), data="places", config=config
    )
    arrays = case.arrays()

    def found() -> Any:
        keywords = {name: value for name, value in case.keywords.items() if value is not None}
        arguments = ConvArguments.parse(arrays["x"], arrays["w"], target="sm_80", **keywords)
        kernel = ConvKernel(arguments.spec, config, target("sm_80"))
        return kernel.bind(arrays["x"], arrays["w"], padding=1)()

    case.check(found(), arrays)
    mutant(monkeypatch)
    try:
        wrong = found()
    except (EmulatorError, FindingWarning):
        return
    assert not np.array_equal(wrong, case.expected(arrays))


@pytest.mark.gpu
@pytest.mark.parametrize("case", _by_hand("sm_80"), ids=str)
def test_each_way_on_a_gpu(case: Convolution) -> None:
    """The text for sm_80 on the GPU that is here."""
    _on_gpu(case)


@pytest.mark.gpu
@pytest.mark.parametrize("block", range(10))
def test_drawn_on_a_gpu(block: int) -> None:
    """The same generator, and larger cases of it: 32 a block."""
    for seed in range(32 * block, 32 * (block + 1)):
        _on_gpu(drawn(seed, "sm_80", large=seed % 4 == 0))


def _on_gpu(case: Convolution) -> None:
    torch = pytest.importorskip("torch")
    if driver.why_unavailable():
        pytest.skip("needs a GPU")

    def placed(array: Any) -> Any:
        memory = array if array.base is None else array.base
        names = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
        tensor = torch.from_numpy(memory.astype(np.float32)).cuda().to(names[array.dtype.name])
        tensor = tensor[..., : array.shape[-1]]
        return tensor if array.ndim == 1 else tensor.permute(0, 3, 1, 2)

    arrays = case.arrays()
    given: dict[str, Any] = {name: placed(array) for name, array in arrays.items()}
    more = {} if case.beta is None else {"beta": case.beta}
    found = tilekit.conv2d(given.pop("x"), given.pop("w"), target="sm_80", **case.keywords, **given, **more)
    case.check(found.permute(0, 2, 3, 1).float().cpu().numpy().astype(as_dtype(case.out).numpy), arrays)

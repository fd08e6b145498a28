"""Convolutions drawn at random, and what float64 makes of them.

A case comes from a seed alone, so its id reproduces it. `integers` are exact in every type and sum, `places` code each
element by its position and let each filter pick one place, and `normal` numbers are compared within a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilekit.dtypes import as_dtype
from tilekit.kernels.conv2d.arguments import ConvArguments
from tilekit.kernels.dispatch import select
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.targets import target

Array = NDArray[Any]
Data = Literal["integers", "places", "normal"]

WARP_CHIPS = ("sm_80", "sm_86", "sm_89", "sm_120a")
"""Chips whose matrix instruction is one warp's, and whose convolutions' loader is software."""


def _warp_configs(chip: str) -> tuple[KernelConfig | None, ...]:
    kind: Any = platform(target(chip)).config
    return (
        None,
        None,
        None,
        kind(tile=(64, 64)),
        kind(tile=(32, 32), grid=(1, 1), stages=3),
        kind(tile=(128, 64), grid=(4, 2), raster_order="n"),
        kind(tile=(64, 48), grid=(2, 1), resident=2, split_k=3),
        kind(tile=(64, 64), grid=(1, 4), split_k=2),
        kind(tile=(32, 128), grid=(2, 4), stages=2),
    )


CONFIGS: dict[str, tuple[KernelConfig | None, ...]] = {
    "sm_90a": (
        None,
        None,
        MatmulConfig(tile=(128, 64), cluster=(2, 1)),
        MatmulConfig(tile=(128, 128), cluster=(1, 2), stages=3),
        MatmulConfig(tile=(128, 64), cluster=(2, 2), k_group=2),
        MatmulConfig(tile=(64, 64), cluster=(2, 1), schedule="pingpong"),
        MatmulConfig(tile=(64, 128), cluster=(1, 1), schedule="pingpong", split_k=3),
        MatmulConfig(tile=(128, 64), cluster=(1, 1), split_k=4, in_flight=0),
        MatmulConfig(tile=(128, 72), cluster=(1, 2), swap_ab=True, prefetch=2),
        MatmulConfig(tile=(64, 32), cluster=(1, 1), consumers=1, stream_k=3),
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, cluster_k=4),
        MatmulConfig(tile=(128, 64), cluster=(1, 1), swap_ab=True, split_k=2),
    ),
    "sm_100a": (
        None,
        None,
        BlackwellConfig(tile=(128, 64), cluster=(2, 2), cta_group=1, clc_stages=3, stages=3),
        BlackwellConfig(tile=(128, 64), cluster=(2, 1)),
        BlackwellConfig(tile=(64, 96), cluster=(4, 1), clc_stages=0),
        BlackwellConfig(tile=(128, 64), cluster=(2, 2), k_group=2),
        BlackwellConfig(tile=(64, 48), cluster=(1, 1), cta_group=1, k_group=2, split_k=3),
        BlackwellConfig(tile=(128, 32), cluster=(2, 1), swap_ab=True),
        BlackwellConfig(tile=(128, 64), cluster=(1, 1), cta_group=1, swap_ab=True, split_k=2),
    ),
    **{chip: _warp_configs(chip) for chip in WARP_CHIPS},
}
TYPES = (("bf16", "bf16"), ("bf16", "bf16"), ("f16", "f16"), ("e4m3", "e4m3"), ("e5m2", "e4m3"))


@dataclass(frozen=True)
class Convolution:
    """One case.

    Attributes
    ----------
    seed, chip
        What it was drawn from, and for which chip.
    types, out
        Of images and filters, and of the result.
    x, w
        Shapes, channels last.
    stride, padding, dilation, groups
        As `tilekit.conv2d` takes them.
    gap
        Channels of memory behind those of each pixel.
    config, data
        How to compute, and what.
    bias, activation, scale, beta
        Of the epilogue; `beta` where there is a residual.
    """

    seed: int
    chip: str
    types: tuple[str, str]
    out: str
    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    gap: int = 0
    config: KernelConfig | None = None
    data: Data = "integers"
    bias: str | None = None
    activation: Any = None
    scale: float | None = None
    beta: float | None = None

    def __str__(self) -> str:
        way = "x".join(map(str, (*self.stride, *self.padding, *self.dilation, self.groups)))
        return f"{self.chip}-{self.seed}-{'x'.join(map(str, self.x))}-{'x'.join(map(str, self.w))}-{way}"

    @property
    def extents(self) -> tuple[int, int]:
        """Output pixels, down and along."""
        down, along = (
            (self.x[1 + i] + 2 * self.padding[i] - (self.w[1 + i] - 1) * self.dilation[i] - 1) // self.stride[i] + 1
            for i in range(2)
        )
        return down, along

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.x[0] * prod(self.extents) * prod(self.w)

    @property
    def keywords(self) -> dict[str, Any]:
        """What `tilekit.conv2d` is called with beside arrays."""
        names = ("stride", "padding", "dilation", "groups", "config", "activation", "scale")
        return {name: getattr(self, name) for name in names} | {"out_dtype": self.out}

    def arrays(self) -> dict[str, Array]:
        """Images, filters, and the epilogue's operands."""
        rng = np.random.default_rng(self.seed)
        x_type, w_type, out_type = (as_dtype(name).numpy for name in (*self.types, self.out))
        x, w = self._values(rng)
        found = {"x": self._placed(x.astype(x_type)), "w": w.astype(w_type)}
        if self.bias is not None:
            found["bias"] = self._numbers(rng, (self.w[0],)).astype(as_dtype(self.bias).numpy)
        if self.beta is not None:
            shape = (self.x[0], *self.extents, self.w[0])
            found["residual"] = self._numbers(rng, shape).astype(out_type)
        return found

    def _values(self, rng: np.random.Generator) -> tuple[Array, Array]:
        if self.data != "places":
            return self._numbers(rng, self.x), self._numbers(rng, self.w)
        codes = 13 if 8 in (as_dtype(name).bits for name in self.types) else 251  # what the type has exactly
        w = np.zeros(self.w)
        places = rng.integers(0, prod(self.w[1:]), self.w[0])
        w.reshape(self.w[0], -1)[np.arange(self.w[0]), places] = 1
        return (np.arange(prod(self.x)) * 7 % codes).reshape(self.x).astype(np.float64), w

    def _numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.normal(size=shape) if self.data == "normal" else rng.integers(-2, 3, shape).astype(np.float64)

    def _placed(self, x: Array) -> Array:
        """The images with NaN in the gaps between pixels."""
        memory = np.full((*self.x[:3], self.x[3] + self.gap), np.nan).astype(x.dtype)
        memory[..., : self.x[3]] = x
        return memory[..., : self.x[3]]

    def expected(self, arrays: dict[str, Array]) -> Array:
        """The result in float64, before it is rounded to its type."""
        total = convolved(arrays["x"], arrays["w"], self.stride, self.padding, self.dilation, self.groups)
        total *= 1.0 if self.scale is None else self.scale
        total += arrays["bias"].astype(np.float64) if "bias" in arrays else 0.0
        if self.beta is not None:
            total += self.beta * arrays["residual"].astype(np.float64)
        if self.activation == "relu":
            total = np.maximum(total, 0)
        elif self.activation == "silu":
            total = total / (1 + np.exp(-total))
        return total

    def check(self, found: Array, arrays: dict[str, Array]) -> None:
        """Compare with float64: to the bit where sums are exact."""
        expected, out = self.expected(arrays), as_dtype(self.out)
        assert found.shape == expected.shape
        assert found.dtype == out.numpy
        if self.data != "normal":
            np.testing.assert_array_equal(found, expected.astype(np.float32).astype(out.numpy))
            return
        sizes = convolved(abs(arrays["x"]), abs(arrays["w"]), self.stride, self.padding, self.dilation, self.groups)
        bits = 13 if as_dtype(self.types[0]).bits == 8 else 20
        bound = 2.0**-bits * sizes + (out.epsilon + 2.0**-9) * (abs(expected) + 1)
        assert (abs(found.astype(np.float64) - expected) <= bound).all()

    def run(self, *, seed: int = 0, schedule: str = "adversarial") -> Any:
        """Run on the emulator with every check on; return its report."""
        arrays = self.arrays()
        out = np.full((self.x[0], *self.extents, self.w[0]), 77).astype(as_dtype(self.out).numpy)
        options = self.keywords | {"out": out, "target": self.chip} | self._epilogue(arrays)
        arguments = ConvArguments.parse(arrays["x"], arrays["w"], **options)
        selection = select(arguments)
        plan = selection.kernel.plan(selection.arguments, seed=seed, schedule=schedule)
        plan()
        self.check(out, arrays)
        assert plan.report.clean, str(plan.report)
        return plan.report

    def _epilogue(self, arrays: dict[str, Array]) -> dict[str, Any]:
        given: dict[str, Any] = {name: arrays[name] for name in ("bias", "residual") if name in arrays}
        return given | ({} if self.beta is None else {"beta": self.beta})

    def call(self, target: str) -> None:
        """Run by `tilekit.conv2d` and compare."""
        import tilekit

        arrays = self.arrays()
        found = tilekit.conv2d(arrays["x"], arrays["w"], target=target, **self.keywords, **self._epilogue(arrays))
        self.check(found, arrays)


def convolved(
    x: Array, w: Array, stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int
) -> Array:
    """The convolution by its definition, in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    count, taps_y, taps_x, channels = w.shape
    (step_y, step_x), (apart_y, apart_x), each = stride, dilation, count // groups
    padded = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
    height = (padded.shape[1] - (taps_y - 1) * apart_y - 1) // step_y + 1
    width = (padded.shape[2] - (taps_x - 1) * apart_x - 1) // step_x + 1
    total = np.zeros((x.shape[0], height, width, count))
    for place in np.ndindex(taps_y, taps_x):
        top, left = place[0] * apart_y, place[1] * apart_x
        seen = padded[
            :, top : top + (height - 1) * step_y + 1 : step_y, left : left + (width - 1) * step_x + 1 : step_x
        ]
        for group in range(groups):
            filters = slice(group * each, (group + 1) * each)
            total[..., filters] += seen[..., group * channels : (group + 1) * channels] @ w[filters][:, *place].T
    return total


def drawn(seed: int, chip: str, *, large: bool = False) -> Convolution:
    """The case of a seed: small enough for the emulator, or large."""
    rng = Random(f"{chip} {seed} {large}")
    while True:
        case = _draw(rng, seed, chip, large=large)
        if min(case.extents) < 1 or case.work > (2e9 if large else 4e6):
            continue
        for config in (case.config, *rng.sample(CONFIGS[chip], len(CONFIGS[chip]))):
            case = replace(case, config=config)
            if _legal(case):
                return case


def _legal(case: Convolution) -> bool:
    """Whether the config computes it: what threads copy has no clusters, for one."""
    arrays = {name: np.empty(shape, as_dtype(kind).numpy) for name, shape, kind in _layouts(case)}
    options = case.keywords | {"target": case.chip}
    if "residual" in arrays:
        options["residual"] = arrays["residual"]
    arguments = ConvArguments.parse(case._placed(arrays["x"]), arrays["w"], **options)
    return case.config is None or case.config.legal(arguments.target, arguments.spec)


def _layouts(case: Convolution) -> list[tuple[str, tuple[int, ...], str]]:
    found: list[tuple[str, tuple[int, ...], str]] = [("x", case.x, case.types[0]), ("w", case.w, case.types[1])]
    if case.beta is not None:
        found.append(("residual", (case.x[0], *case.extents, case.w[0]), case.out))
    return found


def _draw(rng: Random, seed: int, chip: str, *, large: bool) -> Convolution:
    types = rng.choice(TYPES if target(chip).has("float8_matrix") else TYPES[:3])
    groups = rng.choice((1, 1, 1, 1, 2, 3, 8))
    most = 5 if not large else 9
    channels = groups * rng.choice(
        (1, 3, 4, 7, 8, 8, 16, 16, 16, 24, 32, 32, 32, 64, 64, 64, 72, 80, 96, 128, 128, 40, 112)
    )
    taps = rng.choice(((1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (1, 7), (4, 2), (6, 3)))
    height, width = (rng.choice((1, 2, 3, 5, 7, 8, 9, 13, 14, 17, 28) + ((56, 57, 112) if large else ())) for _ in "yx")
    count = groups * rng.choice((1, 4, 8, 8, 16, 24, 32, 40) + ((64, 96, 128, 200) if large else ()))
    out = rng.choice((types[0] if types[0] in ("bf16", "f16") else "bf16", "f32", "bf16"))
    data: Data = rng.choice(("integers", "integers", "places", "normal"))
    sums = data == "places"
    return Convolution(
        seed=seed,
        chip=chip,
        types=types,
        out=out,
        x=(rng.randint(1, most), height, width, channels),
        w=(count, *taps, channels // groups),
        stride=rng.choice((*[(1, 1)] * 5, *[(2, 2)] * 4, (2, 1), (2, 1), (3, 2), (1, 9))),
        padding=rng.choice((*[(0, 0)] * 4, *[(1, 1)] * 6, *[(3, 3)] * 3, (2, 0), (2, 0), (0, 5), (130, 1))),
        dilation=rng.choice((*[(1, 1)] * 9, *[(2, 2)] * 4, (1, 3), (1, 3), (12, 5), (40, 2))),
        groups=groups,
        gap=rng.choice((*[0] * 8, 8, 16, 16, 3)),
        config=rng.choice(CONFIGS[chip]),
        data=data,
        bias=None if sums else rng.choice((None, None, "f32", "bf16")),
        activation="silu" if data == "normal" and rng.random() < 0.3 else rng.choice((None, "relu")),
        scale=None if sums else rng.choice((None, None, 0.5)),
        beta=None if sums else rng.choice((None, None, 1.0, -2.0)),
    )

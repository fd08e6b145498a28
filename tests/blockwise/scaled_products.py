"""Products with scales of blocks: drawn from a seed, computed in float64, and run on the emulator or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import tilekit
from tilekit.dtypes import as_dtype
from tilekit.kernels.blockwise.arguments import BlockwiseArguments, GroupedBlockwiseArguments
from tilekit.kernels.dispatch import select
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

Array = NDArray[Any]

Data = Literal["integers", "places", "normal"]
"""Small integers with powers of two for scales; ones that each pick one k, under scales that say where they lie."""

Lie = Literal["rows", "columns", "gaps"]
"""A's scales: of a k-block behind each other, of a row behind each other, or of a row, and B's too, with gaps."""

GAP = 3
HELD = 13
"""Bits that a tensor core of Hopper keeps of a sum of 128 products."""


@dataclass(frozen=True)
class ScaledProduct:
    """One product, of whole matrices or of groups of rows.

    Attributes
    ----------
    m, n, k
        Extents; of groups that are counted, `m` rows each.
    groups
        Rows of each group: they lie behind each other, or with `counted` begin `m` rows apart.
    """

    seed: int
    chip: str
    m: int
    n: int
    k: int
    types: tuple[str, str] = ("e4m3", "e4m3")
    out: str = "f32"
    data: Data = "integers"
    lie: Lie = "rows"
    bias: str | None = None
    activation: str | None = None
    config: KernelConfig | None = None
    groups: tuple[int, ...] = ()
    counted: bool = False

    def __str__(self) -> str:
        groups = f" {'counts' if self.counted else 'groups'} {self.groups}" if self.groups else ""
        return (
            f"{self.chip} {self.seed}: {self.m}x{self.n}x{self.k}{groups} {self.types} {self.out} {self.data} "
            f"{self.lie} {self.bias} {self.activation} {self.config}"
        )

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks of 128 along N and along K."""
        return -(-self.n // 128), -(-self.k // 128)

    def arrays(self) -> dict[str, Array]:
        """Operands, scales, bounds and bias."""
        rng = np.random.default_rng(self.seed)
        a_type, b_type = (as_dtype(name).numpy for name in self.types)
        along_n, along_k = self.blocks
        rows = (len(self.groups), self.m) if self.counted else (self.m,)
        matrices = (len(self.groups),) if self.groups else ()
        shapes = (*rows, self.k), (*matrices, self.n, self.k), (*rows, along_k), (*matrices, along_n, along_k)
        match self.data:
            case "integers":
                a, b = (rng.integers(-3, 4, shape) for shape in shapes[:2])
                scale_a, scale_b = (2.0 ** rng.integers(-3, 4, shape) for shape in shapes[2:])
            case "places":
                a, b = np.ones(shapes[0]), np.zeros(shapes[1])
                if self.k:
                    picked = rng.integers(0, self.k, b.shape[:-1])
                    np.put_along_axis(b, picked[..., None], 1.0, -1)
                scale_a, scale_b = (1.0 + (np.arange(np.prod(shape)) * 7 % 251).reshape(shape) for shape in shapes[2:])
            case _:
                a, b = (rng.normal(size=shape) for shape in shapes[:2])
                scale_a, scale_b = (rng.uniform(0.5, 1.5, shape) for shape in shapes[2:])
        found = {
            "a": a.astype(a_type),
            "b": np.swapaxes(b.astype(b_type), -1, -2),
            "scale_a": self._laid(scale_a.astype(np.float32)),
            "scale_b": self._laid_b(scale_b.astype(np.float32)),
        }
        if self.bias is not None:
            found["bias"] = rng.integers(-9, 10, self.n).astype(as_dtype(self.bias).numpy)
        if self.groups:
            found["bounds"] = (np.array(self.groups) if self.counted else np.cumsum(self.groups)).astype(np.int32)
        return found

    def _laid(self, scales: Array) -> Array:
        """A's scales in their layout, NaN between them."""
        *outer, rows, blocks = scales.shape
        shape = (blocks, -(-rows // 4) * 4 + 4) if self.lie == "rows" else (rows, blocks + GAP * (self.lie == "gaps"))
        memory = np.full((*outer, *shape), np.nan, np.float32)
        view = np.swapaxes(memory, -1, -2)[..., :rows, :] if self.lie == "rows" else memory[..., :blocks]
        view[...] = scales
        return view

    def _laid_b(self, scales: Array) -> Array:
        """B's scales, rows with gaps of NaN where A's have them: then those of 128 columns begin at 16 bytes."""
        if self.lie != "gaps":
            return scales
        *outer, rows, blocks = scales.shape
        memory = np.full((*outer, rows, -(-blocks // 4) * 4 + 4), np.nan, np.float32)
        memory[..., :blocks] = scales
        return memory[..., :blocks]

    def expected(self, arrays: dict[str, Array], *, sizes: bool = False) -> Array:
        """The result in float64, before it is rounded; or the sizes of what is added."""
        a, b = (arrays[name].astype(np.float64) for name in "ab")
        scale_a, scale_b = (arrays[f"scale_{name}"].astype(np.float64) for name in "ab")
        if sizes:
            a, b = abs(a), abs(b)
        a = a * np.repeat(scale_a, 128, -1)[..., : self.k]
        b = b * np.swapaxes(np.repeat(np.repeat(scale_b, 128, -2), 128, -1)[..., : self.n, : self.k], -1, -2)
        if self.counted:
            return np.einsum("grk,gkn->grn", a, b)
        if not self.groups:
            total = a @ b
            return total if sizes else self._functions(total, arrays)
        total, first = np.full((self.m, self.n), np.nan), 0
        for group, rows in enumerate(self.groups):
            total[first : first + rows] = a[first : first + rows] @ b[group]
            first += rows
        return total

    def _functions(self, total: Array, arrays: dict[str, Array]) -> Array:
        total = total + (arrays["bias"].astype(np.float64) if "bias" in arrays else 0.0)
        match self.activation:
            case "relu":
                return np.maximum(total, 0)
            case "silu":
                return total / (1 + np.exp(-total))
        return total

    def check(self, found: Array, arrays: dict[str, Array]) -> None:
        """Compare with float64, to the bit where sums are exact; rows of no group are as they were."""
        expected, out = self.expected(arrays), as_dtype(self.out)
        assert found.shape == expected.shape
        assert found.dtype == out.numpy
        for group, rows in enumerate(self.groups if self.counted else ()):
            expected[group, rows:] = np.nan
        inside = ~np.isnan(expected)
        assert np.isnan(found.astype(np.float64)[~inside]).all()
        if self.data != "normal":
            np.testing.assert_array_equal(found[inside], expected.astype(np.float32).astype(out.numpy)[inside])
            return
        bound = 2.0**-HELD * self.expected(arrays, sizes=True) + (out.epsilon + 2.0**-9) * (abs(expected) + 1)
        assert (abs(found.astype(np.float64) - expected) <= bound)[inside].all()

    def _given(self, arrays: dict[str, Array], out: Array | None, target: str) -> dict[str, Any]:
        names = {"bounds": "counts" if self.counted else "ends"}
        scales = ("scale_a", "scale_b", "bias", "bounds")
        given: dict[str, Any] = {names.get(name, name): arrays[name] for name in scales if name in arrays}
        return given | {
            "out": out,
            "out_dtype": self.out,
            "activation": self.activation,
            "config": self.config,
            "target": target,
        }

    def arguments(self, arrays: dict[str, Array], out: Array) -> Any:
        """The call, read."""
        given = self._given(arrays, out, self.chip)
        kind = GroupedBlockwiseArguments if self.groups else BlockwiseArguments
        return kind.parse(arrays["a"], arrays["b"], **given)

    def poisoned(self) -> Array:
        """An output full of NaN."""
        shape = (len(self.groups), self.m, self.n) if self.counted else (self.m, self.n)
        return np.full(shape, np.nan).astype(as_dtype(self.out).numpy)

    def run(self, *, seed: int = 0) -> Any:
        """Run on the emulator with every check on; return its report."""
        arrays, out = self.arrays(), self.poisoned()
        selection = select(self.arguments(arrays, out))
        plan = selection.kernel.plan(selection.arguments, seed=seed)
        plan()
        self.check(out, arrays)
        assert self.m * self.n == 0 or plan.report.clean, str(plan.report)
        return plan

    def call(self, target: str) -> None:
        """Run by the public call and compare."""
        arrays, out = self.arrays(), self.poisoned()
        call: Any = tilekit.grouped_matmul if self.groups else tilekit.scaled_matmul
        call(arrays["a"], arrays["b"], **self._given(arrays, out, target))
        self.check(out, arrays)


HOPPER = tuple(
    replace(config, in_flight=0)
    for config in (
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1),
        MatmulConfig(tile=(128, 128), cluster=(2, 1)),
        MatmulConfig(tile=(128, 176), cluster=(1, 2)),
        MatmulConfig(tile=(128, 192), cluster=(2, 1)),
        MatmulConfig(tile=(192, 72), cluster=(1, 1), consumers=3, split_k=2),
        MatmulConfig(tile=(256, 128), cluster=(2, 1), output_buffers=1),
        MatmulConfig(tile=(192, 80), cluster=(1, 1), schedule="pingpong"),
        MatmulConfig(tile=(128, 96), cluster=(1, 1), schedule="pingpong", swap_ab=True),
        MatmulConfig(tile=(64, 40), cluster=(1, 1), consumers=1, swap_ab=True, cluster_k=2),
        MatmulConfig(tile=(256, 64), cluster=(1, 2), swap_ab=True),
        MatmulConfig(tile=(16, 96), cluster=(1, 1), consumers=1),
        MatmulConfig(tile=(128, 64), cluster=(1, 1), stream_k=2),
    )
)
BLACKWELL = (
    BlackwellConfig(tile=(128, 128), accumulator_stages=4),
    BlackwellConfig(tile=(128, 96), cluster=(1, 2), cta_group=1),
    BlackwellConfig(tile=(64, 128), accumulator_stages=2),
    BlackwellConfig(tile=(64, 64), cta_group=1, cluster=(1, 1), swap_ab=True, clc_stages=0),
    BlackwellConfig(tile=(128, 48), cta_group=1, cluster=(1, 1), split_k=3),
)
CONFIGS: dict[str, tuple[KernelConfig, ...]] = {"sm_90a": HOPPER, "sm_100a": BLACKWELL}


def drawn(seed: int, chip: str, *, large: bool = False) -> ScaledProduct:
    """The case of a seed: small enough for the emulator, or large."""
    rng = Random(f"{chip} {seed} {large}")
    while True:
        case = _draw(rng, seed, chip, large)
        for config in (case.config, *rng.sample(CONFIGS[chip], len(CONFIGS[chip])), None):
            case = replace(case, config=config)
            arguments = case.arguments(case.arrays(), case.poisoned())
            if config is None or config.legal(arguments.target, arguments.spec):
                return case


def _draw(rng: Random, seed: int, chip: str, large: bool) -> ScaledProduct:
    many = 8 if large else 1
    grouped = rng.choice((None, None, "ends", "counts"))
    k = rng.choice((128, 256, 384, 640, 144, 304, 16, 1040)) * (many if rng.random() < 0.5 else 1)
    odd = chip == "sm_90a" and grouped is None and rng.random() < 0.2
    n = rng.choice((8, 64, 72, 128, 136, 200, 264, 328)) * rng.choice((1, many))
    data: Data = rng.choice(("integers", "integers", "places", "normal"))
    case = ScaledProduct(
        seed=seed,
        chip=chip,
        m=rng.choice((1, 3, 8, 16, 33, 64, 100, 129, 200, 260)) * rng.choice((1, many)),
        n=n + (3 if odd and rng.random() < 0.5 else 0),
        k=k + (rng.choice((1, 3, 8)) if odd else 0),
        types=rng.choice((("e4m3", "e4m3"), ("e4m3", "e4m3"), ("e5m2", "e4m3"))),
        out=rng.choice(("f32", "bf16", "f16")) if data == "normal" else "f32",
        data=data,
        lie=rng.choice(("rows", "rows", "columns", "gaps")),
        config=rng.choice((None, *CONFIGS[chip])),
    )
    if grouped is None:
        plain = data == "places"
        return replace(
            case,
            bias=None if plain else rng.choice((None, "f32", "bf16")),
            activation="silu" if data == "normal" and rng.random() < 0.3 else rng.choice((None, "relu")),
        )
    sizes = tuple(rng.choice((0, 1, 7, 40, 64, 65, 130)) * rng.choice((1, many)) for _ in range(rng.randint(1, 5)))
    counted = grouped == "counts"
    m = max(*sizes, 1) + rng.randint(0, 9) if counted else sum(sizes) + rng.choice((0, 0, 5))
    return replace(case, groups=sizes, counted=counted, m=max(m, 1))

"""Products of signed bytes on every chip that has a matmul: each argument, drawn at random, exact to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilekit
from tilekit import Cdna3Config, Cdna4Config
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.picker import closest, pick
from tilekit.kernels.matmul.platforms import platforms
from tilekit.kernels.matmul.sm_89.config import AdaConfig
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime.assembler import assemble
from tilekit.targets import target

Array = npt.NDArray[Any]
CHIPS = tuple(chip.name for chip in platforms())


def random_bytes(random: np.random.Generator, *shape: int) -> Array:
    """Signed bytes, both ends among them."""
    return random.integers(-128, 128, shape, dtype=np.int8)


def product(a: Array, b: Array) -> Array:
    """A B in int32, whose sums wrap as the tensor core's do."""
    exact: Array = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    return exact


def laid(matrix: Array, major: str, pad: int) -> Array:
    """The same matrix, contiguous along K or along the other dimension, in rows `pad` bytes longer."""
    if major == "mn":
        return laid(matrix.swapaxes(-1, -2), "k", pad).swapaxes(-1, -2)
    wide = np.full((*matrix.shape[:-1], matrix.shape[-1] + pad), 99, np.int8)
    wide[..., : matrix.shape[-1]] = matrix
    return wide[..., : matrix.shape[-1]]


@dataclass(frozen=True)
class Case:
    """A product: extents, layouts, and what is done with the sums."""

    m: int
    n: int
    k: int
    out: str
    majors: tuple[str, str]
    batches: int
    scaled: bool
    bias: bool
    residual: bool
    activation: str | None
    split: int
    pad: int

    @classmethod
    def random(cls, random: np.random.Generator, chip: str) -> Case:
        """Rows that begin anywhere where threads copy them, and either layout where the chip reads it."""
        turned = 8 in target(chip).transposed_bits or target(chip).isa == "gcn"
        anywhere = not target(chip).has("tensor_memory")
        step = int(random.choice([1, 16] if anywhere else [16]))
        m, n, k = (int(step * random.integers(1, max(2, 110 // step))) for _ in range(3))
        majors = [str(random.choice(["k", "mn"])) if turned else "k" for _ in range(2)]
        out = str(random.choice(["s32", "f32", "bf16", "f16"]))
        floats = out != "s32"
        return cls(
            *(m if majors[0] == "k" or step > 1 else m // 2 * 2 or 2, n, k),
            out=out,
            majors=(majors[0], majors[1]),
            batches=int(random.choice([0, 0, 1, 3])),
            scaled=floats and bool(random.integers(2)),
            bias=floats and bool(random.integers(2)),
            residual=floats and bool(random.integers(3) == 0),
            activation="relu" if floats and random.integers(2) else None,
            split=int(random.choice([1, 1, 2, 3])),
            pad=int(random.choice([0, 16] if not anywhere else [0, 16, 5])),
        )


def run(case: Case, chip: str, random: np.random.Generator, place: str | None = None) -> None:
    """Compute it on the emulator, or in another `place`.

    Powers of two scale sums that bf16 holds, so that nothing is rounded twice.
    """
    batch = (case.batches,) if case.batches else ()
    a, b = random_bytes(random, *batch, case.m, case.k), random_bytes(random, *batch, case.k, case.n)
    if case.out != "s32":
        a, b = a // 96, b // 96  # sums that every type of the result holds with what is added
    expected: Array = product(a, b)
    given: dict[str, Any] = {}
    if case.scaled:
        rows = 2.0 ** random.integers(-1, 2, case.m).astype(np.float32)
        columns = 2.0 ** random.integers(-1, 2, case.n).astype(np.float32)
        expected = expected * rows.astype(np.float32)[:, None] * columns.astype(np.float32)
        given["scale_a"], given["scale_b"] = rows.astype(np.float32), columns.astype(np.float32)
    if case.bias:
        given["bias"] = random.integers(-4, 5, case.n).astype(np.float32)
        expected = expected + given["bias"]
    if case.residual:
        wanted = tilekit.matmul(np.ones((1, 16), np.int8), np.ones((16, 1), np.int8), out_dtype=case.out).dtype
        given["residual"], given["beta"] = random.integers(-4, 5, expected.shape).astype(wanted), 1.0
        expected = expected + given["residual"].astype(np.float32)
    if case.activation:
        given["activation"] = case.activation
        expected = np.maximum(expected, 0)
    operands = laid(a, case.majors[0], case.pad), laid(b.swapaxes(-1, -2), case.majors[1], case.pad).swapaxes(-1, -2)
    given |= {"target": place or chip, "out_dtype": case.out}
    if case.split > 1:
        spec = tilekit.kernel_for(*operands, **given).spec
        extents = {"m": case.m, "n": case.n, "k": case.k, "batches": case.batches or 1}
        given["config"] = closest(spec, target(chip), {"split_k": case.split}, **extents)
    found = tilekit.matmul(*operands, **given)
    np.testing.assert_array_equal(found, expected.astype(found.dtype), err_msg=f"{case} on {chip}")


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip not in ("sm_80", "sm_86")])
def test_random_products(chip: str) -> None:
    """Layouts, pitches, batches, scales, epilogues and shares at random."""
    random = np.random.default_rng([0, CHIPS.index(chip)])
    run(Case.random(random, chip), chip, random)


@pytest.mark.breadth
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(40))
def test_further_random_products(chip: str, seed: int) -> None:
    """The same, more of them."""
    random = np.random.default_rng([seed, CHIPS.index(chip)])
    run(Case.random(random, chip), chip, random)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(30))
def test_random_products_on_a_gpu(seed: int) -> None:
    """The same on the device, shares among them."""
    random = np.random.default_rng([seed, 99])
    run(Case.random(random, "sm_90a"), "sm_90a", random, "cuda")


@pytest.mark.parametrize("chip", ["sm_80", "sm_100a", "gfx950"])
def test_sums_beyond_what_an_f32_holds(chip: str) -> None:
    """Odd sums of more than 24 bits keep their last bit, in shares, too; as f32 they are rounded once."""
    a, b = np.full((20, 2080), -128, np.int8), np.full((2080, 16), -128, np.int8)
    a[:, 0], b[0] = np.arange(20), np.arange(16)
    exact = product(a, b)
    assert (np.abs(exact) > 1 << 24).all()
    assert (exact % 2).any()
    named = target(chip)
    for out in ("s32", "f32"):
        spec = tilekit.kernel_for(a, b.T.copy().T, target=chip, out_dtype=out).spec
        config = closest(spec, named, {"split_k": 3}, m=20, n=16, k=2080, batches=1)
        found = tilekit.matmul(a, b.T.copy().T, target=chip, out_dtype=out, config=config)
        np.testing.assert_array_equal(found, exact.astype(found.dtype))


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize(
    ("chip", "kind"),
    [(chip, "ends") for chip in CHIPS if chip not in ("sm_86", "sm_89")] + [("sm_80", "counts"), ("sm_100a", "counts")],
)
def test_groups_of_rows(chip: str, kind: str) -> None:
    """Each group's rows by a matrix of its own, whole, and as f32 with an activation."""
    random = np.random.default_rng(7)
    sizes = np.array([17, 0, 40, 9], np.int32)
    b = random_bytes(random, 4, 48, 80).swapaxes(-1, -2)
    a = random_bytes(random, int(sizes.sum()), 80)
    parts = np.split(a, np.cumsum(sizes)[:-1])
    products = [product(rows, matrix) for rows, matrix in zip(parts, b, strict=True)]
    if kind == "ends":
        for out, wanted in (("s32", np.concatenate(products)), ("f32", np.maximum(np.concatenate(products), 0))):
            activation = None if out == "s32" else "relu"
            found = tilekit.grouped_matmul(
                a, b, np.cumsum(sizes).astype(np.int32), target=chip, out_dtype=out, activation=activation
            )
            np.testing.assert_array_equal(found, wanted.astype(found.dtype))
        return
    padded = np.zeros((4, 48, 80), np.int8)
    for group, rows in enumerate(parts):
        padded[group, : len(rows)] = rows
    found = tilekit.grouped_matmul(padded, b, counts=sizes, target=chip)
    assert found.dtype == np.int32
    for group, rows in enumerate(products):
        np.testing.assert_array_equal(found[group, : len(rows)], rows)


@pytest.mark.parametrize("out", ["s32", "bf16"])
def test_shares_in_a_cluster(out: str) -> None:
    """On sm_90a shares go through distributed shared memory, whole; more CTAs than parts among them."""
    random = np.random.default_rng(3)
    a, b = random_bytes(random, 40, 700), random_bytes(random, 40, 700).T
    for config in (
        MatmulConfig(tile=(64, 32), consumers=1, cluster_k=4, cluster=(1, 1)),
        MatmulConfig(tile=(64, 16), consumers=1, cluster_k=8, cluster=(1, 1), swap_ab=True),
    ):
        found = tilekit.matmul(a, b, out_dtype=out, config=config)
        np.testing.assert_array_equal(found, product(a, b).astype(found.dtype))


DRIVEN = [
    *(Cdna4Config(tile=(128, 128), driver=driver) for driver in ("ping_pong", "interleaved")),
    Cdna3Config(tile=(128, 128), driver="interleaved"),
    Cdna3Config(tile=(128, 64), swap_ab=True, split_k=2),
    BlackwellConfig(tile=(128, 96), cta_group=2, cluster=(2, 1)),
    BlackwellConfig(tile=(64, 64), cta_group=2, cluster=(2, 2), split_k=2),
    BlackwellConfig(tile=(64, 48), cta_group=1, cluster=(1, 2), swap_ab=True, accumulator_stages=1),
    AdaConfig(tile=(64, 128), grid=(1, 4), split_k=3),
]


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("config", DRIVEN, ids=lambda config: f"{config.TARGET}-{config}")
def test_configs(config: Any) -> None:
    """Drivers, CTA pairs, swapped operands and shares, stored whole and scaled; every element says where it is from."""
    random = np.random.default_rng(5)
    a, b = random_bytes(random, 70, 144), random_bytes(random, 144, 80)
    for out in ("s32", "f32"):
        given = {} if out == "s32" else {"scale_b": np.full(80, 0.25, np.float32)}
        found = tilekit.matmul(a, laid(b.T, "k", 0).T, target=config.TARGET, config=config, out_dtype=out, **given)
        wanted = product(a, b) if out == "s32" else product(a, b).astype(np.float32) * np.float32(0.25)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_what_is_picked_assembles_for_amd_chips(chip: str) -> None:
    """LLVM's assembler takes the integer instructions of the chip."""
    spec = MatmulSpec(**dict.fromkeys(("a_dtype", "b_dtype"), "s8"), out_dtype="bf16")  # type: ignore[arg-type]
    kernel = compiled(spec, pick(spec, target(chip), m=4096, n=4096, k=4096), target(chip), MatmulKernel)
    instruction = {"gfx942": "v_mfma_i32_16x16x32_i8", "gfx950": "v_mfma_i32_16x16x64_i8"}[chip]
    assert instruction in kernel.assembly
    assert kernel.resources.vgprs <= 512


@pytest.mark.parametrize(
    ("chip", "out"),
    [
        ("sm_80", "s32"),
        ("sm_89", "bf16"),
        ("sm_90a", "s32"),
        ("sm_90a", "bf16"),
        ("sm_100a", "bf16"),
        ("sm_120a", "s32"),
    ],
)
def test_what_is_picked_assembles_without_spills(chip: str, out: str) -> None:
    """Machine code of the chip, and no register goes to memory; shares of long sums among them."""
    spec = MatmulSpec(**dict.fromkeys(("a_dtype", "b_dtype"), "s8"), out_dtype=out)  # type: ignore[arg-type]
    shapes = ((4096, 4096, 4096), (64, 512, 16384), (16, 4096, 1024))
    configs = {pick(spec, target(chip), m=m, n=n, k=k) for m, n, k in shapes}
    for config in configs:
        kernel = compiled(spec, config, target(chip), MatmulKernel)
        resources = assemble(kernel.ptx, chip, kernel_name=kernel.name).resources
        assert (resources.spill_store_bytes, resources.spill_load_bytes) == (0, 0)

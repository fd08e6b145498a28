"""The matmul by a warp's matrix instruction: exact sums on the emulator for each such chip, and as text on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.drivers.multistage import _Stages
from tilekit.dtypes import as_dtype
from tilekit.emulator.core.errors import EmulatorError
from tilekit.errors import ArgumentError, ConfigError, DriverError, FindingWarning
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.picker import candidates, closest, pick
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.resolve import target_of
from tilekit.runtime.assembler import assemble
from tilekit.runtime.driver import DeviceInfo
from tilekit.targets import target
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.cp_async import CopyWriter
from tilekit.tile_io.cp_async_pieces import PieceTile
from tilekit.tile_pipeline.together_sync import TogetherSync

CHIPS = ("sm_80", "sm_86", "sm_89", "sm_120a")
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")
CANARY = 16
"""Elements before and behind an output that nothing may touch."""


@dataclass(frozen=True)
class Case:
    """A product: extents, types, majors, and what is done with the sums."""

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    out: str = "float32"
    majors: tuple[str, str] = ("k", "k")
    batches: int = 0
    bias: bool = False
    residual: bool = False
    split: int = 1
    pad: int = 0

    @classmethod
    def random_8bit(cls, random: np.random.Generator, most: int) -> Case:
        """The same of 8-bit floats, which are K-major, in and out; short K leaves sums that 8 bits round."""
        drawn = cls.random(random, most)
        dtype, out = (str(random.choice(list(kinds))) for kinds in (EIGHT_BITS, (*EIGHT_BITS, "bfloat16", "float32")))
        return replace(
            drawn, dtype=dtype, out=out, majors=("k", "k"), residual=drawn.residual and out not in EIGHT_BITS
        )

    @classmethod
    def random(cls, random: np.random.Generator, most: int) -> Case:
        """Odd extents as often as even ones; every other argument at random."""
        step = int(random.choice([1, 8, 16]))
        m, n, k = (int(step * random.integers(1, max(2, most // step))) for _ in range(3))
        majors = ("k", "mn")
        return cls(
            m,
            n,
            k,
            dtype=str(random.choice(["bfloat16", "float16"])),
            out=str(random.choice(["float32", "same"])),
            majors=(majors[random.integers(2)], majors[random.integers(2)]),
            batches=int(random.choice([0, 0, 0, 1, 3])),
            bias=bool(random.integers(2)),
            residual=bool(random.integers(4) == 0),
            split=int(random.choice([1, 1, 1, 2, 3])),
            pad=int(random.choice([0, 0, 8, 3])),
        )


def run(case: Case, chip: str, seed: int, place: Any, **shares: Any) -> None:
    """Compute it in a poisoned output between canaries; small whole numbers, so that every sum is exact.

    `place` takes an array to where it is multiplied and gives a function that brings it back. `shares` are asked of the
    config where K is shared.
    """
    random = np.random.default_rng(seed)
    batch = (case.batches,) if case.batches else ()
    dtype = np.dtype(getattr(ml_dtypes, case.dtype, None) or case.dtype)
    out_dtype = dtype if case.out == "same" else np.dtype(getattr(ml_dtypes, case.out, None) or case.out)
    a, b = random.integers(-2, 3, (*batch, case.m, case.k)), random.integers(-2, 3, (*batch, case.k, case.n))
    expected = (a @ b).astype(np.float64)
    keywords: dict[str, Any] = {}
    if case.bias:
        bias = random.integers(-4, 5, case.n).astype(np.float32)
        expected += bias
        keywords["bias"] = place(bias)[0]
    if case.residual:
        residual = random.integers(-4, 5, expected.shape).astype(out_dtype)
        expected += residual.astype(np.float64)
        keywords["residual"], keywords["beta"] = place(residual)[0], 1.0
    operands = []
    for matrix, major in ((a, case.majors[0]), (np.swapaxes(b, -1, -2), case.majors[1])):
        laid = matrix if major == "k" else np.swapaxes(matrix, -1, -2)
        wide = np.full((*laid.shape[:-1], laid.shape[-1] + case.pad), np.nan).astype(dtype)
        wide[..., : laid.shape[-1]] = laid
        view = place(wide)[0][..., : laid.shape[-1]]
        operands.append(view if major == "k" else view.swapaxes(-1, -2))
    size = expected.size
    storage, back = place(np.full(size + 2 * CANARY, np.nan).astype(out_dtype))
    out = storage[CANARY : CANARY + size].reshape(expected.shape)
    call = {"a": operands[0], "b": operands[1].swapaxes(-1, -2), "out": out, "target": chip, **keywords}
    if case.split > 1:
        spec = tilekit.kernel_for(**call).spec
        extents = {"m": case.m, "n": case.n, "k": case.k, "batches": case.batches or 1}
        call["config"] = closest(spec, target(chip), {"split_k": case.split, **shares}, **extents)
    tilekit.matmul(**call)
    found = back(storage)
    most = float(ml_dtypes.finfo(out_dtype).max)
    wanted = np.full(size + 2 * CANARY, np.nan).astype(out_dtype)
    wanted[CANARY : CANARY + size] = np.clip(expected.reshape(-1), -most, most).astype(out_dtype)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64), err_msg=f"{case} seed {seed}")


def here(array: Any) -> Any:
    """On the host, for the emulator."""
    return array, lambda found: found


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(5))
def test_random_products(chip: str, seed: int) -> None:
    """Extents, layouts, pitches, batches, epilogues and shares at random: exact, and nothing else is written."""
    random = np.random.default_rng([seed, CHIPS.index(chip)])
    run(Case.random(random, 160), chip, seed, here)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("chip", ["sm_89", "sm_120a"])
@pytest.mark.parametrize("seed", range(3))
def test_random_8bit_products(chip: str, seed: int) -> None:
    """Of 8-bit floats, in and out: exact or rounded once, the largest number where a sum is larger."""
    random = np.random.default_rng([seed, CHIPS.index(chip)])
    run(Case.random_8bit(random, 160), chip, seed, here)


@pytest.mark.sampled(one_in=18)
@pytest.mark.parametrize("majors", [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_majors(majors: tuple[str, str], dtype: str) -> None:
    """Of aligned operands, whose pieces are copied whole, and of ragged extents."""
    run(Case(136, 200, 264, dtype, "same", majors), "sm_80", 1, here)
    run(Case(65, 33, 130, dtype, "float32", majors), "sm_80", 2, here)


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("chip", ["sm_89", "sm_120a"])
@pytest.mark.parametrize("out", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(70, 80, 96), (33, 45, 50)], ids=str)
def test_8bit_floats_out(chip: str, out: str, shape: tuple[int, int, int]) -> None:
    """Rounded to nearest even, the largest number where a sum is larger; eight, two and single bytes are stored.

    With scales of rows a thread has two neighbours; rows that begin anywhere are stored byte by byte.
    """
    m, n, k = shape
    random = np.random.default_rng(3)
    dtype = np.dtype(getattr(ml_dtypes, out))
    most = float(ml_dtypes.finfo(dtype).max)
    a, b = (random.integers(-9, 10, extents).astype(ml_dtypes.float8_e4m3fn) for extents in ((m, k), (n, k)))
    a[:2] = 448
    b[:3] = 448
    exact = a.astype(np.float32) @ b.astype(np.float32).T
    assert (np.abs(exact) > most).any() or out == "float8_e5m2"
    storage = np.full(m * n + 2 * CANARY, np.nan, np.float32).astype(dtype)
    d = storage[CANARY : CANARY + m * n].reshape(m, n)
    config = replace(platform(target(chip)).config(), tile=(64, 64), grid=(2, 2))
    for scales in ({}, {"scale_a": np.full(m, 0.5, np.float32)}):
        tilekit.matmul(a, b.T, out=d, target=chip, config=config, **scales)
        wanted = np.clip(exact * (0.5 if scales else 1), -most, most).astype(dtype)
        np.testing.assert_array_equal(d.view(np.uint8), wanted.view(np.uint8))
        assert np.isnan(storage[:CANARY].astype(np.float32)).all()
        assert np.isnan(storage[-CANARY:].astype(np.float32)).all()


def test_position_coded() -> None:
    """Each row of A names itself and each column of B: no element is another's."""
    m, n, k = 144, 136, 64
    a, b = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((k, n), ml_dtypes.bfloat16)
    a[:, 0], a[:, 1] = np.arange(m), 1
    b[0, :], b[1, :] = 256, np.arange(n)
    wanted = np.arange(m)[:, None] * 256 + np.arange(n)[None, :]
    for columns in (b, np.ascontiguousarray(b.T).T):
        found = tilekit.matmul(a, columns, target="sm_80", out_dtype="float32")
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("majors", ["kk", "mn"])
def test_what_is_picked_assembles_without_spills(chip: str, majors: str) -> None:
    """What the picker takes for a dozen shapes is machine code of the chip, and no register goes to memory."""
    major = ("k", "k") if majors == "kk" else ("mn", "mn")
    spec, named = MatmulSpec(a_major=major[0], b_major=major[1]), target(chip)  # type: ignore[arg-type]
    shapes = ((512, 512, 512), (4096, 4096, 4096), (128, 4096, 4096), (64, 8192, 8192), (16, 4096, 1024))
    for config in {pick(spec, named, m=m, n=n, k=k) for m, n, k in shapes}:
        kernel = compiled(spec, config, named, MatmulKernel)
        assert assemble(kernel.ptx, chip, kernel_name=kernel.name).resources.registers <= 255


@pytest.mark.parametrize("chip", CHIPS)
def test_candidates_are_legal_and_every_config_explains_itself(chip: str) -> None:
    """The model tries no illegal config, and `explain` says what a warp has."""
    named, spec = target(chip), MatmulSpec()
    every = candidates(spec, named)
    assert len(every) > 50
    assert all(config.legal(named, spec) for config in every)
    kernel = compiled(spec, every[0], named, MatmulKernel)
    assert "a warp" in kernel.explain()
    assert "accumulators" in kernel.explain()


def test_what_a_chip_lacks() -> None:
    """8-bit floats on sm_80, types of the output, bad grids: refused at the call, with the nearest."""
    a = np.zeros((16, 32), ml_dtypes.float8_e4m3fn)
    with pytest.raises(ArgumentError, match=r"sm_80 has no matrix instruction of 8-bit floats.*TK-MM-001"):
        tilekit.matmul(a, a.T, target="sm_80", out_dtype="bf16")
    half = np.zeros((16, 32), np.float16)
    with pytest.raises(ArgumentError, match=r"sm_86 has no 8-bit floats.*write bf16, f16 or f32.*TK-MM-002"):
        tilekit.matmul(half, half.T, target="sm_86", out_dtype="e4m3")
    kind = platform(target("sm_80")).config
    with pytest.raises(ConfigError, match="grid"):
        tilekit.matmul(half, half.T, target="sm_80", config=replace(kind(), grid=(3, 1)))
    with pytest.raises(ConfigError, match="a multiple of 32"):
        tilekit.matmul(half, half.T, target="sm_80", config=replace(kind(), tile=(120, 128)))


@pytest.mark.parametrize(
    ("capability", "asked", "found"),
    [
        ((8, 0), None, "sm_80"),
        ((8, 6), None, "sm_86"),
        ((8, 7), None, "sm_86"),
        ((8, 9), "cuda", "sm_89"),
        ((12, 0), None, "sm_120a"),
        ((9, 0), None, "sm_90a"),
        ((9, 0), "sm_80", "sm_80"),
        ((10, 0), "sm_89", "sm_89"),
    ],
)
def test_chips_of_gpus(capability: tuple[int, int], asked: str | None, found: str) -> None:
    """A GPU's own chip, or the nearest whose machine code it runs; text of an earlier one where it is asked for."""
    device = _device(capability)
    assert target_of(device, asked).name == found


@pytest.mark.parametrize(
    ("capability", "asked"), [((7, 5), None), ((12, 1), None), ((8, 6), "sm_89"), ((9, 0), "sm_120a")]
)
def test_gpus_that_run_no_text_of_ours(capability: tuple[int, int], asked: str | None) -> None:
    """Before Ampere, between chips whose text is for one alone, and text of a later chip: refused by name."""
    with pytest.raises((ArgumentError, DriverError), match=r"TK-API-00[13]"):
        target_of(_device(capability), asked)


def _device(capability: tuple[int, int]) -> DeviceInfo:
    from dataclasses import fields

    given: dict[str, Any] = {field.name: 0 for field in fields(DeviceInfo)}
    return DeviceInfo(**{**given, "name": "a GPU", "compute_capability": capability})


@pytest.mark.gpu
@pytest.mark.parametrize("block", range(10))
def test_random_products_on_a_gpu(block: int) -> None:
    """The text for sm_80 on the GPU that is here: 32 products at random a block, exact between canaries."""
    torch = pytest.importorskip("torch")
    for seed in range(32 * block, 32 * (block + 1)):
        random = np.random.default_rng([7, seed])
        case = Case.random(random, int(random.choice([40, 200, 700])))
        run(case, "sm_80", seed, _on_gpu(torch))


@pytest.mark.gpu
@pytest.mark.parametrize("block", range(5))
def test_random_8bit_products_on_a_gpu(block: int) -> None:
    """The text for sm_89 on the GPU that is here: 32 products of 8-bit floats at random a block.

    sm_90 has no such instruction: ptxas converts fragments to f16, for which large tiles in shares have no registers.
    """
    torch = pytest.importorskip("torch")
    for seed in range(32 * block, 32 * (block + 1)):
        random = np.random.default_rng([8, seed])
        case = Case.random_8bit(random, int(random.choice([40, 200, 700])))
        run(case, "sm_89", seed, _on_gpu(torch), tile=(64, 64))


def _on_gpu(torch: Any) -> Any:
    names = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    names |= {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}

    def place(array: Any) -> Any:
        return (
            torch.from_numpy(array.astype(np.float32)).cuda().to(names[array.dtype.name]),
            lambda found: found.float().cpu().numpy(),
        )

    return place


def _without_meetings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TogetherSync, "meet", lambda self, w: None)


def _waiting_for_a_group_less(patch: pytest.MonkeyPatch) -> None:
    right = CopyWriter.wait
    patch.setattr(CopyWriter, "wait", lambda self, w, pending: right(self, w, pending + 1))


def _loading_one_stage_further(patch: pytest.MonkeyPatch) -> None:
    right = _Stages._load

    def load(self: Any, tile: Any, copies: Any, stage: Any, ahead: Any) -> None:
        right(self, tile, copies, (stage + 1) % self.count, ahead)

    patch.setattr(_Stages, "_load", load)


def _with_rows_of_b_in_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyPlan, "row_after", lambda self, index: index)


def _ignoring_one_line_late(patch: pytest.MonkeyPatch) -> None:
    right = PieceTile._lines_left
    patch.setattr(PieceTile, "_lines_left", lambda self, w, k: [left + 1 for left in right(self, w, k)])


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize(
    "mutant",
    [
        _without_meetings,
        _waiting_for_a_group_less,
        _loading_one_stage_further,
        _with_rows_of_b_in_order,
        _ignoring_one_line_late,
    ],
)
def test_mutants_are_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken in meetings, waits, stages, the order of rows or the operand's end is a finding or a wrong sum."""
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 3, shape).astype(np.float16) for shape in ((72, 456), (136, 456)))
    kind = platform(target("sm_80")).config
    config = replace(kind(), tile=(64, 64), grid=(2, 1), stages=3)
    spec = MatmulSpec(a_dtype=as_dtype("f16"), b_dtype=as_dtype("f16"), out_dtype=as_dtype("f32"))
    expected = a.astype(np.float32) @ b.astype(np.float32).T

    def found() -> Any:
        return MatmulKernel(spec, config, target("sm_80")).bind(a, b.T)()

    np.testing.assert_array_equal(found(), expected)
    mutant(monkeypatch)
    try:
        wrong = found()
    except (EmulatorError, FindingWarning):
        return
    assert not np.array_equal(wrong, expected)

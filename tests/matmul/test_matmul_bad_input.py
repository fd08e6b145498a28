"""What a matmul refuses: the type of the error, its code, what its message offers, and that nothing was launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit import MatmulConfig, MatmulSpec
from tilekit.errors import (
    ArgumentError,
    AssemblerNotFound,
    ConfigError,
    DriverError,
    EmulationTooLong,
    TilekitError,
)
from tilekit.kernels.plan import Plan
from tilekit.runtime import driver, toolchain
from tilekit.runtime.emulated import EmulatedLaunch
from tilekit.settings import settings

BF16, E4M3, F16, F32 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.float32


@pytest.fixture
def nothing_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a launch is reached."""

    def launched(*_arguments: Any, **_keywords: Any) -> None:
        pytest.fail("launched although the input is bad")

    monkeypatch.setattr(EmulatedLaunch, "__call__", launched)


def zeros(*shape: int, dtype: Any = BF16) -> np.ndarray[Any, Any]:
    """An array of zeros."""
    return np.zeros(shape, dtype)


def shifted(*shape: int, dtype: Any = BF16, by: int = 1) -> np.ndarray[Any, Any]:
    """Zeros that begin `by` elements into aligned memory."""
    flat = np.zeros(int(np.prod(shape)) + 64, dtype)
    first = (-flat.ctypes.data % 16) // flat.itemsize + by
    return flat[first : first + int(np.prod(shape))].reshape(shape)


def read_only(*shape: int) -> np.ndarray[Any, Any]:
    """Zeros that may not be written."""
    array = zeros(*shape)
    array.flags.writeable = False
    return array


def matmul(a: Any = None, b: Any = None, **keywords: Any) -> Callable[[], Any]:
    """A call, legal but for what is given: (64, 32) by (32, 48)."""
    return lambda: tilekit.matmul(zeros(64, 32) if a is None else a, zeros(32, 48) if b is None else b, **keywords)


def of_itself() -> Any:
    """A product into its own operand."""
    array = zeros(64, 64)
    return tilekit.matmul(array, zeros(64, 64), out=array)


class Elsewhere:
    """An array of another library, which speaks DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@dataclass(frozen=True)
class Bad:
    """A call and what its error must say."""

    name: str
    call: Callable[[], Any]
    code: str
    says: tuple[str, ...]
    error: type[TilekitError] = ArgumentError


def config(**fields: Any) -> Callable[[], Any]:
    """A call with a config."""
    return matmul(config=MatmulConfig(**fields))


BAD = (
    Bad("k differs", matmul(b=zeros(33, 48)), "TK-MM-011", ("a is (64, 32)", "b is (33, 48)", "K=32", "K=33")),
    Bad("b transposed", matmul(b=zeros(48, 32)), "TK-MM-011", ("K=32", "K=48", "pass b.T")),
    Bad("a vector", matmul(a=zeros(32)), "TK-MM-010", ("a has shape (32,)", "(M, K) @ (K, N)", "a[None, :]")),
    Bad("four axes", matmul(b=zeros(2, 2, 32, 48)),
        "TK-MM-010", ("b has shape (2, 2, 32, 48)", "reshape the leading axes")),
    Bad("batches differ", matmul(zeros(2, 64, 32), zeros(3, 32, 48)), "TK-MM-012", ("agree or be 1", "2 and 3")),
    Bad("no array", matmul(b=[[1.0]]), "TK-ARRAY-001", ("b is a builtins.list", "numpy.ndarray", "torch.Tensor")),
    Bad("no array at all", lambda: tilekit.matmul(zeros(4, 8), None), "TK-ARRAY-001", ("b is a builtins.NoneType",)),
    Bad("bf16 by f16", matmul(b=zeros(32, 48, dtype=F16)),
        "TK-MM-001", ("a is bf16 and b is f16", "for example b to bf16")),
    Bad("fp8 by bf16", matmul(a=zeros(64, 32, dtype=E4M3)), "TK-MM-001", ("a is e4m3 and b is bf16", "b to e4m3")),
    Bad("f32", matmul(zeros(64, 32, dtype=F32), zeros(32, 48, dtype=F32)), "TK-MM-001",
        ("a and b are f32", "precision='tf32'", "both to bf16")),
    Bad("f64", matmul(a=zeros(64, 32, dtype=np.float64)),
        "TK-DTYPE-001", ("a: given 'float64'", "bf16 (bfloat16)", "nearest")),
    Bad(
        "fp8 b by rows", matmul(zeros(64, 32, dtype=E4M3), zeros(32, 48, dtype=E4M3)), "TK-MM-004",
        ("b is e4m3", "not contiguous along K", ".T of an (N, K) array"),
    ),
    Bad(
        "fp8 a by columns", matmul(zeros(32, 64, dtype=E4M3).T, zeros(48, 32, dtype=E4M3).T), "TK-MM-004",
        ("a is e4m3", "K-major operands only"),
    ),
    Bad("8-bit residual", matmul(out_dtype="e4m3", residual=zeros(64, 48, dtype=E4M3)),
        "TK-MM-002", ("out_dtype=e4m3 with a residual", "bf16, f16 or f32", "nearest: bf16")),
    Bad("f32 by rows", matmul(zeros(64, 32, dtype=F32), zeros(32, 48, dtype=F32), precision="tf32"),
        "TK-MM-004", ("b is f32", "K-major operands only", ".T of an (N, K) array")),
    Bad("unknown precision", matmul(zeros(64, 32, dtype=F32), zeros(48, 32, dtype=F32).T, precision="tf23"),
        "TK-MM-023", ("precision: given 'tf23'", "nearest legal: 'tf32'")),
    Bad("precision of bf16", matmul(precision="tf32"), "TK-MM-023", ("a of bf16", "for f32 operands")),
    Bad("promoted bf16", matmul(accumulation="promoted"), "TK-MM-027", ("for 8-bit operands", "leave it out")),
    Bad("accumulation", matmul(zeros(64, 32, dtype=E4M3), zeros(48, 32, dtype=E4M3).T, accumulation="fats"),
        "TK-MM-027", ("accumulation: given 'fats'", "nearest legal: 'fast'")),
    Bad("promoted gemv of bf16", matmul(zeros(4, 32), accumulation="promoted"), "TK-MM-027", ("for 8-bit operands",)),
    Bad("promoted on Blackwell", matmul(zeros(64, 32, dtype=E4M3), zeros(48, 32, dtype=E4M3).T, target="sm_100a",
        accumulation="promoted"), "TK-MM-027", ("on sm_100a", "nearest: 'fast'")),
    Bad("promotion in flight", matmul(zeros(64, 32, dtype=E4M3), zeros(48, 32, dtype=E4M3).T, accumulation="promoted",
        config=MatmulConfig(tile=(128, 128))), "TK-MM-006", ("in_flight=1", "nearest: in_flight=0"), ConfigError),
    Bad("slices promoted", matmul(zeros(64, 32, dtype=E4M3), zeros(48, 32, dtype=E4M3).T, accumulation="promoted",
        config=MatmulConfig(tile=(128, 128), in_flight=0, k_group=2)), "TK-MM-006",
        ("k_group=2", "nearest: k_group=1"), ConfigError),
    Bad("promoted tile", matmul(zeros(64, 32, dtype=E4M3), zeros(48, 32, dtype=E4M3).T, accumulation="promoted",
        config=MatmulConfig(in_flight=0)), "TK-MM-006",
        ("256 accumulators a thread, with those of a k-block apart", "nearest: tile=(128, 208)"), ConfigError),
    Bad("misspelt type", matmul(out_dtype="bf61"),
        "TK-DTYPE-001", ("out_dtype: given 'bf61'", "nearest legal: 'bf16'")),
    Bad("out and out_dtype", matmul(out=zeros(64, 48), out_dtype="f32"),
        "TK-API-004", ("out is bf16 and out_dtype=f32",)),
    Bad("out's shape", matmul(out=zeros(48, 64)), "TK-ARRAY-008", ("out is bf16 of shape (48, 64)", "shape (64, 48)")),
    Bad("out's rank", matmul(out=zeros(1, 64, 48)), "TK-ARRAY-008", ("of shape (1, 64, 48)", "shape (64, 48)")),
    Bad("out by columns", matmul(out=zeros(48, 64).T), "TK-MM-014", ("out has strides (1, 64)", "out.T = b.T @ a.T")),
    Bad("out read-only", matmul(out=read_only(64, 48)), "TK-ARRAY-008", ("out is read-only", "writeable")),
    Bad("out is an input", of_itself, "TK-ARRAY-009", ("out overlaps a", "another out")),
    Bad("another library's b", matmul(b=Elsewhere(zeros(32, 48, dtype=F16)), a=zeros(64, 32, dtype=F16)),
        "TK-ARRAY-007",
        ("a is numpy on cpu", "and b is", "one library and one device")),
    Bad("another library's out", matmul(zeros(64, 32, dtype=F16), zeros(32, 48, dtype=F16),
        out=Elsewhere(zeros(64, 48, dtype=F16))), "TK-ARRAY-007", ("a is numpy on cpu", "and out is")),
    Bad("pitch on Blackwell", matmul(zeros(64, 30), zeros(30, 48), target="sm_100a"), "TK-MM-013",
        ("a has an address or pitches that are multiples of 4 bytes only", "TMA", "padded to a multiple of 16 bytes")),
    Bad("address on Blackwell", matmul(b=shifted(32, 48), target="sm_100a"), "TK-MM-013", ("b has", "of 2 bytes")),
    Bad("copies in a cluster", matmul(a=shifted(64, 32), config=MatmulConfig()), "TK-MM-006",
        ("cluster=(2, 1)", "nearest: cluster=(1, 1)"), ConfigError),
    Bad("every other column", matmul(a=zeros(64, 64)[:, ::2]),
        "TK-MM-013", ("neither", "strides (64, 2)", "contiguous")),
    Bad("rows backwards", matmul(a=zeros(64, 32)[::-1]), "TK-MM-013", ("strides (-32, 1)", "backwards", ".copy()")),
    Bad("out backwards", matmul(out=zeros(64, 48)[::-1]), "TK-MM-013", ("out has strides (-48, 1)", "out.copy()")),
    Bad("residual backwards", matmul(residual=zeros(64, 48)[::-1]), "TK-MM-013",
        ("residual has strides (-48, 1)", "backwards")),
    Bad("residuals backwards", matmul(zeros(2, 64, 32), residual=zeros(2, 64, 48)[::-1]), "TK-MM-013",
        ("residual has strides (-3072, 48, 1)", "residual.copy()")),
    Bad("bias too short", matmul(bias=zeros(47, dtype=F32)), "TK-MM-017", ("bias has shape (47,)", "shape (48,)")),
    Bad("bias a row", matmul(bias=zeros(1, 48, dtype=F32)), "TK-MM-017", ("bias has shape (1, 48)", "shape (48,)")),
    Bad("bias strided", matmul(bias=zeros(96, dtype=F32)[::2]), "TK-MM-017", ("strides (2,)", "contiguous")),
    Bad("bias fp8", matmul(bias=zeros(48, dtype=E4M3)), "TK-MM-017", ("bias is e4m3", "nearest: f32")),
    Bad("a factor of no residual", matmul(beta=2.0), "TK-MM-020", ("beta: given 2.0", "nearest legal: 1.0")),
    Bad("bias f64", matmul(bias=zeros(48, dtype=np.float64)), "TK-DTYPE-001", ("bias: given 'float64'",)),
    Bad("bias a number", matmul(bias=1.0), "TK-ARRAY-001", ("bias is a builtins.float",)),
    Bad("activation", matmul(activation="swish"), "TK-MM-005", ("relu, gelu, silu or None", "nearest: silu")),
    Bad("activation in capitals", matmul(activation="RELU"), "TK-MM-005", ("activation='RELU'", "nearest: relu")),
    Bad("scale a word", matmul(scale="half"), "TK-MM-018", ("scale: given 'half'", "a number or an array of one f32")),
    Bad("scales", matmul(scale=zeros(2, dtype=F32)), "TK-MM-018", ("scale is f32 of shape (2,)", "one f32")),
    Bad("scale's type", matmul(scale=zeros(1, dtype=F16)), "TK-MM-018", ("scale is f16 of shape (1,)", "one f32")),
    Bad("one scale_a", matmul(scale_a=zeros(1, dtype=F32)), "TK-MM-026",
        ("scale_a is f32 of shape (1,)", "(64,) or (64, 1)", "nearest: f32 of shape (64,)", "scale= for one factor")),
    Bad("scale_a of columns", matmul(scale_a=zeros(48, dtype=F32)), "TK-MM-026", ("of shape (48,)", "each row")),
    Bad("scale_b lying", matmul(scale_b=zeros(48, 1, dtype=F32)), "TK-MM-026", ("(48, 1)", "(48,) or (1, 48)")),
    Bad("scale_b's type", matmul(scale_b=zeros(48, dtype=F16)), "TK-MM-026", ("scale_b is f16", "one f32")),
    Bad("scale_a of another batch", matmul(zeros(2, 64, 32), scale_a=zeros(3, 64, dtype=F32)), "TK-MM-026",
        ("(3, 64)", "(64,) or (64, 1) or (2, 64) or (2, 64, 1)")),
    Bad("scale_a strided", matmul(scale_a=zeros(128, dtype=F32)[::2]), "TK-MM-026", ("strides (2,)", ".copy()")),
    Bad("scale_b backwards", matmul(zeros(2, 64, 32), scale_b=zeros(2, 48, dtype=F32)[::-1]), "TK-MM-026",
        ("strides (-48, 1)", "not run backwards")),
    Bad("scale_b a number", matmul(scale_b=2.0), "TK-ARRAY-001", ("scale_b is a builtins.float",)),
    Bad("another library's scale_a", matmul(scale_a=Elsewhere(zeros(64, dtype=F32))), "TK-ARRAY-007",
        ("a is numpy on cpu", "and scale_a is")),
    Bad("a stream", matmul(stream=7), "TK-ARRAY-005", ("stream=7", "numpy on cpu", "leave it out")),
    Bad("target", matmul(target="sm_91"), "TK-TARGET-001", ("target='sm_91'", "sm_90a")),
    Bad("target of compile", lambda: tilekit.compile(MatmulSpec(), "hopper"), "TK-TARGET-001", ("'hopper'", "sm_90a")),
    Bad("config a word", matmul(config="fast"), "TK-ARG-001", ("config: given 'fast'", "MatmulConfig")),
    Bad("too many stages", config(stages=9),
        "TK-MM-006", ("stages=9", "2 to 4 fit", "232448", "nearest: stages=4"), ConfigError),
    Bad("too few stages", config(stages=1), "TK-MM-006", ("stages=1", "nearest: stages=2"), ConfigError),
    Bad("tile rows", config(tile=(100, 128), cluster=(1, 1)),
        "TK-MM-006", ("tile M=100", "multiple of 64", "nearest"), ConfigError),
    Bad("tile columns", config(tile=(128, 68), cluster=(1, 1)),
        "TK-MM-006", ("tile N=68", "a multiple of 8 up to 256", "nearest: tile=(128, 72)"), ConfigError),
    Bad("tile too large", config(tile=(384, 256), consumers=2),
        "TK-MM-006", ("accumulators a thread", "nearest: "), ConfigError),
    Bad("shared memory", config(tile=(640, 64), cluster=(1, 1), consumers=2, output_buffers=8), "TK-MM-006",
        ("shared memory", "over the 232448 B of a CTA", "output subtiles", "nearest"), ConfigError),
    Bad("cluster", config(cluster=(3, 3)), "TK-MM-006", ("cluster=(3, 3)", "1 to 8 CTAs"), ConfigError),
    Bad("slices", config(tile=(128, 64), cluster=(3, 1)),
        "TK-MM-006", ("in a 3x1 cluster", "in 3 equal slices"), ConfigError),
    Bad("consumers", config(consumers=4), "TK-MM-006", ("consumers=4", "1, 2 or 3"), ConfigError),
    Bad("in flight", config(in_flight=2), "TK-MM-006", ("in_flight=2", "0 or 1", "nearest: in_flight=1"), ConfigError),
    Bad("buffers", config(output_buffers=0),
        "TK-MM-006", ("output_buffers=0", "nearest: output_buffers=1"), ConfigError),
    Bad("raster", config(raster_group=0), "TK-MM-006", ("raster_group=0", "nearest: raster_group=1"), ConfigError),
    Bad("promotion", config(l2_promotion="512B"), "TK-MM-006", ("'512B'", "'256B'"), ConfigError),
    Bad("two at once", config(stages=9, in_flight=2), "TK-MM-006", ("in_flight=2",), ConfigError),
    Bad("a major", lambda: MatmulSpec(a_major="row"), "TK-MM-003", ("a_major='row'", "'k'", "'mn'")),
)  # fmt: skip


@pytest.mark.usefixtures("nothing_launches")
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name.replace(" ", "_").replace("'", ""))
def test_bad_input_is_refused(bad: Bad) -> None:
    """The error's type and code are as documented, and its message names the argument, the rule and the way out."""
    with pytest.raises(bad.error) as caught:
        bad.call()
    assert type(caught.value) is bad.error
    assert caught.value.code == bad.code
    assert [part for part in bad.says if part not in str(caught.value)] == [], str(caught.value)
    assert str(caught.value).endswith(f"[{bad.code}]")


@pytest.mark.parametrize(
    "bad", [bad for bad in BAD if bad.error is ConfigError], ids=lambda bad: bad.name.replace(" ", "_")
)
def test_config_errors_list_their_problems(bad: Bad) -> None:
    """Each problem is also an entry of the exception, with its nearest legal value."""
    with pytest.raises(ConfigError) as caught:
        bad.call()
    assert caught.value.problems
    assert all("nearest" in problem for problem in caught.value.problems), caught.value.problems


@pytest.mark.usefixtures("nothing_launches")
def test_a_refused_output_is_left_alone() -> None:
    """An error leaves the output as it was."""
    out = np.full((64, 48), 7, BF16)
    with pytest.raises(ArgumentError, match="TK-MM-005"):
        tilekit.matmul(zeros(64, 32), zeros(32, 48), out=out, activation="tanh")  # type: ignore[arg-type]
    assert (out == 7).all()


BOUND = (
    Bad("a's type", lambda k: k.bind(zeros(64, 32, dtype=F16), zeros(48, 32, dtype=F16).T, zeros(64, 48)),
        "TK-MM-016", ("a's type is f16", "bf16")),
    Bad("b's major", lambda k: k.bind(zeros(64, 32), zeros(32, 48)), "TK-MM-016", ("b's major is mn", "built for k")),
    Bad("batches", lambda k: k.bind(zeros(2, 64, 32), zeros(48, 32).T), "TK-MM-016", ("batching is True", "False")),
    Bad("out's type", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, zeros(64, 48, dtype=F32)),
        "TK-ARRAY-008", ("out is f32", "bf16")),
    Bad("a bias", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, bias=zeros(48)),
        "TK-MM-016", ("bias's type is bf16", "None")),
    Bad("a scale_a", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, scale_a=zeros(64, dtype=F32)),
        "TK-MM-016", ("scale_a is True", "False")),
    Bad("a scale", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, scale=2), "TK-MM-016", ("scale is value", "None")),
    Bad("out's pitch", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, zeros(64, 49)[:, :48]), "TK-MM-016",
        ("rows of 96 bytes", "98 bytes apart", "store='direct'", "padded")),
    Bad("device", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, device="gpu"),
        "TK-MM-016", ("device: given 'gpu'", "'cuda'")),
    Bad("seed", lambda k: k.bind(zeros(64, 32), zeros(48, 32).T, seed="0"),
        "TK-ARG-001", ("seed: given '0'", "integer")),
)  # fmt: skip


@pytest.mark.usefixtures("nothing_launches")
@pytest.mark.parametrize("bad", BOUND, ids=lambda bad: bad.name.replace(" ", "_").replace("'", ""))
def test_a_kernel_refuses_arrays_it_was_not_built_for(bad: Bad) -> None:
    """bind says what differs, what the kernel was built for, and what to do."""
    kernel = tilekit.compile(MatmulSpec())
    with pytest.raises(bad.error) as caught:
        bad.call(kernel)  # type: ignore[call-arg]
    assert caught.value.code == bad.code
    assert [part for part in bad.says if part not in str(caught.value)] == [], str(caught.value)


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """target="cuda" says that there is no GPU, why, and that leaving it out emulates."""
    monkeypatch.setattr(driver, "why_unavailable", lambda: "the NVIDIA driver finds no device")
    with pytest.raises(DriverError) as caught:
        tilekit.matmul(zeros(64, 32), zeros(32, 48), target="cuda")
    assert caught.value.code == "TK-API-002"
    assert all(part in str(caught.value) for part in ("target='cuda'", "no device", "leave target out"))


def test_no_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Machine code needs ptxas: without one the error says what to install, and the text is there all the same."""
    monkeypatch.setenv("TILEKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(toolchain, "_folders", lambda: iter(()))
    monkeypatch.setattr(toolchain.shutil, "which", lambda *_arguments, **_keywords: None)
    monkeypatch.delenv("TILEKIT_PTXAS", raising=False)
    kernel = tilekit.compile(MatmulSpec(out_dtype="f16"))
    assert ".entry" in kernel.ptx
    with pytest.raises(AssemblerNotFound) as caught:
        _ = kernel.resources
    assert caught.value.code == "TK-ASM-002"
    assert all(part in str(caught.value) for part in ("no ptxas", "pip install", "TILEKIT_PTXAS"))


def test_a_problem_too_long_for_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says how long it would take and how to go ahead; the way it says works."""
    a, b = zeros(192, 256), zeros(256, 256)
    with settings.override(emulator_limit=1e-4), pytest.raises(EmulationTooLong) as caught:
        tilekit.matmul(a, b)
    error = caught.value
    assert error.code == "TK-EMU-001"
    assert error.seconds > error.limit == 1e-4
    assert all(part in str(error) for part in ("FLOP", "settings.override(emulator_limit=", "TILEKIT_EMULATOR_LIMIT="))
    with settings.override(emulator_limit=error.seconds * 2):
        assert not tilekit.matmul(a, b).any()


def test_minutes_are_refused_by_default() -> None:
    """A product of minutes is refused although nothing was set."""
    with pytest.raises(EmulationTooLong, match=r"about [\d.]+ (min|h)"):
        tilekit.matmul(zeros(8192, 2048), zeros(8192, 2048).T)


@pytest.mark.usefixtures("nothing_launches")
def test_an_empty_output_launches_nothing() -> None:
    """M = 0 or N = 0 needs no launch: the result is just empty, and bound plans say so by their type."""
    assert tilekit.matmul(zeros(0, 32), zeros(32, 48)).shape == (0, 48)
    plan = tilekit.compile(MatmulSpec()).bind(zeros(64, 32), zeros(0, 32).T)
    assert type(plan) is Plan
    assert plan().shape == (64, 0)


def test_factors_of_no_batches_have_any_strides() -> None:
    """Nothing lies behind anything: what NumPy computes without elements has strides of 0."""
    rows, columns = (np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, n), (0, 0)) for n in (4, 16))
    a, b = np.ones((0, 4, 8), np.float16), np.ones((0, 8, 16), np.float16)
    assert tilekit.matmul(a, b, scale_a=rows, scale_b=columns).shape == (0, 4, 16)

"""No output shares memory with what a call reads, whichever family takes it and whatever the array is for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.errors import ArgumentError

BF16, E4M3, UE8M0 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e8m0fnu)
F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
A, B = np.ones((16, 64), BF16), np.ones((64, 32), BF16)
X, W = np.ones((2, 9, 7, 16), BF16), np.ones((24, 3, 3, 16), BF16)
A8, SCALES = np.ones((128, 128), E4M3), np.ones((128, 4), UE8M0)


@tilekit.epilogue
def two(x, row):  # type: ignore[no-untyped-def]
    """Two results."""
    return x, x + row


def new(*shape: int, dtype: np.dtype[Any] = F32) -> Any:
    """Zeros at an address of which kernels can make anything."""
    room = np.zeros(prod(shape) * dtype.itemsize + 128, np.uint8)
    start = -room.ctypes.data % 128
    return room[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def within(out: Any, first: int, shape: tuple[int, ...], dtype: np.dtype[Any] = F32) -> Any:
    """An array in the memory of another, from a byte on."""
    return out.reshape(-1).view(np.uint8)[first : first + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _product(how: Callable[[Any], dict[str, Any]], **more: Any) -> Any:
    out = new(16, 32)
    return tilekit.matmul(A, B, out=out, **how(out), **more)


def _gemv() -> Any:
    out = new(1, 32)
    return tilekit.matmul(A[:1], B, bias=within(out, 0, (32,)), out=out)


def _bound() -> Any:
    out = new(16, 32)
    kernel = tilekit.kernel_for(A, B, out=out, bias=out[0])
    return kernel.bind(A, B, out, bias=out[0])


def _residual(first: int) -> Any:
    room = new(17, 32)
    return tilekit.matmul(A, B, residual=room[first : first + 16], out=room[:16])


def _residual_of_all() -> Any:
    out = new(2, 16, 32)
    return tilekit.matmul(np.stack([A, A]), np.stack([B, B]), residual=out[:1], out=out)


def _further_output() -> Any:
    a = new(16, 64, dtype=BF16)
    return tilekit.matmul(a, B, out=(new(16, 32), within(a, 0, (16, 32))), epilogue=two(np.ones(32, F32)))


def _convolution(first: int) -> Any:
    out = new(2, 7, 5, 24, dtype=BF16)
    return tilekit.conv2d(X, W, bias=within(out, first, (24,), BF16), out=out)


def _in_groups(first: int) -> Any:
    out = new(16, 32)
    return tilekit.grouped_matmul(A, np.stack([B, B]), within(out, first, (2,), I32), out=out)


def _counted() -> Any:
    out = new(2, 16, 32)
    return tilekit.grouped_matmul(np.stack([A, A]), np.stack([B, B]), counts=within(out, 0, (2,), I32), out=out)


def _scales(first: int, *, plain: bool) -> Any:
    out, laid = new(128, 128), tilekit.lay_out_scales(SCALES)
    own = within(out, first, SCALES.shape if plain else laid.shape, UE8M0)
    return tilekit.scaled_matmul(A8, A8.T, own, laid, out=out)


def _scales_in_values() -> Any:
    laid, out = tilekit.lay_out_scales(SCALES), (new(128, 128, dtype=E4M3), new(128, 4, dtype=UE8M0))
    own = within(out[0], 1024, laid.shape, UE8M0)
    return tilekit.scaled_matmul(A8, A8.T, own, laid, out=out, out_dtype="mxfp8")


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "bias": (lambda: _product(lambda out: {"bias": within(out, 4, (32,))}), "out overlaps bias"),
    "bias of sm_80": (lambda: _product(lambda out: {"bias": out[0]}, target="sm_80"), "out overlaps bias"),
    "bias of a gemv": (_gemv, "out overlaps bias"),
    "bias that is bound": (_bound, "out overlaps bias"),
    "scales of rows": (lambda: _product(lambda out: {"scale_a": out[0, :16]}), "out overlaps scale_a"),
    "scales of columns": (lambda: _product(lambda out: {"scale_b": out[3]}), "out overlaps scale_b"),
    "a residual a row on": (lambda: _residual(1), "out overlaps residual"),
    "one for all of a batch": (_residual_of_all, "out overlaps residual"),
    "an epilogue's operand": (lambda: _product(lambda out: {"epilogue": two(out[2])}), r"out\[0\] overlaps row"),
    "an epilogue's output": (_further_output, r"out\[1\] overlaps a"),
    "bias of a convolution": (lambda: _convolution(0), "out overlaps bias"),
    "its second value": (lambda: _convolution(2), "out overlaps bias"),
    "ends": (lambda: _in_groups(0), "out overlaps ends"),
    "ends further in": (lambda: _in_groups(4), "out overlaps ends"),
    "counts": (_counted, "out overlaps counts"),
    "scales as a matrix": (lambda: _scales(0, plain=True), "out overlaps scale_a"),
    "scales laid out": (lambda: _scales(1024, plain=False), "out overlaps scale_a"),
    "scales in quantised values": (_scales_in_values, r"out\[0\] overlaps scale_a"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_output_in_an_input_is_refused(name: str) -> None:
    """Before anything is launched, by the caller's names."""
    call, words = CALLS[name]
    with pytest.raises(ArgumentError, match=rf"{words} in memory.*TK-ARRAY-009"):
        call()


def test_a_residual_in_place_is_legal() -> None:
    """Each of its elements is read by the thread that then writes there: also one of a batch of one."""
    assert (_residual(0) == 64).all()
    out = new(1, 16, 32)
    assert (tilekit.matmul(A[None], B[None], residual=out[0], out=out) == 64).all()

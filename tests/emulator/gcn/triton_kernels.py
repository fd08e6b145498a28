"""Kernels that Triton compiles for AMD GPUs, with no GPU and no ROCm."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, o, stride, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    values = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(o + row * stride + columns, values / tl.sum(values, 0), mask=columns < n)


@triton.jit
def sort(x, o, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.arange(0, block)
    tl.store(o + places, tl.sort(tl.load(x + places)))


@triton.jit
def matmul(a, b, c, k, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.arange(0, block)
    left, right = a + places[:, None] * k + places[None, :], b + places[:, None] * block + places[None, :]
    total = tl.zeros((block, block), tl.float32)
    for _ in range(0, k, block):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += block
        right += block * block
    tl.store(c + places[:, None] * block + places[None, :], total)


def code_objects(chip: str) -> dict[str, bytes]:
    """Compile the kernels for a chip."""
    kernels: dict[str, tuple[Any, dict[str, str], int]] = {
        "softmax": (softmax, {"x": "*fp32", "o": "*fp32", "stride": "i32", "n": "i32"}, 2048),
        "sort": (sort, {"x": "*fp32", "o": "*fp32"}, 512),
        "bf16": (matmul, {"a": "*bf16", "b": "*bf16", "c": "*fp32", "k": "i32"}, 64),
        "fp8": (matmul, {"a": "*fp8e5", "b": "*fp8e5", "c": "*fp32", "k": "i32"}, 64),
    }
    return {name: _compile(chip, *parts) for name, parts in kernels.items()}


def _compile(chip: str, kernel: Any, types: dict[str, str], block: int) -> bytes:
    source = ASTSource(kernel, {**types, "block": "constexpr"}, {(len(types),): block})
    image: bytes = triton.compile(source, target=GPUTarget("hip", chip, 64)).asm["hsaco"]
    return image

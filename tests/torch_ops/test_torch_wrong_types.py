"""What is no tensor where a call of `tilekit.torch` takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tilekit import torch as operators  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

ONE = torch.ones(4, 8, dtype=torch.bfloat16)
FP8 = torch.ones(4, 8).to(torch.float8_e4m3fn)

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "matmul": (operators.matmul, {"a": ONE, "b": ONE.T}, ("out", "bias", "scale_a", "scale_b", "residual")),
    "linear": (operators.linear, {"x": ONE, "weight": ONE}, ("bias",)),
    "conv2d": (operators.conv2d, {"x": ONE[None, None], "w": ONE[None, None]}, ("bias", "residual", "out")),
    "attention": (
        operators.attention,
        dict.fromkeys("qkv", ONE[None, None]),
        ("key_lengths", "block_table", "out"),
    ),
    "scaled_matmul": (
        operators.scaled_matmul,
        {"a": FP8, "b": FP8.T, "scale_a": ONE, "scale_b": ONE},
        ("bias", "residual", "out"),
    ),
    "scaled_matmul_quantised": (
        lambda **given: operators.scaled_matmul_quantised(out_dtype="mxfp8", **given),
        {"a": FP8, "b": FP8.T, "scale_a": ONE, "scale_b": ONE},
        ("bias",),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_tensor_is_named(call: str) -> None:
    """Each argument in turn: an array of NumPy's, a string, a list, and None where there must be a tensor."""
    function, needed, others = CALLS[call]
    for name in (*needed, *others):
        for value in (np.ones((4, 8), np.float16), "x", [1.0], *((None,) if name in needed else ())):
            with pytest.raises(ArgumentError, match=rf"{name} is a \S+; legal: a torch\.Tensor") as raised:
                function(**(needed | {name: value}))
            assert raised.value.code == "TK-TORCH-003"


@pytest.mark.parametrize("call", CALLS)
def test_sparse_tensors_are_named(call: str) -> None:
    """Each argument in turn, which has no plain memory to be read."""
    function, needed, others = CALLS[call]
    rows = {"x": "a", "weight": "b"} if call == "linear" else {}  # a product's operands, in its errors too
    for name in (*needed, *others):
        with pytest.raises(
            ArgumentError, match=rf"^{rows.get(name, name)} is a tensor of layout torch\.sparse_coo.*to_dense"
        ):
            function(**(needed | {name: torch.ones(4, 8, dtype=torch.bfloat16).to_sparse()}))


def test_a_proxy_of_a_tracer_is_let_through() -> None:
    """`torch.fx` traces a module's call with objects that are no tensors and override torch's functions."""
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.tilekit.matmul(x, ONE.T)).graph
    assert any("tilekit" in str(node.target) for node in graph.nodes)
    traced = torch.fx.symbolic_trace(lambda x: operators.matmul(x, ONE.T))
    assert any("tilekit" in str(node.target) for node in traced.graph.nodes)


HEADS = dict.fromkeys("qkv", torch.ones(1, 2, 8, 64, dtype=torch.bfloat16))
ROWS = dict.fromkeys("qkv", torch.ones(8, 2, 64, dtype=torch.bfloat16))
PIXELS = {
    "x": torch.ones(1, 16, 5, 4, dtype=torch.bfloat16).to(memory_format=torch.channels_last),
    "w": torch.ones(8, 16, 3, 3, dtype=torch.bfloat16).to(memory_format=torch.channels_last),
}
BLOCKS = {"a": FP8, "b": FP8.T, **dict.fromkeys(("scale_a", "scale_b"), torch.ones(4, 1, dtype=torch.uint8))}
SCORES = ("causal", "window", "scale", "softcap", "lse")

PLAIN: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "attention": (operators.attention, HEADS, SCORES),
    "packed_attention": (
        operators.packed_attention,
        {**ROWS, "lengths": torch.tensor([0, 8], dtype=torch.int32)},
        SCORES,
    ),
    "conv2d": (
        operators.conv2d,
        {**PIXELS, "residual": torch.ones(1, 8, 3, 2, dtype=torch.bfloat16).to(memory_format=torch.channels_last)},
        ("stride", "padding", "dilation", "groups", "activation", "beta", "accumulation"),
    ),
    "scaled_matmul": (operators.scaled_matmul, {**BLOCKS, "residual": ONE[:, :4]}, ("activation", "beta")),
    "scaled_matmul_quantised": (
        CALLS["scaled_matmul_quantised"][0],
        BLOCKS,
        ("activation", "out_scale", "scale_layout"),
    ),
}


@pytest.mark.parametrize("call", PLAIN)
def test_numbers_truths_and_words_are_read_before_torch_does(call: str) -> None:
    """What is none is refused with tilekit's words and codes; torch says only which C++ type it expected."""
    function, tensors, names = PLAIN[call]
    for name in names:
        for value in ("x", 2.5j, object(), np.ones(3), torch.ones(3), {}, b"same"):
            with pytest.raises(ArgumentError, match=rf"^{name}(: given|=)"):
                function(**tensors, **{name: value})
        if name in ("stride", "padding", "dilation", "groups"):
            with pytest.raises(ArgumentError, match=rf"^{name}(: given|=)"):
                function(**tensors, **{name: 1 << 70})


def test_numbers_of_numpy_are_numbers() -> None:
    """A stride, a scale, a window and a truth out of NumPy mean what Python's mean."""
    plain = operators.conv2d(**PIXELS, stride=2, padding=(1, 0))
    assert torch.equal(operators.conv2d(**PIXELS, stride=np.int64(2), padding=(np.int32(1), 0)), plain)
    keywords: dict[str, Any] = {"causal": np.True_, "window": (np.int64(3), None), "scale": np.float32(0.25)}
    found = operators.attention(**HEADS, **keywords)
    assert torch.equal(found, operators.attention(**HEADS, causal=True, window=(3, None), scale=0.25))


def test_what_tilekit_refuses_goes_to_torch() -> None:
    """In the place of torch's function: what is no tensor, and a scale that f32 has not, are torch's business."""
    q = HEADS["q"]
    with pytest.raises(TypeError, match="query"):
        operators.scaled_dot_product_attention(3, q, q)
    with pytest.raises(TypeError, match="scale"):
        operators.scaled_dot_product_attention(q, q, q, scale="x")
    assert operators.scaled_dot_product_attention(q, q, q, scale=1e-42).isfinite().all()

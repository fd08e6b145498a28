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


def test_a_proxy_of_a_tracer_is_let_through() -> None:
    """`torch.fx` traces a module's call with objects that are no tensors and override torch's functions."""
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.tilekit.matmul(x, ONE.T)).graph
    assert any("tilekit" in str(node.target) for node in graph.nodes)
    traced = torch.fx.symbolic_trace(lambda x: operators.matmul(x, ONE.T))
    assert any("tilekit" in str(node.target) for node in traced.graph.nodes)

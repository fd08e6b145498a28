"""Calls with a keyword that there is not, or with arguments too few or too many: an error with a code, in words."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.emulator import EmulatorError
from tilekit.errors import ArgumentError, CallError

A, B = np.ones((64, 64), np.float16), np.ones((64, 72), np.float16)
IMAGES, FILTERS = np.ones((1, 4, 4, 16), np.float16), np.ones((8, 1, 1, 16), np.float16)

MADE_BY_TILEKIT = (
    *("AccumulatorLayout", "Call", "Cluster", "ComposedAttention", "ComposedKernel", "Cooperative", "CopyPlan"),
    *("DType", "HeldStage", "Matrix", "NoTurns", "Place", "PortableChoice", "RegisterTile", "Role", "Schedule"),
    *("Stage", "Target", "Tile", "Value", "Warpgroup", "Writer"),
)
"""Classes for annotations: functions and methods make them, or they take no arguments."""

OFTEN = ("attention", "grouped_matmul", "matmul")
"""Calls whose wrong keywords have a code, and whose missing operands are Python's to name."""


def _made(module: Any) -> list[Any]:
    """What a module has to call by name: functions and classes, but for errors and protocols."""
    found = [getattr(module, name) for name in sorted(module.__all__)]
    calls = [one for one in found if inspect.isfunction(one) or inspect.isclass(one)]
    kinds = [one for one in calls if not (inspect.isclass(one) and issubclass(one, BaseException))]
    return [one for one in kinds if not getattr(one, "_is_protocol", False)]


EVERY = [
    one
    for one in (*_made(tilekit), *_made(tk))
    if one.__name__ not in (*MADE_BY_TILEKIT, *OFTEN, "attention_kernel_for")
]


@pytest.mark.parametrize("call", EVERY, ids=lambda call: call.__name__)
def test_every_call_names_its_keywords(call: Callable[..., Any]) -> None:
    """A keyword that there is not is refused with those that there are, as a TypeError and an error of tilekit's."""
    with pytest.raises(CallError, match=rf"{call.__name__}\(\) has no keyword 'qqqq'; legal: .*\[TK-ARG-002\]$"):
        call(qqqq=1)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "matmul": (lambda: tilekit.matmul(A, B, activaton="relu"), "matmul.. has no keyword 'activaton'.*'activation'"),
    "grouped": (lambda: tilekit.grouped_matmul(A, B, None, end=3), "legal: .*counts.*nearest: 'ends'"),
    "attention": (lambda: tilekit.attention(A, A, A, casual=True), "nearest: 'causal'"),
    "attention's kernel": (lambda: tilekit.attention_kernel_for(A, A, A, casual=True), "nearest: 'causal'"),
    "a stream": (lambda: tilekit.conv2d(IMAGES, FILTERS, strem=None), "legal: .*stream.*nearest: 'stream'"),
    "no filters": (lambda: tilekit.conv2d(IMAGES), r"conv2d\(\) is missing a required argument: 'w'; legal: x, w"),
    "three filters": (lambda: tilekit.conv2d(IMAGES, FILTERS, 1), "has too many positional arguments"),
    "a config": (lambda: tilekit.MatmulConfig(tiles=(128, 128)), "MatmulConfig.. has no keyword.*nearest: 'tile'"),
    "a spec": (lambda: tilekit.ElementwiseSpec(activaton="relu"), "nearest: 'activation'"),
    "a component": (lambda: tk.RasterOrder(grup=3), "RasterOrder.. has no keyword 'grup'"),
    "an input": (lambda: tk.Input("a", tk.F16, ("m",), dim=3), "Input.. has no keyword 'dim'"),
    "kernel": (lambda: tk.kernel(target="sm_90a", thread=128), "nearest: 'threads'"),
    "explain": (lambda: tilekit.kernel_for(A, B).explain(htlm=True), "explain.. has no keyword.*'html'"),
    "bind": (lambda: tilekit.kernel_for(A, B).bind(A, B, emulator={}), "bind.. has no keyword 'emulator'; .*schedule"),
    "a launch": (lambda: tilekit.kernel_for(A, B).bind(A, B)(A, B), "bound kernel is called with a stream, or nothing"),
    "a launch's word": (lambda: tilekit.kernel_for(A, B).bind(A, B)(steam=1), "nearest: 'stream'"),
    "emulate": (lambda: tilekit.kernel_for(A, B).bind(A, B).emulate(statistic=1), "nearest: 'statistics'"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_nearest_keyword(name: str) -> None:
    """The message names the function, what it takes and what was meant; the error pickles as others do."""
    call, words = CASES[name]
    with pytest.raises(CallError, match=words) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ArgumentError)
    assert caught.value.code == "TK-ARG-002"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_errors_of_what_is_called_are_left() -> None:
    """A TypeError that comes from inside is no wrong call, and is not said to be one."""

    @tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=128)
    def broken(w: tk.Writer) -> Any:
        return 1 + "1"

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        _ = broken.assembly
    assert not isinstance(caught.value, CallError | EmulatorError)


def test_operands_come_first() -> None:
    """A wrong keyword beside missing operands is Python's error where calls are made often, and ours with them."""
    for name in OFTEN:
        call = getattr(tilekit, name)
        assert "unknown" not in inspect.signature(call).parameters
        with pytest.raises(CallError, match=rf"{name}\(\) has no keyword 'qqqq'; legal: .*stream"):
            call(A, B, B, qqqq=1) if name == "attention" else call(A, B, qqqq=1)


def test_a_compiled_spec_is_looked_at_first() -> None:
    """Arrays are no spec: that is said, and not what is wrong with a second one as a target."""
    with pytest.raises(ArgumentError, match=r"spec: given <numpy\.ndarray of float16, shape \(64, 64\)>"):
        tilekit.compile(A, B)

"""The command runner, and a stand-in for the kernels: the command line is tested apart from what it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tilekit
from tilekit.bench import machine as machines
from tilekit.calls import matmul as matmuls
from tilekit.cli.app import app
from tilekit.dtypes import as_dtype
from tilekit.runtime import driver
from tilekit.runtime.resources import PtxResources
from tilekit.targets import target as target_named

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process, in a terminal wide enough that no table breaks."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@dataclass
class Calls:
    """What the stand-in was asked, and how it answers: ``spoil`` changes the result."""

    matmul: list[dict[str, Any]]
    compile: list[dict[str, Any]]
    spoil: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] = lambda out: out


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Replace tilekit's matmul and compile by NumPy and a note."""
    calls = Calls([], [])

    def matmul(a: Any, b: Any, *, out: Any = None, bias: Any = None, out_dtype: Any = None, **rest: Any) -> Any:
        calls.matmul.append({"a": a, "b": b, "bias": bias, "out_dtype": out_dtype, **rest})
        value = a.astype(np.float32) @ b.astype(np.float32)
        if bias is not None:
            value = value + bias
        if rest["activation"] == "relu":
            value = np.maximum(value, 0)
        answer = calls.spoil(value.astype(out.dtype if out is not None else as_dtype(out_dtype).numpy))
        if out is None:
            return answer
        out[...] = answer
        return out

    def compile(spec: Any, target: str, config: Any) -> Any:  # noqa: A001  the name is tilekit's
        calls.compile.append({"spec": spec, "target": target, "config": config})
        return SimpleNamespace(
            spec=spec,
            config=config,
            target=target_named(target),
            name=spec.name,
            ptx="ptx of it",
            assembly="ptx of it",
            isa="sass of it",
            explain=lambda: "roles of it",
            resources=PtxResources(168),
        )

    def kernel_for(a: Any, b: Any, *, config: Any = None, target: Any = None, **rest: Any) -> Any:
        real = matmuls.kernel_for(a, b, config=config, target=target, **rest)
        return compile(real.spec, real.target.name, real.config)

    monkeypatch.setattr(tilekit, "matmul", matmul, raising=False)
    monkeypatch.setattr(tilekit, "kernel_for", kernel_for, raising=False)
    monkeypatch.setattr(tilekit, "compile", compile, raising=False)
    monkeypatch.setattr(machines, "find_machine", lambda: None)
    monkeypatch.setattr(driver, "why_unavailable", lambda: "no NVIDIA driver")
    return calls


class NumpyMachine:
    """A GPU that is NumPy."""

    library, device, uuid = "numpy 2", "Paper H200", "GPU-0"
    capability = (9, 0)
    l2_bytes = 1 << 16

    def upload(self, values: Any) -> Any:
        return np.array(values, order="C")

    def download(self, array: Any) -> Any:
        return array.astype(np.float64)

    def empty(self, shape: Any, dtype: Any) -> Any:
        return np.zeros(shape, dtype.numpy)

    def poison(self, array: Any) -> None:
        array.view(np.uint8).fill(0xFF)

    def time(self, replay: Callable[[], None], count: int) -> float:
        replay()
        return count * 10e-6


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: Calls) -> NumpyMachine:
    """A machine with the stand-in GPU."""
    machine = NumpyMachine()
    monkeypatch.setattr(machines, "find_machine", lambda: machine)
    return machine

"""Every public call, with legal arguments for all of its parameters but the one that a test is about."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import tilekit
from tilekit import api
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.spec import GemvSpec

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Door:
    """A parameter of a call.

    Attributes
    ----------
    call
        The call's name.
    parameter
        What an odd value is given as.
    open
        Makes the call with a value for the parameter.
    also
        Other names by which an error may speak of it.
    """

    call: str
    parameter: str
    open: Callable[[Any], Any]
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.call}({self.parameter})"


def operands() -> dict[str, Any]:
    """A small product."""
    return {"a": np.ones((64, 64), BF16), "b": np.ones((64, 64), BF16).T}


def grouped_operands() -> dict[str, Any]:
    """Two groups of rows."""
    return {"a": np.ones((64, 64), BF16), "b": np.ones((2, 64, 64), BF16), "ends": np.array([16, 64], np.int32)}


def _with(function: Callable[..., Any], legal: Callable[[], dict[str, Any]], name: str, value: Any) -> Any:
    return function(**legal() | {name: value})


def of_call(function: Callable[..., Any], legal: Callable[[], dict[str, Any]], label: str = "") -> Iterator[Door]:
    """A door for each parameter of a function; of ``**`` parameters there is none."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield Door(label or function.__name__, name, partial(_with, function, legal, name))


def of_fields(kind: type, use: Callable[[Any], Any]) -> Iterator[Door]:
    """A door for each field of a dataclass; what takes the value is used as it is meant to be."""
    assert is_dataclass(kind)
    for field in fields(kind):
        yield Door(
            kind.__name__, field.name, lambda value, name=field.name: use(kind(**{name: value}))  # type: ignore[misc]
        )


def _built(config: Any, target: str) -> None:
    tilekit.compile(tilekit.MatmulSpec(), target, config)
    str(config)


def _gemv(config: GemvConfig) -> None:
    from tilekit.targets import SM_90A

    config.check(SM_90A, GemvSpec())


def _bind(**arguments: Any) -> Any:
    return tilekit.compile(tilekit.MatmulSpec()).bind(**arguments)


def _set(name: str, value: Any) -> None:
    with tilekit.settings.override(**{name: value}):
        pass


def _call_plan(stream: Any) -> Any:
    return _bind(**operands())(stream)


def doors() -> list[Door]:
    """All of them, but the emulator's."""
    kernel = tilekit.compile(tilekit.MatmulSpec())
    found = [
        *of_call(tilekit.matmul, operands),
        *of_call(tilekit.kernel_for, operands),
        *of_call(api.result_of, operands),
        *of_call(tilekit.grouped_matmul, grouped_operands),
        *of_call(tilekit.compile, lambda: {"spec": tilekit.MatmulSpec()}),
        *of_call(tilekit.tune, lambda: {"m": 64, "n": 64, "k": 64}),
        *of_call(kernel.bind, operands, "bind"),
        *(Door("bind", name, partial(_with, kernel.bind, operands, name))
          for name in ("schedule", "check", "exact", "multiprocessors")),
        Door("plan", "stream", _call_plan),
        *of_fields(tilekit.MatmulSpec, tilekit.compile),
        *of_fields(tilekit.ElementwiseSpec, lambda functions: tilekit.compile(tilekit.MatmulSpec(functions=functions))),
        *of_fields(tilekit.MatmulConfig, partial(_built, target="sm_90a")),
        *of_fields(tilekit.BlackwellConfig, partial(_built, target="sm_100a")),
        *of_fields(GemvSpec, str),
        *of_fields(GemvConfig, _gemv),
        *(Door("settings", row.name, partial(_set, row.name)) for row in tilekit.settings.describe()),
    ]  # fmt: skip
    return found

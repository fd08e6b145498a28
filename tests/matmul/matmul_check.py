"""The body that every case goes through on every machine, and what pairs the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import tilekit
from tests.matmul.matmul_case import Case
from tests.matmul.matmul_data import inputs_of
from tests.matmul.matmul_machine import Machine
from tests.matmul.matmul_reference import compare, expected_of

Test = TypeVar("Test", bound=Callable[..., None])


def over(**cases: tuple[Case, ...]) -> Callable[[Test], Test]:
    """Say which cases a test runs on which machine."""

    def attach(test: Test) -> Test:
        test.cases = cases  # type: ignore[attr-defined]
        return test

    return attach


def check(machine: Machine, case: Case, run: Callable[..., Any] = tilekit.matmul) -> None:
    """Run a case on a poisoned output and compare it; operands and all that lies around must stay as they were.

    `run` is `tilekit.matmul`, or takes what it does.
    """
    inputs = inputs_of(case)
    a = machine.place(inputs.a, case.a_layout)
    b = machine.place(inputs.b, case.b_layout)
    out = machine.place_output(case.out_dtype, case.out_layout)
    extras = {}
    if inputs.bias is not None:
        extras["bias"] = machine.place(inputs.bias)
    for name, factors in (("scale_a", inputs.scale_a), ("scale_b", inputs.scale_b)):
        if factors is not None:  # with the product's other dimension, or without
            flat = factors.reshape(*factors.shape[:-2], -1)
            extras[name] = machine.place(factors if case.seed % 2 else flat)
    scale: Any = inputs.scale
    if case.kernel.scale == "array":
        extras["scale"] = machine.place(one_f32(inputs.scale))
        scale = extras["scale"].array
    result = run(
        a.array,
        b.array,
        out=out.array,
        bias=extras["bias"].array if "bias" in extras else None,
        scale_a=extras["scale_a"].array if "scale_a" in extras else None,
        scale_b=extras["scale_b"].array if "scale_b" in extras else None,
        scale=scale,
        activation=case.kernel.activation,  # type: ignore[arg-type]
        precision=case.kernel.precision,
        accumulation=case.kernel.accumulation,
        config=case.kernel.config,
        target=case.kernel.target if machine.name == "emulator" else None,
    )
    assert result is out.array
    compare(out.read(), expected_of(case, inputs, machine))
    out.check_surroundings()
    for operand in (a, b, *extras.values()):
        operand.check_unchanged()


def one_f32(value: float | None) -> Any:
    """An array of one f32."""
    return np.array([value], np.float32)

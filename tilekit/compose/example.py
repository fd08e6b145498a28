"""Inputs that a composed kernel is tried on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilekit.dtypes import S32
from tilekit.errors import ArgumentError
from tilekit.kernels.operands import Input, Operand

USUAL = 64
"""Elements along a letter of which nothing is said."""


def example_inputs(operands: Sequence[Operand], seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of small whole numbers, as NumPy arrays by name; those of s32 are indices into any extent.

    Parameters
    ----------
    operands
        Of the kernel.
    seed
        Of the numbers.
    given
        Extents by letter, and arrays by operand: these are taken as they are, and so are their extents.

    Raises
    ------
    ArgumentError
        ``TK-COMP-003`` for what is neither a letter nor an input, for an extent below 1, and for an array of another
        rank than its operand's.
    """
    inputs = {one.name: one for one in operands if isinstance(one, Input)}
    letters = "".join(dict.fromkeys("".join(one.shape for one in operands)))
    extents: dict[str, int] = {}
    for name, value in given.items():
        if name in inputs and hasattr(value, "shape"):
            if len(value.shape) != len(inputs[name].shape):
                legal = f"an array of shape ({', '.join(inputs[name].shape)})"
                raise ArgumentError.of(name, f"one of shape {tuple(value.shape)}", legal=legal, code="TK-COMP-003")
            extents.update(zip(inputs[name].shape, map(int, value.shape), strict=True))
    for letter, extent in given.items():
        if letter in inputs and hasattr(extent, "shape"):
            continue
        if letter not in letters or type(extent) is not int or extent < 1:
            nearest = 1 if letter in letters and isinstance(extent, int) else USUAL
            legal = f"an extent from 1 on, of {', '.join(letters)}; or an array, of {', '.join(inputs)}"
            raise ArgumentError.of(letter, extent, legal=legal, nearest=nearest, code="TK-COMP-003")
        extents[letter] = extent
    random = np.random.default_rng(seed)
    least = min(extents.get(letter, USUAL) for letter in letters)
    made = {}
    for name, one in inputs.items():
        shape = [extents.get(letter, USUAL) for letter in one.shape]
        # Indices count from 0 and reach no further than any extent has elements.
        low, high = (0, least) if one.dtype is S32 else (-2, 3)
        numbers = random.integers(low, high, shape).astype(one.dtype.numpy)
        made[name] = given[name] if hasattr(given.get(name), "shape") else numbers
    return made
